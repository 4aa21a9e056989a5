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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import Count, FoldCount, Seed
from graphcl.errors import InputError
from graphcl.evaluate.folds import OnFold, OnTest, Part, embedding, make_folds, unit_rows
from graphcl.evaluate.on_split import check_groups_apart, group_split, split_parts
from graphcl.evaluate.ranking import (
    QueryScores,
    Similarity,
    cosines,
    group_numbers,
    rank_by,
    rank_pairs,
    whole_numbers,
)
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators


@dataclass(frozen=True)
class Kernel:
    """Similarities of n graphs, which `retrieval` scores instead of the cosines of an embedding.

    Args:
        similarity: function from a setting and the rows of the training part to the similarity of graphs, see
            `graphcl.evaluate.ranking.rank_by`.
        settings: the settings, of which the validation part chooses one; the first of equally good ones.
        n: number of graphs.
    """

    similarity: Callable[[Any, np.ndarray], Similarity]
    settings: Sequence[Any]
    n: int


Rank = Callable[[Similarity, np.ndarray, Tensor | None], QueryScores]
"""Function from a similarity, the rows of a part and the place of each row to the figures of the part's queries."""


@evaluators.register(
    "retrieval",
    needs="groups or labels",
    forms="dense sparse kernel",
    task="search",
    usual="groups",
    chooses="scale",
)
def retrieval(
    h: Tensor | np.ndarray | Kernel,
    y: Tensor | np.ndarray | None = None,
    *,
    seed: Seed = 0,
    group: Tensor | np.ndarray | None = None,
    pairs: Tensor | np.ndarray | None = None,
    targets: Tensor | np.ndarray | None = None,
    queries: Tensor | np.ndarray | None = None,
    place: Tensor | np.ndarray | None = None,
    split: Mapping[str, Any] | None = None,
    folds: FoldCount = 10,
    inner_folds: FoldCount = 5,
    workers: Count | None = None,
    on_fold: OnFold | None = None,
    on_test: OnTest | None = None,
) -> FoldScores:
    r"""Return the mean reciprocal rank in percent of each query's first relevant graph, by cosine similarity.

    $$\text{MRR} = \frac{100}{|Q|} \sum_{q \in Q} \frac{1}{\rho_q}$$

    where $\rho_q$ is the rank of the first graph of the same group as query q, or without groups, of the same class.
    Protocol: `graphcl.evaluate.graphs.retrieval`. Ties, queries that are not scored and the other figures:
    `graphcl.evaluate.ranking.rank_queries`.

    Args:
        h: embedding `[n, D]`, any float dtype, any device, converted to float64; or a sparse matrix of SciPy, whose
            columns are not standardised; or a `Kernel`.
        y: class of each graph `[n]`; None if `group` is given, which then decides.
        seed: seed of the folds; with groups, only recorded.
        group: group of each graph `[n]`, strings or whole numbers, -1 for none; default: relevance by class.
        pairs: instead of groups, rows of each query and its target, `[2, P]`; queries of a part search its `targets`.
        targets: rows that are candidates, with `pairs`; default: the targets of the pairs.
        queries: rows that each target searches for its queries, with `pairs`; default: no search backwards.
        place: with groups or pairs, place of each row `[n]`, whole numbers; a query then searches its own place only,
            and `mrr_all` and `recall_at_1_all` are the figures of the same setting in all places.
        split: row indices of the parts `train`, `valid` and `test`, with no group on two parts; default: random parts
            of `graphcl.evaluate.on_split.group_split`, equal for every seed.
        folds: number of outer folds, by class only; reduced to the size of the smallest class.
        inner_folds: number of inner folds, by class only; reduced if a class is too small.
        workers: number of threads, by class only; one per available core by default.
        on_fold: called with the finished and the total number of inner folds, for a progress bar.
        on_test: called with the queries of the test part (each outer fold), and the reciprocal rank of each.

    Returns:
        `FoldScores` with the metric `mrr`; `chosen` is 1 for standardised columns, else 0, or the setting of a kernel;
        `figures` holds the other figures. With groups there is one outer and one inner fold, and `figures` holds the
        interval of the score, `mrr_low` and `mrr_high`, by a bootstrap over `mrr_units` groups or connected pairs. With
        `queries`, `mrr_back`, `recall_at_1_back`, `mrr_back_low` and `mrr_back_high` are those of the search backwards,
        by the same setting.

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
    kernel = h if isinstance(h, Kernel) else cosine_kernel(embedding(h, sparse=True))
    pairs, targets, queries, places = (
        None if rows is None else whole_numbers(name, rows)
        for name, rows in (("pairs", pairs), ("targets", targets), ("queries", queries), ("place", place))
    )
    if places is not None and places.shape != (kernel.n,):
        raise InputError(f"`place` must hold one number for each of {kernel.n} rows, got shape {list(places.shape)}.")
    rank: Rank | None = None
    back: Rank | None = None
    if pairs is not None:
        if split is None:
            raise InputError("retrieval of `pairs` needs their `split`; pass the rows of train, valid and test.")
        rank, parts = _by_pairs(kernel.n, pairs, targets), split_parts(split, kernel.n)
        back = None if queries is None else _by_pairs(kernel.n, pairs.flip(0), queries)
    elif group is not None:
        numbers = group_numbers(group, kernel.n)
        parts = group_split(numbers) if split is None else split_parts(split, kernel.n)
        check_groups_apart(parts, numbers)
        rank = _by_group(numbers)
    if rank is not None:
        score = _on_parts(kernel, rank, back, parts, places, seed, on_test)
        if on_fold is not None:
            on_fold(1, 1)
        return score
    if y is None:
        raise InputError("retrieval needs groups or classes; give the graphs a `group`, or `y`.")
    rows = np.arange(kernel.n)[:, None]
    data, figures = make_folds(rows, y, seed, folds, inner_folds, workers, on_fold, on_test), {}

    def reciprocal_ranks(part: Part, candidates: Sequence[Any]) -> list[np.ndarray]:
        train, held = part
        rankings = [rank_by(kernel.similarity(setting, train), data.labels, held, train) for setting in candidates]
        if len(candidates) == 1:  # the outer fold, with the setting that was chosen
            figures[held.tobytes()] = rankings[0].percent()
        return [ranking.values["mrr"].numpy() for ranking in rankings]

    scores = data.scores(kernel.settings, reciprocal_ranks)
    of_folds = [figures[held.tobytes()] for _, held in data.outer]
    means = {name: float(np.mean([fold[name] for fold in of_folds])) for name in of_folds[0] if name != "mrr"}
    return replace(scores, chosen=tuple(map(float, scores.chosen)), metric="mrr", figures=means)


def cosine_kernel(rows: Any) -> Kernel:
    """Return the cosines of `rows [n, D]` as a kernel; its setting is whether to standardise the columns.

    Columns of a sparse matrix are not standardised.
    """
    if not isinstance(rows, np.ndarray):
        return sparse_kernel([unit_rows(rows)], np.arange(rows.shape[0]))

    def similarity(scale: bool, train: np.ndarray) -> Similarity:
        return cosines(torch.from_numpy(unit_rows(standardised(rows, rows[train]) if scale else rows)))

    return Kernel(similarity, (False, True), len(rows))


def sparse_kernel(rows: Sequence[Any], place: np.ndarray) -> Kernel:
    """Return inner products of sparse matrices as a kernel, whose setting is the number of the matrix.

    `place [n]` is the row of each graph in the matrices.
    """

    def of(number: int, _: np.ndarray) -> Similarity:
        def similarity(queries: Tensor, candidates: Tensor) -> Tensor:
            one, two = rows[number][place[queries.numpy()]], rows[number][place[candidates.numpy()]]
            return torch.from_numpy((one @ two.T).toarray())

        return similarity

    return Kernel(of, range(len(rows)), len(place))


def standardised(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return `rows [n, D]` with columns standardised by mean and deviation over `like [m, D]`; constant ones are 0."""
    mean, deviation = like.mean(0), like.std(0)
    # a deviation that is only rounding would make a constant column the largest
    scaled: np.ndarray = (rows - mean) / np.where(deviation > 1e-9 * np.abs(mean), deviation, np.inf)
    return scaled


