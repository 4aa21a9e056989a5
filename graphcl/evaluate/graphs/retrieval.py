"""Score a frozen embedding by retrieval: graphs of a query's group, or class, should be its nearest neighbours.

- With groups: a split puts whole groups into a training, a validation and a test part. The queries are the graphs of
  the test part, their candidates the other graphs of the test part. The encoder is trained on the training part only.
  Training graphs are no candidates: training has pushed them apart and test graphs not, so they would be distractors
  of another kind than those that a user's new graphs meet.
- Without groups: relevant are graphs of the same class. On each of the folds of `graphcl.evaluate.svm`, the queries are
  the held-out graphs, their candidates the graphs of the other folds.
- Setting: cosines of the embedding as it is, or with columns standardised by the mean and deviation over the training
  part, whichever has the higher mean reciprocal rank on the validation part (inner folds). Of equal ones, the first.
- Score: the mean reciprocal rank in percent over the queries of the test part (outer fold); see
  `graphcl.evaluate.ranking` for its definition, ties, and the other figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import Count, FoldCount, Seed, checked
from graphcl.errors import InputError
from graphcl.evaluate.folds import OnFold, Part, embedding, make_folds, unit_rows
from graphcl.evaluate.ranking import Similarity, cosines, group_numbers, rank_by
from graphcl.evaluate.scores import FoldScores
from graphcl.evaluate.splits import check_groups_apart, group_split, split_parts

SimilarityOf = Callable[[Any, np.ndarray], Similarity]
"""Function from a setting and the rows of the training part to the similarity of graphs."""


@checked
def retrieval(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray | None,
    *,
    seed: Seed = 0,
    group: Tensor | np.ndarray | None = None,
    split: Mapping[str, Any] | None = None,
    folds: FoldCount = 10,
    inner_folds: FoldCount = 5,
    workers: Count | None = None,
    on_fold: OnFold | None = None,
) -> FoldScores:
    r"""Return the mean reciprocal rank in percent of each query's first relevant graph, by cosine similarity.

    $$\text{MRR} = \frac{100}{|Q|} \sum_{q \in Q} \frac{1}{\rho_q}$$

    where $\rho_q$ is the rank of the first graph of the same group as query q, or without groups, of the same class.
    Protocol: `graphcl.evaluate.graphs.retrieval`. Ties, queries that are not scored and the other figures:
    `graphcl.evaluate.ranking.rank_queries`.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; converted to float64.
        y: class of each graph `[n]`; None if `group` is given, which then decides.
        seed: seed of the folds; with groups, only recorded.
        group: group of each graph `[n]`, strings or whole numbers, -1 for none; default: relevance by class.
        split: row indices of the parts `train`, `valid` and `test`, with no group on two parts; default: random parts
            of `graphcl.evaluate.splits.group_split`, equal for every seed.
        folds: number of outer folds, by class only; reduced to the size of the smallest class.
        inner_folds: number of inner folds, by class only; reduced if a class is too small.
        workers: number of threads, by class only; one per available core by default.
        on_fold: called with the finished and the total number of inner folds, for a progress bar.

    Returns:
        `FoldScores` with the metric `mrr`; `chosen` is 1 for standardised columns, else 0; `figures` holds the other
        figures. With groups there is one outer and one inner fold.

    Raises:
        InputError: an argument is invalid, a group is on two parts, a part has no query, or a class is too small.

    Example:
        >>> h, y = np.tile([[0.0, 1.0], [1.0, 0.0]], (6, 1)), np.tile([0, 1], 6)
        >>> retrieval(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)
        >>> h = np.repeat(np.random.default_rng(0).normal(size=(100, 8)), 2, axis=0)
        >>> retrieval(h, None, group=np.repeat(np.arange(100), 2)).mean
        100.0

    Reference: Musgrave et al., "A Metric Learning Reality Check", ECCV 2020 (settings by validation groups).
    """
    if group is not None:
        rows = embedding(h)
        group = group_numbers(group, len(rows))
        parts = group_split(group) if split is None else split_parts(split, len(rows))
        found = retrieval_on_parts(cosines_of(rows), (False, True), group, parts, seed=seed, n=len(rows))
        if on_fold is not None:
            on_fold(1, 1)
        return found
    if y is None:
        raise InputError("retrieval needs groups or classes; give the graphs a `group`, or `y`.")
    data = make_folds(h, y, seed, folds, inner_folds, workers, on_fold)
    similarity, figures = cosines_of(data.h), dict[bytes, dict[str, float]]()

    def reciprocal_ranks(part: Part, candidates: Sequence[bool]) -> list[float]:
        train, held = part
        ranked = [rank_by(similarity(scale, train), data.labels, held, train) for scale in candidates]
        if len(candidates) == 1:  # the outer fold, with the setting that was chosen
            figures[held.tobytes()] = ranked[0].percent()
        return [float(each.values["mrr"].mean()) for each in ranked]

    scores = data.scores([False, True], reciprocal_ranks)
    of_fold = [figures[held.tobytes()] for _, held in data.outer]
    means = {name: float(np.mean([each[name] for each in of_fold])) for name in of_fold[0] if name != "mrr"}
    chosen = tuple(float(each) for each in scores.chosen)
    return dataclasses.replace(scores, chosen=chosen, metric="mrr", figures=means)


def cosines_of(rows: np.ndarray) -> SimilarityOf:
    """Return the function from whether to standardise columns, and the training rows, to cosines of `rows [n, D]`."""

    def similarity(scale: bool, train: np.ndarray) -> Similarity:
        return cosines(torch.from_numpy(unit_rows(standardised(rows, rows[train]) if scale else rows)))

    return similarity


def standardised(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return `rows [n, D]` with columns standardised by mean and deviation over `like [m, D]`; constant ones are 0."""
    mean, deviation = like.mean(0), like.std(0)
    # a deviation that is only rounding would make a constant column the largest
    scaled: np.ndarray = (rows - mean) / np.where(deviation > 1e-9 * np.abs(mean), deviation, np.inf)
    return scaled


def retrieval_on_parts(
    similarity: SimilarityOf,
    grid: Sequence[Any],
    group: Tensor | np.ndarray,
    parts: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    n: int | None = None,
) -> FoldScores:
    """Return the scores of `retrieval` on a split by group, for any similarity of graphs, such as a kernel.

    The first of equally good settings in `grid`, by the mean reciprocal rank on the validation part, is chosen.

    Args:
        similarity: function from a setting and the training rows to the similarity of graphs, see `rank_by`.
        grid: settings.
        group: group of each graph `[n]`, -1 for none.
        parts: row indices of the parts `train`, `valid` and `test`.
        seed: seed to record.
        n: number of graphs; default: the length of `group`.

    Raises:
        InputError: a group is on two parts, or a part has no query.
    """

    def ranked(setting: Any, part: str) -> dict[str, float]:
        rows = parts[part]
        try:
            return rank_by(similarity(setting, parts["train"]), group, rows, rows, n).percent()
        except InputError as error:
            raise InputError(f"{part} part of {len(rows)} graphs: {error}") from None

    check_groups_apart(parts, group)
    inner = [ranked(setting, "valid")["mrr"] for setting in grid]
    best = int(np.argmax(inner))
    figures = ranked(grid[best], "test")
    mrr = (figures.pop("mrr"),)
    return FoldScores(seed, mrr, (float(grid[best]),), (inner[best],), 1, 1, "mrr", figures=figures)
