"""The decorator `pairwise`, which turns a per-anchor formula into a loss of two views.

A loss file defines the formula as a function of `Pairs`. `pairwise` registers it as a function of `(z1, z2)` and adds
the arguments that all pairwise losses share, with their documentation.

Across ranks (`graphcl.distributed.ranks`), a loss takes one rank's shard of a batch and returns the mean over its
anchors, with negatives from the global batch. The mean of these values over ranks is the loss of the global batch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional

from graphcl.arguments import checked, nearest
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
        "`cross` (the other view's N - 1 rows), `all` (both views' 2N - 2) or `queue` (only the queue's rows).",
    ),
    "symmetric": (bool, True, "whether the projections of both views are anchors."),
    "queue": (
        Tensor | None,
        None,
        'further negatives of every anchor, `[Q, D]`: a queue or a memory bank; required with `negatives="queue"`.',
    ),
    "ids": (
        Tensor | None,
        None,
        "id of each row's graph, `[N]`; requires `queue_ids`. An anchor without negatives contributes 0.",
    ),
    "queue_ids": (
        Tensor | None,
        None,
        "id of each queue row's graph, `[Q]`; rows with an anchor's id are not its negatives.",
    ),
    "weight": (Tensor | None, None, "weight of each graph in the mean, `[N]`, >= 0."),
    "engine": (
        Engine,
        "auto",
        "`dense` holds all similarities; `tiled` needs memory O(N D), without second derivative; `auto` decides.",
    ),
    "reduction": (Reduction, "mean", "`mean` over anchors, or `none` for the terms `[A]`."),
}
_VIEWS = {
    "z1": "projections of the first view, `[N, D]`.",
    "z2": "projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.",
}
_RESULTS = {
    "Returns": 'The mean over anchors, or with `reduction="none"` their terms `[A]`.',
    "Raises": "InputError: an argument out of range, shapes that do not match, fewer than two graphs.",
}


class PairwiseLoss(Protocol):
    """A registered pairwise loss: a function of two views, with the parts of its computation as attributes.

    Attributes:
        terms: the formula, with checked arguments.
        formula: the formula itself.
        compare: function `(z1, z2, **arguments)` that returns the pairs, the formula's arguments and the shared ones.
    """

    terms: Callable[..., Tensor]
    formula: Callable[..., Tensor]
    compare: Callable[..., tuple[Pairs, dict[str, Any], dict[str, Any]]]

    def __call__(self, z1: Tensor, z2: Tensor, **arguments: Any) -> Tensor:
        """Return the loss of the projections `z1` and `z2` of two views, `[N, D]` each."""


def pairwise(
    name: str,
    *,
    similarity: Similarity = "cosine",
    fixed: dict[str, Any] | None = None,
    method: str = "two_views",
    **defaults: Any,
) -> Callable[[Callable[..., Tensor]], PairwiseLoss]:
    """Return a decorator that registers `formula(pairs, *, ...) -> [A]` as the loss `name(z1, z2, *, ...)`.

    The loss takes the arguments of the formula and the shared arguments: those of `graphcl.losses.compare`, `weight`
    and `reduction`. The attribute `terms` of the loss is the formula, for pairs chosen by the caller.

    Args:
        name: registered name.
        similarity: similarity that the formula uses. Rows are scaled to norm 1 for the cosine only, unless the formula
            has an argument `normalize`, which lets the caller choose.
        fixed: values of shared arguments that the caller cannot set.
        method: training method that the loss is designed for.
        **defaults: defaults for shared arguments that differ from the usual defaults.

    Raises:
        InputError: an unknown shared argument.
    """
    constant = fixed or {}
    if unknown := sorted((defaults.keys() | constant.keys()) - _SHARED.keys()):
        raise InputError(f"unknown shared argument `{unknown[0]}`; {nearest(unknown[0], _SHARED)}.")

    def decorate(formula: Callable[..., Tensor]) -> PairwiseLoss:
        own = {key: value for key, value in inspect.signature(formula).parameters.items() if key != "pairs"}
        shared = {key: value for key, value in _SHARED.items() if key not in constant and key not in own}
        usual = {key: default for key, (_, default, _) in _SHARED.items()} | defaults | constant
        normalized = own["normalize"].default if "normalize" in own else None

        def compared(z1: Tensor, z2: Tensor, **own: Any) -> tuple[Pairs, dict[str, Any], dict[str, Any]]:
            given = usual | {key: own.pop(key) for key in shared if key in own}
            who = {key: value for key, value in given.items() if key not in ("weight", "reduction")}
            unit = own.get("normalize", normalized)
            pairs = inspect.unwrap(compare)(z1, z2, similarity=similarity, normalized=unit, **who)
            if given["weight"] is not None:
                check_weight(given["weight"], z1.size(0))
            return pairs, own, given

        def loss(z1: Tensor, z2: Tensor, **arguments: Any) -> Tensor:
            pairs, own, given = compared(z1, z2, **arguments)
            with torch.autocast(z1.device.type, enabled=False):
                return total(formula(pairs, **own), pairs, given)

        loss.__name__, loss.__qualname__, loss.__module__ = formula.__name__, formula.__qualname__, formula.__module__
        signature = _signature(formula, own, shared, defaults)
        loss.__signature__ = signature  # type: ignore[attr-defined]
        loss.__annotations__ = {key: each.annotation for key, each in signature.parameters.items()} | {"return": Tensor}
        loss.__doc__ = _documented(
            inspect.getdoc(formula) or "", own, {key: text for key, (_, _, text) in shared.items()}
        )

        @functools.wraps(formula)
        def terms(pairs: Pairs, **arguments: Any) -> Tensor:
            if (found := pairs.comparison.similarity) != similarity:
                raise InputError(f"{name}.terms requires pairs of similarity {similarity!r}, got {found!r}.")
            return checked_formula(pairs, **arguments)

        checked_formula = checked(formula)
        registered: Any = losses.register(name, method=method)(loss)
        registered.terms, registered.formula, registered.compare = terms, formula, compared
        return registered

    return decorate


def total(terms: Tensor, pairs: Pairs, given: dict[str, Any]) -> Tensor:
    """Return the loss of the per-anchor `terms [A]`: their mean, or as the shared arguments `given` demand."""
    if given["ids"] is not None:
        terms = terms.masked_fill(pairs.isolated, 0.0)
    return reduce(terms, given["reduction"], given["weight"])


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x), exact to rounding also in float64, unlike PyTorch's softplus with its default threshold."""
    return functional.softplus(x, threshold=40)


