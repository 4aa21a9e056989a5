"""Argument types with a range, and validation of arguments by a function's signature.

A range is written once, in the signature (`temperature: Temperature = 0.2`). It applies to direct calls, to the
configuration file and to the command line, and the help text shows it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticCustomError
from torch import Tensor

from graphcl.errors import InputError, InputTypeError, one_line

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Interval:
    """A range of numbers in the usual notation, such as `[0, 1)`, with an optional reason."""

    notation: str
    why: str = ""

    def __contains__(self, value: float) -> bool:
        low, high = (float(end) for end in self.notation[1:-1].split(","))
        above = value >= low if self.notation[0] == "[" else value > low
        below = value <= high if self.notation[-1] == "]" else value < high
        return above and below  # False for NaN, as both comparisons are false

    def check(self, value: float) -> float:
        """Return `value` if it is in the interval, else raise PydanticCustomError."""
        if value not in self:
            rule = f"{self.notation} ({self.why})" if self.why else self.notation
            raise PydanticCustomError("interval", "must be in {rule}, got {value}", {"rule": rule, "value": value})
        return value


def interval(notation: str, why: str = "") -> AfterValidator:
    """Return a validator of the range `notation`, to write in a type: `Annotated[float, interval("[0, 1)")]`."""
    return AfterValidator(Interval(notation, why).check)


Ratio = Annotated[float, interval("[0, 1)")]
"""The fraction of a graph that an augmentation changes."""
Fraction = Annotated[float, interval("[0, 1]")]
"""A fraction or a probability."""
Temperature = Annotated[float, interval("(0, inf)")]
"""The temperature (tau in the papers), by which the cosines are divided."""
Width = Annotated[float, interval("(0, inf]")]
"""The standard deviation of a Gaussian; `inf` gives every value the same weight."""
Finite = Annotated[float, interval("(-inf, inf)")]
NonNegative = Annotated[float, interval("[0, inf)")]
Positive = Annotated[float, interval("(0, inf)")]
Count = Annotated[int, interval("[1, inf)")]


_WANTED = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
}


MOST_PROBLEMS = 20
"""Largest number of mistakes that one message lists."""


def nearest(name: object, valid: Iterable[str]) -> str:
    """Return all valid names for a message, after "did you mean ...? " if some of them resemble `name`."""
    names = sorted(set(valid))
    close = difflib.get_close_matches(str(name)[:100], names, n=3, cutoff=0.5)
    return (f"did you mean {' or '.join(close)}? " if close else "") + f"choose from: {', '.join(names) or 'nothing'}"


def problems(error: ValidationError, valid: Callable[[tuple[Any, ...]], Iterable[str]], prefix: str = "") -> list[str]:
    """Return the problems that a failed validation found, one line each; at most `MOST_PROBLEMS`, then their number.

    Args:
        error: the error that pydantic raised.
        valid: function from the path of a mapping to its valid keys, which are listed if a key in it is unknown.
        prefix: dotted path put before each name.
    """
    lines = []
    found = error.errors()
    for item in found[:MOST_PROBLEMS]:
        name = f"`{prefix}{'.'.join(one_line(part, 60) for part in item['loc'])}`"
        kind, value = item["type"], shown(item["input"])
        wanted = _WANTED.get(kind.split("_")[0])
        if kind == "missing":
            line = f"{name} is required."
        elif kind == "extra_forbidden":
            line = f"{name} is not a known key; {nearest(item['loc'][-1], valid(item['loc'][:-1]))}."
        elif kind == "invalid_key":
            line = f"{name} is not a known key: each is a text."
        elif kind == "literal_error":
            line = f"{name} must be {item['ctx']['expected']}, got {value}."
        elif kind == "int_from_float" or (wanted and kind.endswith(("_type", "_parsing"))):
            line = f"{name} must be {wanted}, got {value}."
        else:
            line = f"{name} {one_line(item['msg'], 300)}."
        lines.append(line)
    return lines + [f"... and {len(found) - MOST_PROBLEMS} more."] * (len(found) > MOST_PROBLEMS)


def shown(value: object) -> str:
    """Return the repr of `value` on one line, shortened if it is long."""
    try:
        return one_line(repr(value))
    except (ValueError, RecursionError):  # repr fails for an integer of thousands of digits and for deeply nested lists
        return f"a large {type(value).__name__}"


class Arguments:
    """Validator for the arguments of a function, made from the function's signature.

    Parameters without a default (`required`) and parameters that take tensors (`tensors`) are data, not settings. They
    are not validated here; the function checks them itself.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        self.required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
        self.tensors = [name for name in parameters if Tensor in (hints.get(name), *get_args(hints.get(name)))]
        fields: dict[str, Any] = {
            name: (hints.get(name, Any), parameter.default)
            for name, parameter in parameters.items()
            if name not in (*self.required, *self.tensors)
        }
        config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
        self.model: type[BaseModel] = create_model(function.__name__, __config__=config, **fields)

    @property
    def defaults(self) -> dict[str, Any]:
        """The settings' default values, by argument name."""
        return {name: field.default for name, field in self.model.model_fields.items()}

    def problems(self, values: Mapping[str, Any], prefix: str = "") -> list[str]:
        """Return what is wrong with `values` as arguments of the function, one line for each problem."""
        tensors = [name for name, value in values.items() if isinstance(value, Tensor)]
        found = [f"`{prefix}{name}` must be a plain value, got a tensor." for name in tensors]
        try:
            self.model.model_validate({name: value for name, value in values.items() if name not in tensors})
        except ValidationError as error:
            found += problems(error, lambda _: self.defaults, prefix)
        return found

    def guard(self, function: F) -> F:
        """Return `function` with its arguments validated; a wrong type or value raises InputTypeError or InputError."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs).arguments
            given = {name: value for name, value in bound.items() if name in self.model.model_fields}
            if any(isinstance(value, Tensor) for value in given.values()):  # refused: pydantic reads it as a number
                raise InputTypeError(" ".join(self.problems(given)))
            try:
                self.model.model_validate(given)
            except ValidationError as error:
                types = any(item["type"].endswith(("_type", "_instance_of")) for item in error.errors())
                raise (InputTypeError if types else InputError)(
                    " ".join(problems(error, lambda _: self.defaults))
                ) from None
            return function(*args, **kwargs)

        return guarded  # type: ignore[return-value]
