"""Score the rows of nodes by logistic regression on the public split of a data set."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from graphcl.arguments import Costs, Seed
from graphcl.evaluate.folds import C_GRID, class_indices, embedding, unit_rows
from graphcl.evaluate.nodes.random_splits import linear_probe
from graphcl.evaluate.on_split import split_parts
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators


@evaluators.register("public_split", needs="split", rows="nodes", protocol="the public split, C by validation")
def public_split(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    split: Mapping[str, Tensor | np.ndarray],
    seed: Seed = 0,
    grid: Costs = C_GRID,
) -> FoldScores:
    """Return the test accuracy in percent of logistic regression on the public split, such as Planetoid's.

    Rows are scaled to norm 1. C is chosen by the validation part, see `graphcl.evaluate.nodes.random_splits`.

    Differs: DGI reports the mean over 50 fits of the classifier by stochastic gradients, without a choice of C.

    Args:
        h: rows of the nodes `[n, H]`.
        y: class of each node `[n]`.
        split: indices of the nodes in the parts `train`, `valid` and `test`.
        seed: seed of the training run, copied into the result; the probe itself is not random.
        grid: candidates for C, see `graphcl.evaluate.svm`.

    References:
        Yang, Cohen and Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016 (arXiv
        1603.08861). Velickovic et al., "Deep Graph Infomax", ICLR 2019, Section 4.2 (arXiv 1809.10341).
    """
    h = embedding(h)
    _, labels = class_indices(y, len(h))
    parts = split_parts(split, len(h))
    indices = parts["train"], parts["valid"], parts["test"]
    accuracy, chosen, inner = linear_probe(unit_rows(h), labels, indices, [float(c) for c in grid])
    return FoldScores(seed, (accuracy,), (chosen,), (inner,), 1, 1)
