"""ADNCE's weights over similarity: python docs/figures/weights.py writes weights.svg to this folder."""

from pathlib import Path

import torch

from graphcl.report.style import panels, style

TEMPERATURE = 0.2
SETTINGS = [(0.7, 1.0), (0.7, 0.3), (0.5, 0.2), (0.3, 0.15)]


def weight(c, mu, sigma):
    """Return the Gaussian weight of a negative, not normalised."""
    return torch.exp(-((c - mu) ** 2) / (2 * sigma**2))


def hardest_push(mu, sigma, temperature):
    """Return c* = mu + sigma^2 / tau, the maximum of e^{c / tau} g(c); above 1 the hardest negatives get most."""
    return mu + sigma**2 / temperature


@style()
def main():
    figure, axes = panels(2, 4, 3.6)
    c = torch.linspace(-1, 1, 101)
    colours = ("#000000", "#0072B2", "#D55E00", "#009E73")
    for (mu, sigma), colour in zip(SETTINGS, colours, strict=True):
        best = hardest_push(mu, sigma, TEMPERATURE)
        told = f"c* = {best:.2f}" + ("" if best < 1 else ", beyond 1")
        axes[0].plot(c, weight(c, mu, sigma), color=colour, lw=2, label=f"mu {mu}, sigma {sigma}: {told}")
        push = (c / TEMPERATURE).exp() * weight(c, mu, sigma)
        axes[1].plot(c, push / push.max(), color=colour, lw=2)
        if best < 1:
            axes[1].plot(best, 1, "o", color=colour, ms=6)
        print(f"mu {mu}, sigma {sigma}: {told}; the hardest are weighted down if sigma^2 < tau (1 - mu):", best < 1)
    plain = (c / TEMPERATURE).exp()
    axes[1].plot(c, plain / plain.max(), ":", color="#666666", lw=1.5, label="InfoNCE")
    axes[0].set(title="weight g(c)", xlabel="cosine c of a negative", ylim=(0, 1.05))
    axes[1].set(title=f"push g(c) exp(c / tau), tau = {TEMPERATURE}", xlabel="cosine c of a negative", ylim=(0, 1.05))
    for axis in axes:
        axis.set_xticks((-1, -0.5, 0, 0.5, 1))
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
