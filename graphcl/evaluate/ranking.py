"""Score rankings of graphs: recall, reciprocal rank and average precision, with ties counted in expectation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import Count, checked
from graphcl.errors import InputError
from graphcl.evaluate.folds import as_array, embedding, unit_rows
from graphcl.evaluate.scores import bootstrap_means

Similarity = Callable[[Tensor, Tensor], Tensor]
"""Function from the indices of t queries and m candidates to their similarities `[t, m]`, in float64."""
FIGURES = ("mrr", "mrr_at_10", "recall_at_1", "recall_at_10", "map", "ndcg_at_10")
"""Names of the figures of a ranking."""
CUTOFF = 10
"""Ranks that the figures `_at_10` look at."""
_RESOLUTION = 2.0**32
"""Similarities are rounded to multiples of 2^-32, because a matrix product rounds equal pairs differently."""
_TILE = 2**22
"""Similarities that are computed at a time."""
_FEW = 16
"""Largest number of distinct scores of relevant candidates that are compared one by one."""


@dataclass(frozen=True)
class QueryScores:
    """Figures of each query of a ranking, see `rank_queries`.

    Attributes:
        queries: indices of the queries that were scored, `[q]`.
        values: name in `FIGURES` -> value of each query, `[q]`, float64 in [0, 1]; expected values if there are ties.
        units: number of each query's unit, `[q]`: its group, or all that its pairs connect; default: a query each.
    """

    queries: Tensor
    values: Mapping[str, Tensor]
    units: Tensor | None = None

    def percent(self) -> dict[str, float]:
        """Return the mean over queries of each figure, in percent."""
        return {name: 100 * float(values.mean()) for name, values in self.values.items()}

    def intervals(self, seed: int = 0, draws: int = 1000) -> dict[str, tuple[float, float]]:
        """Return the bootstrap interval of each figure's mean, in percent: from 2.5 to 97.5 % of `draws`.

        Whole units are drawn, as queries of a unit rank each other. With fewer than `FEW_UNITS` the interval is too
        narrow, the more so the nearer the mean is to 0 or 100 %; with one unit it has no width.

        Example:
            >>> QueryScores(torch.arange(4), {"mrr": torch.tensor([1.0, 0.5, 0.5, 0.25])}).intervals()
            {'mrr': (31.25, 87.5)}
        """
        units = self.queries if self.units is None else self.units
        values = torch.stack([*self.values.values()], dim=1).double().numpy()
        means = bootstrap_means(values, units.numpy(), draws, seed)
        ends = np.quantile(100 * means, [0.025, 0.975], axis=0).T.tolist()
        return {name: (low, high) for name, (low, high) in zip(self.values, ends, strict=True)}


def rank_queries(
    h: Tensor | np.ndarray,
    group: Tensor | np.ndarray,
    queries: Tensor | np.ndarray | None = None,
    candidates: Tensor | np.ndarray | None = None,
) -> QueryScores:
    r"""Rank the candidates of every query by cosine similarity, and return the figures of each query.

    $$\text{RR} = \frac{1}{\rho_1}, \qquad
      \text{RR@10} = \frac{[\rho_1 \le 10]}{\rho_1}, \qquad
      \text{recall@}k = [\rho_1 \le k], \qquad
      \text{AP} = \frac{1}{R} \sum_{i=1}^{R} \frac{i}{\rho_i}$$

    where $\rho_1 < \dots < \rho_R$ are the ranks, from 1, of the R relevant candidates: those of the query's group.
    Means over queries are the mean reciprocal rank (`mrr`, over all ranks, and `mrr_at_10`), `recall_at_1`,
    `recall_at_10`, the mean average precision (`map`) and `ndcg_at_10`, the sum of $1 / \log_2(1 + \rho_i)$ over the
    relevant among the first ten, divided by its largest possible value. A query is never its own candidate. Queries
    without a group, and queries without a relevant candidate, are not scored.

    Candidates of equal similarity are put in a random order, and the expected value is returned. Let g candidates tie
    behind s better ones, r of them relevant. The first relevant one has the rank s + j with probability
    $\binom{g-j}{r-1} / \binom{g}{r}$. A place is relevant with probability r / g, and then $(j - 1) \frac{r-1}{g-1}$ of
    the j - 1 tied places above it are expected to be relevant, so that the tied candidates add

    $$\frac{r}{g} \big(g c + (b + 1 - c (s + 1)) (H_{s+g} - H_s)\big), \qquad c = \frac{r - 1}{g - 1},$$

    to the sum in AP, where b relevant candidates are better and $H_k = \sum_{i \le k} 1/i$. Similarities are compared
    after rounding to multiples of 2^-32. A row of zeros has cosine 0 with all rows.

    Differs: with several relevant candidates, recall@k is the fraction of queries with at least one among the first k,
    as in metric learning (Oh Song et al. 2016); elsewhere this is called success@k, hit rate or accuracy@k.

    Memory: 8 n D bytes, and some 100 MB for any number of graphs, as queries are scored in tiles.

    Args:
        h: embeddings `[n, D]`, any float dtype, any device.
        group: group of each graph `[n]`, strings or whole numbers; -1 or "": no group, so the graph is a candidate but
            never relevant.
        queries: indices of the queries; default: all graphs.
        candidates: indices of the candidates; default: all graphs.

    Returns:
        The figures of each query that was scored, in the order of `queries`.

    Raises:
        InputError: `h`, `group` or the indices are invalid, or no query has a relevant candidate.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.1], [0.0, 1.0]])
        >>> ranked = rank_queries(h, torch.tensor([0, 0, -1, -1]))
        >>> ranked.queries, ranked.values["mrr"]  # graphs 1 and 2 tie for graph 0, and graph 2 is nearest of 1
        (tensor([0, 1]), tensor([0.7500, 0.5000], dtype=torch.float64))

    References: McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the Presence
    of Tied Scores", ECIR 2008. Oh Song et al., "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR
    2016 (recall).
    """
    rows = torch.from_numpy(unit_rows(embedding(h))).to(h.device if isinstance(h, Tensor) else "cpu")
    return rank_by(cosines(rows), group, queries, candidates, len(rows))


def cosines(rows: Tensor, others: Tensor | None = None) -> Similarity:
    """Return the similarity function of unit rows `[n, D]`: the inner product; of candidates in `others [m, D]`."""
    targets = rows if others is None else others

    def similarity(queries: Tensor, candidates: Tensor) -> Tensor:
        chosen = targets if len(candidates) == len(targets) else targets[candidates]  # all rows need no copy
        return rows[queries] @ chosen.T

    return similarity


@checked
def rank_by(
    similarity: Similarity,
    group: Tensor | np.ndarray,
    queries: Tensor | np.ndarray | None = None,
    candidates: Tensor | np.ndarray | None = None,
    n: Count | None = None,
    place: Tensor | None = None,
) -> QueryScores:
    """Rank the candidates of every query by any similarity, for example a kernel; see `rank_queries`.

    Args:
        similarity: function from the indices of t queries `[t]` and of m candidates `[m]`, which are ascending, to
            similarities `[t, m]`, a tensor or an array; equal ones are ties. Infinity is legal: candidates of -inf
            come last, and tie with each other. Index a NumPy array by `numpy.ix_(queries, candidates)`, because NumPy
            takes a tensor of one index for a number.
        group: see `rank_queries`, like `queries` and `candidates`.
        n: number of graphs; default: the length of `group`.
        place: place of each graph `[n]`, whole numbers; a query then has the candidates of its place only.

    Raises:
        InputError: as for `rank_queries`, or a similarity is NaN.

    Example:
        >>> kernel = torch.tensor([[1.0, 0.2, 0.9], [0.2, 1.0, 0.3], [0.9, 0.3, 1.0]])
        >>> rank_by(lambda one, two: kernel[one][:, two], [5, 5, 6]).values["mrr"]
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    relevance = unit = group_numbers(group, n)
    asked, pool = (_indices(name, rows, len(unit)) for name, rows in (("queries", queries), ("candidates", candidates)))
    pool = pool.sort().values
    if place is not None:  # relevant are candidates of the query's group and place
        joint = torch.stack([unit, place]).unique(dim=1, return_inverse=True)[1]
        relevance = joint.where(unit >= 0, -1)
    asked = asked[relevance[asked] >= 0]
    candidates_of = torch.bincount(relevance[pool][relevance[pool] >= 0], minlength=len(unit))
    asked = asked[candidates_of[relevance[asked]] > torch.isin(asked, pool)]
    if not len(asked):
        raise InputError("no query has a candidate of its own group; groups need two graphs or more.")

    def masks(rows: Tensor) -> tuple[Tensor, Tensor]:
        itself = rows[:, None] == pool
        excluded = itself if place is None else itself | (place[rows][:, None] != place[pool])
        return (relevance[rows][:, None] == relevance[pool]) & ~itself, excluded

    return _ranked(similarity, asked, pool, masks, unit)


