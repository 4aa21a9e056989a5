"""The decorator `pairwise`, which turns a per-anchor formula into a loss of two views.

A loss file defines the formula as a function of `Pairs`, with names from this module. `pairwise` registers it as a
function of `(z1, z2)` and adds the arguments that all pairwise losses share, with their documentation.

Across ranks (`graphcl.distributed.ranks`), a loss takes one rank's shard of a batch and returns the mean over its
anchors, with negatives from the global batch. The mean of these values over ranks is the loss of the global batch.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, Protocol, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional

from graphcl.arguments import checked, nearest
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses.engine.base import Pairs, Row, Similarity
from graphcl.losses.engine.checks import check_weight
from graphcl.losses.engine.compare import compare
from graphcl.losses.engine.exponent import Exponent, gaussian, linear
from graphcl.registry import losses

__all__ = ["Exponent", "Pairs", "Row", "gaussian", "linear", "pairwise", "softplus"]

Reduction = Literal["mean", "none"]
_SECTIONS = ("Args", "Returns", "Raises", "Example", "References")
_RESULTS = {
    "Returns": '    The mean over anchors, or with `reduction="none"` their terms `[A]`.',
    "Raises": "    InputError: an argument out of range, shapes that do not match, fewer than two graphs.",
}


_TEMPERATURE = 'divisor of the cosines, >= 1e-6 (tau); "learn" makes it a parameter of the module `Loss`.'


def reduce(terms: Tensor, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """Return the mean of `terms [A]`, or `terms` itself if `reduction` is `none`.

    Across ranks, this rank's weighted sum is divided by the average over ranks of the sum of weights. The average of
    the results over ranks is then the weighted mean of the global batch.

    Args:
        terms: loss of each anchor, `[A]`.
        weight: weight of each graph in the mean, `[N]`, >= 0.
        reduction: `mean` over anchors, or `none` for the terms `[A]`.
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


_Documented = dict[str, tuple[inspect.Parameter, str]]


def _documented_parameters(function: Callable[..., Tensor | Pairs]) -> _Documented:
    """Return each parameter of a function by name, with its evaluated annotation and its documentation."""
    function = inspect.unwrap(function)
    hints = get_type_hints(function, include_extras=True)
    texts = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)$", inspect.getdoc(function) or "", re.MULTILINE))
    if "temperature" in hints:
        texts.setdefault("temperature", _TEMPERATURE)
    parameters = inspect.signature(function).parameters
    return {key: (each.replace(annotation=hints.get(key, Any)), texts.get(key, "")) for key, each in parameters.items()}


_DOCUMENTED = _documented_parameters(compare) | _documented_parameters(reduce)
_VIEWS = {key: _DOCUMENTED[key] for key in ("z1", "z2")}
_SHARED = {
    key: _DOCUMENTED[key]
    for key in ("negatives", "symmetric", "queue", "ids", "queue_ids", "engine", "weight", "reduction")
}


def _documented(text: str, parameters: _Documented) -> str:
    """Return the docstring `text` of a formula with the documentation of all `parameters`, and missing sections."""
    before, *parts = re.split(r"^(Args|Returns|Raises|Example|References):\n", text, flags=re.MULTILINE)
    sections = _RESULTS | dict(zip(parts[::2], parts[1::2], strict=True))
    sections["Args"] = "\n".join(f"    {key}: {about}" for key, (_, about) in parameters.items())
    ordered = [f"{title}:\n{sections[title].rstrip()}" for title in _SECTIONS if title in sections]
    return "\n\n".join([before.rstrip(), *ordered])


class PairwiseLoss(Protocol):
    """A registered pairwise loss: a function of two views, with the parts of its computation as attributes."""

    terms: Callable[..., Tensor]  # the formula, with checked arguments
    formula: Callable[..., Tensor]
    compare: Callable[..., tuple[Pairs, dict[str, Any], dict[str, Any]]]  # also the formula's and the shared arguments

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
        formulas = _documented_parameters(formula)
        own = {key: formulas[key] for key in formulas if key != "pairs"}
        shared = {key: _SHARED[key] for key in _SHARED if key not in constant and key not in own}
        usual = {key: each.default for key, (each, _) in _SHARED.items()} | defaults | constant
        normalized = own["normalize"][0].default if "normalize" in own else None

        def compared(z1: Tensor, z2: Tensor, **own: Any) -> tuple[Pairs, dict[str, Any], dict[str, Any]]:
            given = usual | {key: own.pop(key) for key in shared if key in own}
            who = {key: value for key, value in given.items() if key not in ("weight", "reduction")}
            unit = own.get("normalize", normalized)
            pairs = inspect.unwrap(compare)(z1, z2, similarity=similarity, normalized=unit, **who)
            if given["weight"] is not None:
                check_weight(given["weight"], z1)
            return pairs, own, given

        def loss(z1: Tensor, z2: Tensor, **arguments: Any) -> Tensor:
            pairs, own, given = compared(z1, z2, **arguments)
            with torch.autocast(z1.device.type, enabled=False):
                return total(formula(pairs, **own), pairs, given)

        parameters = [each for each, _ in (*_VIEWS.values(), *own.values())]
        for key, (each, _) in shared.items():
            parameters.append(each.replace(kind=each.KEYWORD_ONLY, default=defaults.get(key, each.default)))
        _describe(loss, formula, parameters, _VIEWS | own | shared)

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


def _describe(
    loss: Any,
    formula: Callable[..., Tensor],
    parameters: list[inspect.Parameter],
    documented: _Documented,
) -> None:
    """Give a loss the names of its formula, a signature of `parameters`, and a docstring of the `documented` ones."""
    loss.__name__, loss.__qualname__, loss.__module__ = formula.__name__, formula.__qualname__, formula.__module__
    loss.__signature__ = inspect.Signature(parameters, return_annotation=Tensor)
    loss.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": Tensor}
    loss.__doc__ = _documented(inspect.getdoc(formula) or "", documented)


def total(terms: Tensor, pairs: Pairs, given: dict[str, Any]) -> Tensor:
    """Return the loss of the per-anchor `terms [A]`: their mean, or as the shared arguments `given` demand."""
    terms = terms.to(pairs.positive.dtype)  # squared distances are in float64
    if given["ids"] is not None:
        terms = terms.masked_fill(pairs.isolated, 0.0)
    return reduce(terms, given["weight"], given["reduction"])


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x), exact to rounding also in float64, unlike PyTorch's softplus with its default threshold."""
    return functional.softplus(x, threshold=40)
