"""Precision of FlatNCE: python docs/figures/precision.py writes precision.svg to this folder and prints its numbers.

Error of the direction of an anchor's gradient against float64; the positive exceeds the mean negative by g logits. 15
negatives with standard deviation 0.7, median of 200 draws, with PyTorch operations in the named precision.
"""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, softplus

from graphcl.report.style import panels, style


def textbook(logits):
    """Compute InfoNCE in the usual form: cross-entropy of all logits against the first."""
    return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long), reduction="sum")


def softplus_form(logits):
    """Compute InfoNCE in the form of this library: softplus of the negatives' logsumexp minus the positive."""
    return softplus(logits[:, 1:].logsumexp(dim=1) - logits[:, 0], threshold=40).sum()


def flat(logits):
    """Compute FlatNCE: the negatives' logsumexp minus the positive."""
    return (logits[:, 1:].logsumexp(dim=1) - logits[:, 0]).sum()


FORMS = {"InfoNCE, textbook": textbook, "InfoNCE, softplus form": softplus_form, "FlatNCE": flat}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def direction(form, logits, dtype):
    """Return unit gradients `[rows, 16]` by the logits, computed in `dtype`."""
    rounded = logits.to(dtype, copy=True).requires_grad_()
    form(rounded).backward()
    gradient = rounded.grad.double()
    return gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-300)


def errors(gap, dtype, draws=200, seed=0):
    """Return the median relative error of each form's direction at a gap."""
    generator = torch.Generator().manual_seed(seed)
    negatives = 0.7 * torch.randn(draws, 15, generator=generator, dtype=torch.float64)
    logits = torch.cat([negatives.mean(dim=1, keepdim=True) + gap, negatives], dim=1)
    # Round the logits first: only the arithmetic is compared, not their storage.
    logits = logits.to(dtype).double()
    exact = direction(flat, logits, torch.float64)  # also the direction of InfoNCE, whose gradient is q times this one
    return {name: (direction(form, logits, dtype) - exact).norm(dim=1).median().item() for name, form in FORMS.items()}


@style()
def main():
    colours = dict(zip(FORMS, ("#D55E00", "#0072B2", "#009E73"), strict=True))
    figure, axes = panels(2, 4, 3.2)
    gaps = range(0, 31)
    for axis, (name, dtype) in zip(axes, DTYPES.items(), strict=True):
        found = [errors(gap, dtype) for gap in gaps]
        for form in FORMS:
            line = "--" if form == "FlatNCE" else "-"  # so that two equal curves are both visible
            axis.plot(gaps, [max(each[form], 1e-9) for each in found], line, color=colours[form], label=form, lw=2)
        for gap in (10, 16, 20):
            print(f"{name}, gap {gap}:", ", ".join(f"{form} {found[gap][form]:.1e}" for form in FORMS))
        axis.set(title=name, yscale="log", ylim=(1e-8, 3), xlabel="gap g between positive and mean negative logit")
        axis.axhline(1, color="#999999", lw=0.8)
        axis.grid(axis="y", color="#DDDDDD", lw=0.5)
    axes[0].set_ylabel("relative error of the gradient's direction")
    axes[0].text(0.3, 1.15, "noise", color="#666666", va="bottom")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