def rank_pairs(
    similarity: Similarity,
    relevant: Tensor | np.ndarray,
    candidates: Tensor | np.ndarray,
    *,
    itself: bool = False,
    place: tuple[Tensor, Tensor] | None = None,
) -> QueryScores:
    """Rank the candidates of every query in a list of relevant pairs; see `rank_queries` for the figures.

    Args:
        similarity: see `rank_by`; the indices of queries and of candidates may be of two data sets.
        relevant: query and candidate of each relevant pair, `[2, R]`; its queries are scored.
        candidates: indices of the candidates. A relevant one that is not among them is ignored.
        itself: whether equal indices are the same graph, which is not its own candidate.
        place: place of each query and of each candidate by index, whole numbers; a query then has the candidates of its
            place only.

    Raises:
        InputError: a similarity is NaN, or no query has a relevant candidate.

    Example:
        >>> scores = torch.tensor([[0.1, 0.9, 0.3], [0.5, 0.2, 0.1]])
        >>> ranked = rank_pairs(lambda one, two: scores[one][:, two], torch.tensor([[0, 0, 1], [1, 2, 1]]), [0, 1, 2])
        >>> ranked.values["map"]
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    pairs, pool = whole_numbers("relevant", relevant), whole_numbers("candidates", candidates)
    pool, (query, target) = pool.sort().values, pairs
    kept = torch.isin(target, pool)
    if itself:
        kept &= query != target
    if place is not None:
        kept &= place[0][query] == place[1][target]
    asked, row = query[kept].unique(return_inverse=True)
    if not len(asked):
        raise InputError("no query has a relevant candidate; list pairs of the queries and candidates to rank.")
    column = torch.searchsorted(pool, target[kept])

    def masks(rows: Tensor) -> tuple[Tensor, Tensor]:
        first = int(torch.searchsorted(asked, rows[0]))
        tile = (row >= first) & (row < first + len(rows))
        mask = torch.zeros(len(rows), len(pool), dtype=torch.bool)
        mask[row[tile] - first, column[tile]] = True
        excluded = rows[:, None] == pool if itself else torch.zeros_like(mask)
        if place is not None:
            excluded |= place[0][rows][:, None] != place[1][pool]
        return mask, excluded

    targets = target if itself else target + int(query.max()) + 1
    size = int(torch.maximum(query.max(), targets.max())) + 1
    units = torch.from_numpy(connected(query.numpy(), targets.numpy(), size)).long()
    return _ranked(similarity, asked, pool, masks, units)


def connected(one: np.ndarray, two: np.ndarray, size: int) -> np.ndarray:
    """Return the component of each of `size` nodes; `one [R]` and `two [R]` are the ends of the edges."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    ends = one.astype(np.int32), two.astype(np.int32)  # SciPy 1.11 fails with int64
    component: np.ndarray = connected_components(csr_array((np.ones(len(one), np.int8), ends), shape=(size, size)))[1]
    return component


