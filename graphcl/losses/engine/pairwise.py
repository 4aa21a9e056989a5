"""From a formula for one anchor to a loss of two views: the decorator that most losses are made with.

A loss file writes the formula once, as a function of `Pairs`; `pairwise` registers it as a function of `(z1, z2)` with
the arguments that all such losses share, and with their documentation.

Across ranks (`graphcl.distributed.ranks`), a loss takes a rank's shard of a batch and returns the mean over its own
anchors, whose negatives are those of the global batch: the mean of that over ranks is the loss of the global batch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, Protocol, get_type_hints

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcl.arguments import Arguments, nearest
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses.engine.checks import check_weight
from graphcl.losses.engine.comparison import Pairs, Similarity
from graphcl.losses.engine.pairs import Engine, Negatives, compare
from graphcl.registry import losses

Reduction = Literal["mean", "none"]

_SHARED: dict[str, tuple[Any, Any, str]] = {
    "negatives": (
        Negatives,
        "cross",
        "`cross` (N - 1 negatives, of the other view), `all` (2N - 2) or `queue` (none).",
    ),
    "symmetric": (bool, True, "whether both views' projections are anchors."),
    "queue": (Tensor | None, None, "further negatives of every anchor, `[Q, D]`: the keys of a queue or a bank."),
    "ids": (Tensor | None, None, "which graph each row is, `[N]`; goes with `queue_ids`."),
    "queue_ids": (
        Tensor | None,
        None,
        "which graph each key is, `[Q]`; none is a negative of its own graph (without any, an anchor counts 0).",
    ),
    "weight": (Tensor | None, None, "of each graph in the mean, `[N]`, >= 0."),
    "engine": (
        Engine,
        "auto",
        "`dense` holds all similarities, `tiled` none (memory O(N D)); `auto` goes by their number.",
    ),
    "reduction": (Reduction, "mean", "`mean` over anchors, or `none` for the per-anchor terms `[A]`."),
}
_VIEWS = {
    "z1": "projections of the first view, `[N, D]`.",
    "z2": "projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.",
}


class PairwiseLoss(Protocol):
    """A loss of two views, with the formula it was made from."""

    terms: Callable[..., Tensor]
    compare: Callable[..., tuple[Pairs, dict[str, Any], dict[str, Any]]]

    def __call__(self, z1: Tensor, z2: Tensor, **arguments: Any) -> Tensor:
        """The loss of projections `[N, D]` of two views."""


def pairwise(
    name: str,
    *,
    similarity: Similarity = "cosine",
    fixed: dict[str, Any] | None = None,
    method: str = "two_views",
    gathering: Literal["gather_negatives", "global_statistics"] = "gather_negatives",
    **defaults: Any,
) -> Callable[[Callable[..., Tensor]], PairwiseLoss]:
    """Register the decorated `terms(pairs, *, ...) -> [A]` as the loss `name(z1, z2, *, ...)`.

    The loss takes, besides the formula's own arguments, those that decide who is compared (`engine.pairs`).
    Its `terms` attribute is the formula itself, for anchors, positives and negatives of the caller's choice. `compare`
    takes what the loss takes, and gives the pairs that it would compare, the formula's arguments and the shared ones.

    Args:
        name: under which it is registered.
        similarity: what the formula takes; unless it is the cosine, rows are compared as they are. A formula with an
            argument `normalize` leaves that to its caller.
        fixed: shared arguments that the loss settles, and how; they are no arguments of it then.
        method: the method that the loss is made for.
        gathering: what a loss over several devices has to gather: the others' rows as negatives, or statistics of all
            anchors besides.
        **defaults: defaults of shared arguments that differ from the usual ones.
    """
    settled = fixed or {}
    if unknown := sorted((defaults.keys() | settled.keys()) - _SHARED.keys()):
        raise InputError(f"`{unknown[0]}` is no argument that pairwise losses share; {nearest(unknown[0], _SHARED)}.")

    def decorate(terms: Callable[..., Tensor]) -> PairwiseLoss:
        own = {key: value for key, value in inspect.signature(terms).parameters.items() if key != "pairs"}
        shared = {key: value for key, value in _SHARED.items() if key not in settled and key not in own}
        usual = own["normalize"].default if "normalize" in own else None

        def compared(z1: Tensor, z2: Tensor, **own: Any) -> tuple[Pairs, dict[str, Any], dict[str, Any]]:
            given = {key: own.pop(key) for key in shared if key in own}
            given = {key: default for key, (_, default, _) in _SHARED.items()} | defaults | settled | given
            who = {key: value for key, value in given.items() if key not in ("weight", "reduction")}
            normalized = own.get("normalize", usual)
            return compare(z1, z2, similarity=similarity, normalized=normalized, **who), own, given

        def loss(z1: Tensor, z2: Tensor, **arguments: Any) -> Tensor:
            pairs, own_arguments, given = compared(z1, z2, **arguments)
            if given["weight"] is not None:
                check_weight(given["weight"], z1.size(0))
            with torch.autocast(z1.device.type, enabled=False):
                values: Tensor = terms(pairs, **own_arguments)
                if given["ids"] is not None:
                    values = values.masked_fill(pairs.alone, 0.0)
                return reduce(values, given["reduction"], given["weight"])

        loss.__name__, loss.__qualname__, loss.__module__ = terms.__name__, terms.__qualname__, terms.__module__
        signature = _signature(terms, own, shared, defaults)
        loss.__signature__ = signature  # type: ignore[attr-defined]
        loss.__annotations__ = {key: each.annotation for key, each in signature.parameters.items()} | {"return": Tensor}
        loss.__doc__ = _documented(inspect.getdoc(terms) or "", {key: text for key, (_, _, text) in shared.items()})

        @functools.wraps(terms)
        def formula(pairs: Pairs, **arguments: Any) -> Tensor:
            if (found := pairs.comparison.similarity) != similarity:
                raise InputError(f"{name}.terms takes pairs of similarity {similarity!r}, got {found!r}.")
            return checked(pairs, **arguments)

        checked = Arguments(terms).guard(terms)
        registered: Any = losses.register(name, method=method, gathering=gathering)(loss)
        registered.terms, registered.compare = formula, compared
        return registered

    return decorate


def soft_positive_part(gap: Tensor) -> Tensor:
    """log(1 + e^gap), exact in float64 too (torch's own default goes linear from 20 on)."""
    return softplus(gap, threshold=40)


def reduce(terms: Tensor, reduction: Reduction, weight: Tensor | None = None) -> Tensor:
    """The mean over anchors, weighted by their graphs' weights, or the per-anchor terms `[A]` themselves.

    Across ranks, a rank's part of it: with weights, its own anchors' sum over the mean of all ranks' sums of weights.
    """
    if reduction == "none":
        return terms
    if weight is None:
        return terms.mean()
    largest = weight.max()
    if ranks.size() > 1:
        largest = ranks.largest_over_ranks(largest)
        if largest.device.type == "cpu" and largest == 0:
            raise InputError("`weight` must not be all zero, got zeros on all ranks.")
    weight = (weight / largest).to(terms.dtype).repeat(terms.numel() // weight.numel())
    total = weight.sum()
    if ranks.size() > 1:
        total = ranks.sum_over_ranks(total) / ranks.size()
    return (weight * terms).sum() / total


def _signature(
    terms: Callable[..., Tensor],
    own: dict[str, inspect.Parameter],
    shared: dict[str, tuple[Any, Any, str]],
    defaults: dict[str, Any],
) -> inspect.Signature:
    """The views, the formula's own arguments, the shared ones."""
    hints = get_type_hints(terms, include_extras=True)
    views = [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor) for key in _VIEWS]
    others = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(key, default), annotation=kind)
        for key, (kind, default, _) in shared.items()
    ]
    formulas = [each.replace(annotation=hints.get(key, Any)) for key, each in own.items()]
    return inspect.Signature([*views, *formulas, *others], return_annotation=Tensor)


def _documented(text: str, shared: dict[str, str]) -> str:
    """The formula's docstring with the shared arguments in its section `Args`."""
    before, mark, after = text.partition("Args:\n")
    own, blank, rest = after.partition("\n\n")
    lines = [line for line in own.split("\n") if not line.strip().startswith("pairs:")]
    views = [f"    {key}: {line}" for key, line in _VIEWS.items()]
    others = [f"    {key}: {line}" for key, line in shared.items()]
    return before + mark + "\n".join([*views, *lines, *others]) + blank + rest
