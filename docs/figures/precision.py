"""FlatNCE's claim, seen: python docs/figures/precision.py writes precision.svg beside this file and prints its numbers.

How far the direction of an anchor's gradient is off, against float64, when its positive is g above its negatives. 15
negatives of deviation 0.7 (in logits), median of 200 draws, by PyTorch's operations on tensors of the precision named.
"""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, softplus


def textbook(logits):
    """InfoNCE as it is usually written, the cross-entropy of all logits against the first."""
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long), reduction="sum")


def softplus_form(logits):
    """InfoNCE as this library writes it: softplus of the negatives' logsumexp less the positive."""
    return softplus(logits[:, 1:].logsumexp(dim=1) - logits[:, 0], threshold=40).sum()


def flat(logits):
    """FlatNCE: the gap itself."""
    return (logits[:, 1:].logsumexp(dim=1) - logits[:, 0]).sum()


FORMS = {"InfoNCE, textbook": textbook, "InfoNCE, softplus form": softplus_form, "FlatNCE": flat}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def direction(form, logits, dtype):
    """Unit gradients `[rows, 16]` with respect to logits that are exact in float64, computed in `dtype`."""
    rounded = logits.to(dtype, copy=True).requires_grad_()
    form(rounded).backward()
    gradient = rounded.grad.double()
    return gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-300)


def errors(gap, dtype, draws=200, seed=0):
    """Median relative error of each form's direction at a gap."""
    generator = torch.Generator().manual_seed(seed)
    negatives = 0.7 * torch.randn(draws, 15, generator=generator, dtype=torch.float64)
    logits = torch.cat([negatives.mean(dim=1, keepdim=True) + gap, negatives], dim=1)
    # The question is arithmetic, not storage: the logits themselves are exact in the precision at hand.
    logits = logits.to(dtype).double()
    exact = direction(flat, logits, torch.float64)  # InfoNCE's direction too, as its gradient is q times this one
    return {name: (direction(form, logits, dtype) - exact).norm(dim=1).median().item() for name, form in FORMS.items()}


def main():
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "graphcl", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    colours = dict(zip(FORMS, ("#D55E00", "#0072B2", "#009E73"), strict=True))
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    gaps = range(0, 31)
    for axis, (name, dtype) in zip(axes, DTYPES.items(), strict=True):
        found = [errors(gap, dtype) for gap in gaps]
        for form in FORMS:
            style = "--" if form == "FlatNCE" else "-"  # so that two equal curves are both seen
            axis.plot(gaps, [max(each[form], 1e-9) for each in found], style, color=colours[form], label=form, lw=2)
        for gap in (10, 16, 20):
            print(f"{name}, gap {gap}:", ", ".join(f"{form} {found[gap][form]:.1e}" for form in FORMS))
        axis.set(title=name, yscale="log", ylim=(1e-8, 3), xlabel="gap g between positive and mean negative logit")
        axis.axhline(1, color="#999999", lw=0.8)
        axis.grid(axis="y", color="#DDDDDD", lw=0.5)
    axes[0].set_ylabel("relative error of the gradient's direction")
    axes[0].text(0.3, 1.15, "noise", color="#666666", va="bottom")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
