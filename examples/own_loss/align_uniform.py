"""A new loss, complete: python examples/own_loss/align_uniform.py

Only the formula for one anchor is needed; `pairwise` adds views, negatives, queue, weights, engines and checks. In
`graphcl/losses/formulas/`, this file adds `--loss align_uniform` and its help text, and an entry in
`tests/losses/table.py` adds its contract tests. As a script, it trains for ten epochs on the synthetic data set. Expect
10 points more after training.
"""

from torch import Tensor

from graphcl.extend import Pairs, Positive, linear, pairwise


@pairwise("align_uniform")
def align_uniform(pairs: Pairs, *, t: Positive = 2.0, uniformity_weight: Positive = 1.0) -> Tensor:
    r"""Compute alignment and uniformity: positives coincide, negatives spread over the sphere.

    $$L_i = (D_i^+)^2 + \lambda \log \frac1M \sum_j e^{-t D_{ij}^2}, \qquad D^2 = 2 - 2 c$$

    Differs: the paper has one logarithm over all pairs; here each anchor has its own.

    Args:
        pairs: anchors, positives and negatives.
        t: sharpness of the Gaussian kernel, > 0.
        uniformity_weight: lambda, > 0.

    Returns:
        A scalar, or `[A]`. With all rows equal: 0.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> abs(round(float(align_uniform(z, z)), 3))  # all rows equal
        0.0

    References:
        Wang and Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
        Hypersphere", ICML 2020 (arXiv 2005.10242).
    """
    # -t D^2 = 2 t c - 2 t is a polynomial of the cosine, which both engines can sum.
    (total,) = pairs.logsumexp(linear(2 * t))
    uniformity = total - 2 * t - pairs.count.log()
    return 2 - 2 * pairs.positive + uniformity_weight * uniformity


def main() -> None:
    import torch

    from graphcl import (
        GIN,
        ContrastiveModel,
        Loss,
        NodeDrop,
        ResidentLoader,
        Subgraph,
        TwoViews,
        embed,
        load_dataset,
        svm,
        train,
    )

    torch.manual_seed(0)
    dataset = load_dataset("synthetic")
    loader = ResidentLoader(dataset, batch_size=128, shuffle=True, generator=torch.Generator().manual_seed(0))
    whole = ResidentLoader(dataset, batch_size=1024)
    model = ContrastiveModel(GIN(dataset.num_features))
    untrained, y = embed(model, whole)
    method = TwoViews(model, Loss("align_uniform", t=2.0))
    train(method, loader, NodeDrop(0.2), Subgraph(0.2), epochs=10, generator=torch.Generator().manual_seed(1))
    trained, y = embed(model, whole)
    print(f"SVM accuracy: untrained {svm(untrained, y).mean:.1f} %, trained {svm(trained, y).mean:.1f} %")


if __name__ == "__main__":
    main()
