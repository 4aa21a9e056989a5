"""Find hard negatives: targets that an encoder takes for a query's positive, although they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from graphcl.arguments import Count, Fraction, NonNegative, checked
from graphcl.datasets.relation import Relation
from graphcl.errors import InputError

_TILE = 2**24
"""Similarities that are computed at a time."""


@checked
def mine_hard_negatives(
    queries: Any,
    targets: Any,
    relation: Relation,
    k: Count = 1,
    *,
    margin: NonNegative = 0.0,
    relative_margin: Fraction = 0.0,
    skip: int = 0,
    within: Tensor | None = None,
) -> Relation:
    r"""Return the relation with the hardest negatives of each pair, instead of those it had.

    $$N_{ij} = \operatorname*{top}_k \{ c_{im} : m \notin P_i, \;
      c_{im} \le \min(c_{ij} - \text{margin}, \; c_{ij} - \text{relative margin} \cdot |c_{ij}|) \}$$

    where $c_{im}$ is the cosine of query i and target m, j the target of the pair, and $P_i$ the known positives of i.
    The margins leave out targets that are probably positives without being listed; without margins there is no limit. A
    pair may have fewer than k.

    Args:
        queries: embeddings of the queries `[num_queries, D]`, a tensor, an array or a sparse matrix of SciPy.
        targets: embeddings of the targets `[num_targets, D]`, likewise; those of the queries if both are one data set.
        relation: the pairs. Only targets of its pairs are candidates, so pairs of a training part give negatives of it.
        k: number of negatives of each pair.
        margin: least distance of a negative's cosine to the positive's.
        relative_margin: the same, as a fraction of the positive's cosine.
        skip: number of a query's hardest candidates to leave out, >= 0.
        within: place of each node of the relation `[num_nodes]`, whole numbers; negatives come from the query's place.

    Raises:
        InputError: a matrix does not have one finite row of numbers per graph, the widths differ, or `skip` is
            negative.

    Example:
        >>> relation = Relation(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), num_queries=3, num_targets=3)
        >>> rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> mine_hard_negatives(rows, rows, relation).negatives
        tensor([[0, 1, 2],
                [1, 0, 1]])

    Reference: Moreira et al., "NV-Retriever: Improving text embedding models with effective hard-negative mining", 2024
    (arXiv 2407.15831).
    """
    wanted = relation.num_queries, relation.num_targets or relation.num_queries
    queries, targets = _unit_rows("queries", queries, wanted[0]), _unit_rows("targets", targets, wanted[1])
    if queries.shape[1] != targets.shape[1]:
        widths = f"{queries.shape[1]} and {targets.shape[1]}"
        raise InputError(f"`queries` and `targets` must have equally many columns, got {widths}.")
    if skip < 0:
        raise InputError(f"`skip` must be at least 0, got {skip}.")
    candidates = relation.target.unique()
    negatives = []
    for pairs in torch.arange(len(relation.query)).split(max(1, _TILE // len(candidates))):
        query, target = relation.query[pairs], relation.target[pairs]
        scores = _products(queries, query, targets, candidates)
        positive = scores.gather(1, torch.searchsorted(candidates, target)[:, None])
        excluded = _positives(relation, query, candidates)
        if within is not None:
            excluded |= within[query][:, None] != within[candidates + relation.shift]
        scores = scores.masked_fill(excluded, -torch.inf)
        if skip:
            hardest = scores.topk(min(skip, len(candidates)), dim=1).indices
            scores = scores.scatter(1, hardest, -torch.inf)
        limit = positive - torch.maximum(torch.tensor(margin), relative_margin * positive.abs())
        scores = scores.masked_fill(scores > limit, -torch.inf) if margin or relative_margin else scores
        values, columns = scores.topk(min(k, len(candidates)), dim=1)
        row, place = (values > -torch.inf).nonzero(as_tuple=True)
        negatives.append(torch.stack([pairs[row], candidates[columns[row, place]]]))
    return relation.with_negatives(torch.cat(negatives, dim=1))


def _products(queries: Any, query: Tensor, targets: Any, target: Tensor) -> Tensor:
    """Return the inner products `[q, t]` of some rows of two matrices, both dense or both sparse."""
    if isinstance(queries, Tensor):
        return queries[query] @ targets[target].T
    return torch.from_numpy((queries[query.numpy()] @ targets[target.numpy()].T).toarray()).float()


def _unit_rows(name: str, rows: Any, count: int) -> Any:
    """Return the matrix `rows [count, D]` in float32 on the CPU, or a sparse one, with rows of norm 1."""
    if hasattr(rows, "tocsr"):
        rows = rows.tocsr()
        if rows.shape[0] != count:
            raise InputError(f"`{name}` must have one row for each of {count} graphs, got {list(rows.shape)}.")
        norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        return rows.multiply(1 / np.where(norms > 0, norms, 1)[:, None]).tocsr()
    values = torch.as_tensor(rows).detach().cpu()
    if values.dim() != 2 or len(values) != count:
        raise InputError(f"`{name}` must have one row for each of {count} graphs, got {list(values.shape)}.")
    values = values.double()
    finite = values.isfinite().all(dim=1)
    if not finite.all():
        raise InputError(f"`{name}` is not finite in row {int(finite.int().argmin())}.")
    return normalize(values, dim=1).float()


def _positives(relation: Relation, query: Tensor, candidates: Tensor) -> Tensor:
    """Return a mask `[queries, candidates]` of the known positives of each query, and of the query itself."""
    entry, positive = relation.positives(query)
    if relation.num_targets is None:
        entry, positive = torch.cat([entry, torch.arange(len(query))]), torch.cat([positive, query])
    at = torch.searchsorted(candidates, positive - relation.shift).clamp(max=len(candidates) - 1)
    hit = candidates[at] == positive - relation.shift
    mask = torch.zeros(len(query), len(candidates), dtype=torch.bool)
    mask[entry[hit], at[hit]] = True
    return mask