def reduce(terms: Tensor, reduction: Reduction, weight: Tensor | None = None) -> Tensor:
    """Return the mean of `terms [A]`, or `terms` itself if `reduction` is `none`.

    With `weight [N]`, the mean is weighted by graph. Across ranks, this rank's weighted sum is divided by the average
    over ranks of the sum of weights. The average of the results over ranks is then the weighted mean of the global
    batch.
    """
    if reduction == "none":
        return terms
    if weight is None:
        return terms.mean()
    largest = weight.max()
    if ranks.size() > 1:
        largest = ranks.largest_over_ranks(largest)
        if largest.device.type == "cpu" and largest == 0:
            raise InputError("`weight` must not be all zero, got only zeros on every rank.")
    weight = (weight / largest).to(terms.dtype).repeat(terms.numel() // weight.numel())
    total = weight.sum()
    if ranks.size() > 1:
        total = ranks.sum_over_ranks(total) / ranks.size()
    return (weight * terms).sum() / total


def _signature(
    formula: Callable[..., Tensor],
    own: dict[str, inspect.Parameter],
    shared: dict[str, tuple[Any, Any, str]],
    defaults: dict[str, Any],
) -> inspect.Signature:
    """Return the signature of the loss: the views, the formula's own arguments, then the shared arguments."""
    hints = get_type_hints(formula, include_extras=True)
    views = [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor) for key in _VIEWS]
    others = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(key, default), annotation=kind)
        for key, (kind, default, _) in shared.items()
    ]
    formulas = [each.replace(annotation=hints.get(key, Any)) for key, each in own.items()]
    return inspect.Signature([*views, *formulas, *others], return_annotation=Tensor)


def _documented(text: str, own: Iterable[str], shared: dict[str, str]) -> str:
    """Return the docstring `text` of a formula with the views, the shared arguments and missing sections added."""
    if "Args:\n" not in text:
        section = "Returns:\n" if "Returns:\n" in text else "Example:\n"
        text = text.replace(section, f"Args:\n\n{section}", 1)
    before, mark, after = text.partition("Args:\n")
    written, blank, rest = ("", "", after) if after.startswith("\n") else after.partition("\n\n")
    added = dict(_VIEWS)
    if "temperature" in own and "    temperature:" not in written:
        added["temperature"] = "divisor of the cosines, >= 1e-6 (tau)."
    lines = [f"    {key}: {line}" for key, line in added.items()]
    lines += [line for line in written.split("\n") if line.strip() and not line.strip().startswith("pairs:")]
    lines += [f"    {key}: {line}" for key, line in shared.items()]
    for title, line in _RESULTS.items():
        if f"{title}:\n" not in rest:
            rest = rest.replace("Example:\n", f"{title}:\n    {line}\n\nExample:\n", 1)
    return before + mark + "\n".join(lines) + (blank or "\n") + rest
