"""The decorator `pairwise`, which makes a loss of two views from a per-anchor formula, and the PyTorch module `Loss`.

A loss file defines the formula as a function of `Pairs`, with names from this module. `pairwise` registers it as a
function of `(z1, z2)` and adds the arguments that all pairwise losses share, with their documentation.

Across ranks (`graphcl.distributed.ranks`), a loss takes one rank's shard of a batch and returns the mean over its
anchors, with negatives from the global batch. The mean of these values over ranks is the loss of the global batch.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphcl.arguments import LEARN, LEAST_LEARNED, checked, named_arguments, nearest
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses.pairs import Exponent, Pairs, Row, Similarity, gaussian, linear, without_autocast
from graphcl.losses.rows import check_weight, compare
from graphcl.registry import losses

__all__ = ["Exponent", "Loss", "Pairs", "Row", "gaussian", "linear", "pairwise", "softplus"]

Reduction = Literal["mean", "none"]


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x), exact to rounding also in float64, unlike PyTorch's softplus with its default threshold."""
    return functional.softplus(x, threshold=40)


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


# -- the decorator -----------------------------------------------------------------------------------------------------


_TEMPERATURE = 'divisor of the cosines, >= 1e-6 (tau); "learn" makes it a parameter of the module `Loss`.'
_Parameters = dict[str, tuple[inspect.Parameter, str]]
"""Parameters of a function by name, with evaluated annotations and documentation."""


def _parameters(function: Callable[..., Any]) -> _Parameters:
    """Return the parameters of a function; the documentation is that of its docstring's section "Args"."""
    function = inspect.unwrap(function)
    hints = get_type_hints(function, include_extras=True)
    texts = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)$", inspect.getdoc(function) or "", re.MULTILINE))
    texts.setdefault("temperature", _TEMPERATURE)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: (p.replace(annotation=hints.get(p.name, Any)), texts.get(p.name, "")) for p in parameters}


_COMMON = _parameters(compare) | _parameters(reduce)
_VIEWS = {name: _COMMON[name] for name in ("z1", "z2")}
_SHARED = {
    name: (_COMMON[name][0].replace(kind=inspect.Parameter.KEYWORD_ONLY), _COMMON[name][1])
    for name in ("negatives", "symmetric", "queue", "ids", "queue_ids", "engine", "weight", "reduction")
}
_compare = inspect.unwrap(compare)  # a loss has checked the arguments