def _by_group(numbers: Tensor) -> Rank:
    """Return the function that ranks the rows of a part for each other."""
    return lambda similarity, rows, place: rank_by(similarity, numbers, rows, rows, len(numbers), place)


def _by_pairs(n: int, pairs: Tensor, targets: Tensor | None) -> Rank:
    """Return the function that ranks the targets in a part for the queries of the part's pairs."""
    if pairs.dim() != 2 or len(pairs) != 2 or not 0 <= int(pairs.min()) <= int(pairs.max()) < n:
        shape = list(pairs.shape)
        raise InputError(f"`pairs` must hold the rows of queries and targets, [2, P] below {n}, got {shape}.")
    candidates = pairs[1].unique() if targets is None else targets

    def rank(similarity: Similarity, rows: np.ndarray, place: Tensor | None) -> QueryScores:
        part = torch.zeros(n, dtype=torch.bool).index_fill(0, torch.from_numpy(rows), True)
        inside, among = pairs[:, part[pairs].all(dim=0)], candidates[part[candidates]]
        back = inside.flip(0)  # pairs are positives of each other, whichever is listed as the query
        relevant = torch.cat([inside, back[:, torch.isin(back[0], inside[0])]], dim=1).unique(dim=1)
        return rank_pairs(similarity, relevant, among, itself=True, place=None if place is None else (place, place))

    return rank


def _on_parts(
    kernel: Kernel,
    rank: Rank,
    back: Rank | None,
    parts: Mapping[str, np.ndarray],
    place: Tensor | None,
    seed: int,
    on_test: OnTest | None,
) -> FoldScores:
    """Return the scores of `retrieval` on a split; raise InputError if a part has no query."""

    def ranked(setting: Any, part: str, place: Tensor | None, rank: Rank = rank) -> QueryScores:
        try:
            return rank(kernel.similarity(setting, parts["train"]), parts[part], place)
        except InputError as error:
            raise InputError(f"{part} part of {len(parts[part])} graphs: {error}") from None

    inner = [ranked(setting, "valid", place).percent()["mrr"] for setting in kernel.settings]
    best = int(np.argmax(inner))
    chosen = kernel.settings[best]
    test = ranked(chosen, "test", place)
    if on_test is not None:
        on_test(test.queries.numpy(), test.values["mrr"].numpy())
    assert test.units is not None
    figures, units = test.percent(), len(test.units.unique())
    mrr = figures.pop("mrr")
    if units > 1:  # one unit tells nothing of the spread
        low, high = test.intervals()["mrr"]
        figures |= {"mrr_low": low, "mrr_high": high, "mrr_units": float(units)}
    if back is not None:
        reverse = ranked(chosen, "test", place, back)
        figures |= {f"{name}_back": reverse.percent()[name] for name in ("mrr", "recall_at_1")}
        if units > 1:
            figures |= dict(zip(("mrr_back_low", "mrr_back_high"), reverse.intervals()["mrr"], strict=True))
    if place is not None:
        of_all = ranked(chosen, "test", None).percent()
        figures |= {f"{name}_all": of_all[name] for name in ("mrr", "recall_at_1")}
    return FoldScores(seed, (mrr,), (float(chosen),), (inner[best],), 1, 1, "mrr", figures=figures)
