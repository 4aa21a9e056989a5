"""Score an embedding without labels: augmented copies of a graph should find it among all graphs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import Seed
from graphcl.errors import InputError
from graphcl.evaluate.folds import as_array, embedding, unit_rows
from graphcl.evaluate.graphs.retrieval import standardised
from graphcl.evaluate.ranking import cosines, rank_by
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators

NOTE = (
    "recall@1 does not tell which row to use: on ten labelled sets, its best row was the most accurate in 2, by chance "
    "2.5 (docs/studies/tried.md); an effective rank near 1 means a collapsed embedding."
)
"""Printed below the scores; the figures are those of `docs/studies/tried.md`."""


@evaluators.register("instance", needs="copies", rows="graphs", task="copies", usual="copies", note=NOTE)
def instance(
    h: Tensor | np.ndarray, copies: Tensor | np.ndarray, source: Tensor | np.ndarray, *, seed: Seed = 0
) -> FoldScores:
    r"""Return the recall at 1 in percent of finding a graph by augmented copies of it, by cosine similarity.

    $$\text{recall@1} = \frac{100}{m} \sum_{q=1}^{m}
      \frac{[c_{q s_q} = \max_i c_{qi}]}{|\{i : c_{qi} = c_{q s_q}\}|}, \qquad
      c_{qi} = \frac{\tilde z_q \cdot z_i}{\|\tilde z_q\| \|z_i\|}$$

    where $z_i$ is the embedding of graph i and $\tilde z_q$ that of copy q of graph $s_q$, both with columns
    standardised by mean and deviation over the n graphs; columns that are constant over these are dropped. Without
    this, the sizes of the graphs would decide the cosines of counts, such as graph statistics. Graphs of equal cosine
    are put in a random order, and the expected value is returned: k graphs with the same embedding share one hit, and
    a constant embedding scores 100 / n. Cosines are compared after rounding, as in `rank_queries`. The score says
    nothing about classes: `docs/studies/tried.md` compares its order of embeddings with that of accuracies.

    Time: O(n m D). Memory: about 32 (n + m) D bytes.

    Args:
        h: embeddings of the graphs `[n, D]`, any float dtype, any device; converted to float64.
        copies: embeddings of the copies `[m, D]`.
        source: index in `h` of each copy's graph, `[m]`.
        seed: seed of the copies, to record.

    Returns:
        `FoldScores` with the metric `recall_at_1` and one fold; `inner` repeats the score.

    Raises:
        InputError: `source` does not hold an index in `h` for each copy.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
        >>> instance(h, 0.9 * h, torch.arange(3)).mean
        100.0

    Reference: Z. Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018
    (each graph is its own class).
    """
    rows, others, of = embedding(h), embedding(copies), as_array("source", source, "iu", "whole numbers")
    n, m = len(rows), len(others)
    if of.shape != (m,) or not ((of >= 0) & (of < n)).all():
        raise InputError(f"`source` must hold the index of one of the {n} rows of `h` for each of the {m} copies.")
    z = torch.from_numpy(unit_rows(standardised(np.concatenate([rows, others]), rows)))

    ranked = rank_by(cosines(z, z[:n]), np.concatenate([np.arange(n), of]), np.arange(n, n + m), np.arange(n))
    recall = (100 * float(ranked.values["recall_at_1"].mean()),)
    return FoldScores(seed, recall, (0.0,), recall, 1, 1, "recall_at_1")