def pairwise(
    name: str,
    *,
    similarity: Similarity = "cosine",
    fixed: dict[str, Any] | None = None,
    method: str = "two_views",
    **defaults: Any,
) -> Callable[[Callable[..., Tensor]], Any]:
    """Return a decorator that registers `formula(pairs, *, ...) -> [A]` as the loss `name(z1, z2, *, ...)`.

    The loss takes the arguments of the formula and the shared arguments: those of `graphcl.losses.compare`, `weight`
    and `reduction`. Its attribute `terms` is the formula with checked arguments, for pairs chosen by the caller; its
    attribute `formula` does not check them.

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
    usual = {key: parameter.default for key, (parameter, _) in _SHARED.items()} | defaults | constant

    def decorate(formula: Callable[..., Tensor]) -> Any:
        settings = _parameters(formula)
        del settings["pairs"]
        normalized = settings["normalize"][0].default if "normalize" in settings else None

        def loss(z1: Tensor, z2: Tensor, **arguments: Any) -> Tensor:
            of_formula = {key: arguments.pop(key) for key in settings if key in arguments}
            of_pairs = usual | arguments
            weight, reduction = of_pairs.pop("weight"), of_pairs.pop("reduction")
            unit = of_formula.get("normalize", normalized)
            pairs = _compare(z1, z2, similarity=similarity, normalized=unit, **of_pairs)
            if weight is not None:
                check_weight(weight, z1)
            with without_autocast(z1):
                terms = formula(pairs, **of_formula).to(pairs.positive.dtype)  # squared distances are in float64
                if of_pairs["ids"] is not None:
                    terms = terms.masked_fill(pairs.isolated, 0.0)
                return reduce(terms, weight, reduction)

        @functools.wraps(formula)
        def terms(pairs: Pairs, **arguments: Any) -> Tensor:
            if pairs.comparison.similarity != similarity:
                rule = f"{name}.terms requires pairs of similarity {similarity!r}"
                raise InputError(f"{rule}, got {pairs.comparison.similarity!r}.")
            return checked_formula(pairs, **arguments)

        checked_formula = checked(formula)
        shared = {
            key: (parameter.replace(default=usual[key]), text)
            for key, (parameter, text) in _SHARED.items()
            if key not in constant and key not in settings
        }
        _describe(loss, formula, _VIEWS | settings | shared)
        registered: Any = losses.register(name, method=method)(loss)
        registered.terms, registered.formula = terms, formula
        return registered

    return decorate


def _describe(loss: Any, formula: Callable[..., Tensor], parameters: _Parameters) -> None:
    """Give a loss the names of its formula, and a signature and a docstring with all `parameters`."""
    loss.__name__, loss.__qualname__, loss.__module__ = formula.__name__, formula.__qualname__, formula.__module__
    loss.__signature__ = inspect.Signature([p for p, _ in parameters.values()], return_annotation=Tensor)
    loss.__annotations__ = {key: p.annotation for key, (p, _) in parameters.items()} | {"return": Tensor}
    sections = {
        "Args": "",
        "Returns": '    The mean over anchors, or with `reduction="none"` their terms `[A]`.',
        "Raises": "    InputError: an argument out of range, shapes that do not match, fewer than two graphs.",
    }
    titles = "|".join([*sections, "Example", "References"])
    before, *parts = re.split(rf"^({titles}):\n", inspect.getdoc(formula) or "", flags=re.MULTILINE)
    sections |= dict(zip(parts[::2], parts[1::2], strict=True))
    sections["Args"] = "\n".join(f"    {key}: {text}" for key, (_, text) in parameters.items())
    texts = [f"{title}:\n{text.rstrip()}" for title, text in sections.items()]
    loss.__doc__ = "\n\n".join([before.rstrip(), *texts])


# -- the module --------------------------------------------------------------------------------------------------------


class Loss(nn.Module):
    """PyTorch module that computes a registered loss with fixed arguments.

    With `temperature="learn"`, the temperature tau is learned as in CLIP: the parameter `log_scale` is log(1 / tau). It
    starts at the loss's default, and tau stays at 0.01 or above.

    Args:
        name: registered name, such as `"adnce"`.
        **arguments: keyword arguments of the loss function, checked here and not again in each call.

    Raises:
        InputError: an unknown name, an unknown argument, a value out of range.

    Example:
        >>> Loss("adnce", mu=0.5)
        Loss(adnce, mu=0.5)
        >>> round(float(Loss("infonce", temperature="learn").setting("temperature")), 3)
        0.2

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021, Sec. 2.5
        (arXiv 2103.00020), for the learned temperature.
    """

    @named_arguments
    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()
        if problems := losses.problems(name, arguments):
            raise InputError(" ".join(problems))
        self.name, self.arguments = name, arguments
        if self.learns:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(losses.arguments(name).defaults["temperature"])))

    @property
    def learns(self) -> bool:
        """Whether the temperature is a parameter."""
        return bool(self.arguments.get("temperature") == LEARN)

    if TYPE_CHECKING:  # the annotation of nn.Module.__call__ is Any

        def __call__(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
            """Compute the loss, see `forward`."""

    def forward(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
        """Return the loss of two views.

        Args:
            z1: projections of the first view, `[N, D]`.
            z2: projections of the second view, `[N, D]`.
            **others: tensors such as `queue` or `weight`, and arguments that override the fixed ones in this call.

        Returns:
            A scalar, or `[A]` with `reduction="none"`.
        """
        loss: Any = losses[self.name]
        arguments = self.arguments | others
        settings = others.keys() - losses.arguments(self.name).tensors  # of this call, hence not checked yet
        if settings and self.learns:
            changed = self.with_settings(**{key: others.pop(key) for key in settings})
            return changed(z1, z2, **others)
        if settings:
            return loss(z1, z2, **arguments)
        if self.learns:
            with torch.no_grad():  # after the optimiser's step, as in CLIP; a clamped value would have no gradient
                self.log_scale.clamp_(max=-math.log(LEAST_LEARNED))
            arguments["temperature"] = (-self.log_scale).exp()
        return loss.__wrapped__(z1, z2, **arguments)  # without a check of the arguments

    def with_settings(self, **settings: Any) -> Loss:
        """Return a copy with these settings, checked here, and the same learned temperature."""
        changed, valid = copy.copy(self), Loss(self.name, **self.arguments | settings)
        changed.arguments, changed._parameters = valid.arguments, valid._parameters | self._parameters
        return changed

    def accepts(self, argument: str) -> bool:
        """Return whether the loss takes `argument`, a setting or a tensor (`queue`, `weight`, `labels`)."""
        arguments = losses.arguments(self.name)
        return argument in arguments.defaults or argument in arguments.tensors

    def setting(self, argument: str, otherwise: Any = None) -> Any:
        """Return the value of `argument`: the given value or the default; `otherwise` if the loss does not take it.

        A learned temperature is a scalar tensor without gradient.
        """
        if argument == "temperature" and self.learns:
            return (-self.log_scale.detach()).exp()
        return self.arguments.get(argument, losses.arguments(self.name).defaults.get(argument, otherwise))

    def extra_repr(self) -> str:
        """Return the name and the arguments of the loss, for `repr`."""
        return ", ".join([self.name, *(f"{key}={value!r}" for key, value in self.arguments.items())])