def _ranked(
    similarity: Similarity,
    asked: Tensor,
    pool: Tensor,
    masks: Callable[[Tensor], tuple[Tensor, Tensor]],
    units: Tensor,
) -> QueryScores:
    """Return the figures of the queries `asked`; `masks` of queries are their relevant and excluded candidates."""
    figures = []
    for rows in asked.split(max(1, _TILE // len(pool))):
        relevant, excluded = masks(rows)
        scores = torch.from_numpy(as_array("similarity", similarity(rows, pool))).double()
        if scores.shape != excluded.shape:
            raise InputError(f"`similarity` must return {list(excluded.shape)} similarities, got {list(scores.shape)}.")
        for query, candidate in (scores.isnan() & ~excluded).nonzero()[:1]:
            pair = f"{rows[query]} and {pool[candidate]}"
            raise InputError(f"the similarity of graphs {pair} is NaN; use -inf for a pair never to find.")
        limit = torch.finfo(scores.dtype).max  # -inf remains for candidates to leave out
        scores = (scores * _RESOLUTION).round_().clamp_(-limit, limit).masked_fill_(excluded, -torch.inf)
        figures.append(expected_figures(scores, relevant))
    return QueryScores(asked, {name: torch.cat([tile[name] for tile in figures]) for name in FIGURES}, units[asked])


def expected_figures(scores: Tensor, relevant: Tensor) -> dict[str, Tensor]:
    """Return the figures of rankings by `scores`, the highest first, in expectation over the order of equal scores.

    Args:
        scores: scores of m candidates for each of t queries, `[t, m]`; -inf for a candidate to leave out.
        relevant: whether a candidate is relevant `[t, m]`; each query needs one.

    Returns:
        name in `FIGURES` -> values `[t]`, float64. The equations are those of `rank_queries`.
    """
    t, m = scores.shape
    # ties: the distinct scores of each query's relevant candidates, the highest first, as flat lists
    query, column = relevant.nonzero(as_tuple=True)
    ties = torch.stack([query.double(), -scores[query, column]], dim=1)
    order = np.lexsort((ties[:, 1].numpy(), ties[:, 0].numpy()))
    ties, r = torch.unique_consecutive(ties[order], dim=0, return_counts=True)
    query, value = ties[:, 0].long(), -ties[:, 1]
    start = torch.searchsorted(query, torch.arange(t))  # the first tie of each query
    s, g = _above_and_tied(scores, query, value, torch.arange(len(query)) - start[query])
    total = torch.zeros(t, dtype=torch.long).index_add_(0, query, r)
    before = r.cumsum(0) - r
    better = before - before[start[query]]  # relevant ones

    def sums_to(ranks: Tensor) -> Tensor:  # of the first k ranks, for k = 0, 1, ...
        return torch.cat([torch.zeros(1).double(), ranks.double()]).cumsum(0)

    rank = torch.arange(1, m + 1).double()
    harmonic, gains = sums_to(1 / rank), sums_to((rank <= CUTOFF) / (rank + 1).log2())
    c = (r - 1) / (g - 1).clamp(min=1).double()
    part = r / g.double() * (g * c + (better + 1 - c * (s + 1)) * (harmonic[s + g] - harmonic[s]))
    precision = torch.zeros(t, dtype=torch.double).index_add_(0, query, part)
    gain = torch.zeros(t, dtype=torch.double).index_add_(0, query, r / g.double() * (gains[s + g] - gains[s]))

    # the first relevant rank is s + j, and r of the places j = 1 .. g of the first tie are relevant
    s, g, r = s[start][:, None], g[start][:, None], r[start][:, None]
    place = torch.arange(int((g - r).max()) + 1)
    # probability that the first j places are not relevant, for j = 0, 1, ..., and then that place j + 1 is the first
    factor = (g - r - place).clamp(min=0) / (g - place).clamp(min=1).double()
    survive = torch.cat([torch.ones(t, 1).double(), factor.cumprod(1)], dim=1)
    first, rank = survive[:, :-1] - survive[:, 1:], s + place + 1
    reciprocal, near = first / rank, rank <= CUTOFF
    return {
        "mrr": reciprocal.sum(1),
        "mrr_at_10": (reciprocal * near).sum(1),
        "recall_at_1": (first * (rank <= 1)).sum(1),
        "recall_at_10": (first * near).sum(1),
        "map": precision / total,
        "ndcg_at_10": gain / gains[total],
    }


def _above_and_tied(scores: Tensor, query: Tensor, value: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many of the query's scores are above `value`, and how many equal it, for all values in the list.

    `place` is the number of the value among those of its query.
    """
    values = torch.full((len(scores), int(place.max()) + 1), -torch.inf, dtype=torch.double)
    values[query, place] = value
    if values.size(1) <= _FEW:  # comparisons are faster than a search
        columns = [column[:, None] for column in values.unbind(1)]
        above = torch.stack([(scores > column).sum(1) for column in columns], dim=1)
        tied = torch.stack([(scores == column).sum(1) for column in columns], dim=1)
    else:
        ascending = scores.sort(dim=1).values
        least = torch.searchsorted(ascending, values, right=True)
        above, tied = scores.size(1) - least, least - torch.searchsorted(ascending, values)
    return above[query, place], tied[query, place]


def group_numbers(group: Tensor | np.ndarray, n: int | None) -> Tensor:
    """Return groups numbered from 0, and -1 for none, as int64 on the CPU; raise InputError if `group` is invalid."""
    names = as_array("group", group, "iuU", "strings, or whole numbers, -1 for none")
    if names.dtype.kind == "U":
        blank = np.char.strip(names) == ""
        names = np.where(blank, -1, np.unique(names, return_inverse=True)[1].reshape(names.shape))
    if names.ndim != 1 or len(names) != (len(names) if n is None else n):
        rows = "graph" if n is None else f"of the {n} rows of `h`"
        raise InputError(f"`group` must hold one number for each {rows}, got shape {list(names.shape)}.")
    for wrong in names[names < -1][:1]:
        raise InputError(f"`group` must be -1 for no group, or 0 or more, got {wrong}.")
    values, number = np.unique(names.astype(np.int64), return_inverse=True)
    return torch.from_numpy(number.reshape(-1) - int(values.size > 0 and values[0] == -1))


def whole_numbers(name: str, values: Tensor | np.ndarray) -> Tensor:
    """Return whole numbers as int64 on the CPU; raise InputError if they are something else."""
    return torch.from_numpy(as_array(name, values, "iu", "whole numbers").astype(np.int64))


def _indices(name: str, values: Tensor | np.ndarray | None, n: int) -> Tensor:
    """Return indices of graphs, by default all, as int64 on the CPU; raise InputError if they are invalid."""
    if values is None:
        return torch.arange(n)
    rows = whole_numbers(name, values)
    if rows.dim() != 1 or not len(rows) or len(rows.unique()) < len(rows) or rows.min() < 0 or rows.max() >= n:
        raise InputError(f"`{name}` must hold different indices of the {n} graphs, at least one.")
    return rows
