"""Define argument types with a range, and validate arguments by a function's signature.

A range is written once, in the signature (`temperature: Temperature = 0.2`). It applies to direct calls, to the
configuration file and to the command line, and the help text shows it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from graphcl.errors import InputError, InputTypeError, one_line

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Interval:
    """A range of numbers, such as `[0, 1)`."""

    notation: str

    def __contains__(self, value: float) -> bool:
        low, high = (float(end) for end in self.notation[1:-1].split(","))
        above = value >= low if self.notation[0] == "[" else value > low
        below = value <= high if self.notation[-1] == "]" else value < high
        return above and below  # False for NaN, as both comparisons are false


def must_be(rule: str, holds: Callable[[Any], object], advice: str = "") -> AfterValidator:
    """Return a pydantic validator that raises the error "must be RULE, got VALUE" + `advice` unless `holds(value)`."""

    def check(value: Any) -> Any:
        if not holds(value):
            message = {"rule": rule, "value": shown(value), "advice": advice}
            raise PydanticCustomError("rule", "must be {rule}, got {value}{advice}", message)
        return value

    return AfterValidator(check)


def interval(notation: str, why: str = "") -> AfterValidator:
    """Return a pydantic validator of a range, for a type such as `Annotated[float, interval("[0, 1)", "a reason")]`."""
    return must_be(f"in {notation} ({why})" if why else f"in {notation}", Interval(notation).__contains__)


@dataclass(frozen=True)
class Needs:
    """A condition without which a setting has no effect; it stands beside the field: `Annotated[int, Needs("pairs")]`.

    `graphcl.config.resolve` reads it: a value other than the default is refused where the fact does not hold.

    Args:
        fact: a fact of a run, see `graphcl.config.resolve.FACTS`, or the name of another setting, which must differ
            from its default.
        text: the message after the setting's name, with placeholders such as {value}, {method} and {encoder}.
        free: values without this need, instead of the default.
    """

    fact: str
    text: str = "{value} has no effect without `{fact}`; leave it out"
    free: tuple[Any, ...] | None = None


Ratio = Annotated[float, interval("[0, 1)")]
"""The fraction of a graph that an augmentation changes."""
Fraction = Annotated[float, interval("[0, 1]")]
"""A fraction or a probability."""
Temperature = Annotated[float, interval("[1e-6, inf)")]
"""The temperature (tau in the papers), a divisor of cosine similarities; below 1e-6, float32 would overflow."""
LEARN = "learn"
"""Value of a temperature that is a parameter of the module `graphcl.losses.Loss`."""
LEAST_LEARNED = 0.01
"""Lower bound of a learned temperature, as in CLIP."""
Width = Annotated[float, interval("(0, inf]")]
"""The standard deviation of a Gaussian; `inf` gives every value the same weight."""
Finite = Annotated[float, interval("(-inf, inf)")]
NonNegative = Annotated[float, interval("[0, inf)")]
Positive = Annotated[float, interval("(0, inf)")]
Count = Annotated[int, interval("[1, 1e9)")]
Channels = Annotated[int, interval("[1, 16384]")]
"""The width of a layer; a layer from 16384 to 16384 channels holds a gigabyte of weights."""
Layers = Annotated[int, interval("[1, 1000]")]
Seed = Annotated[int, interval("[0, 4294967296)")]
FoldCount = Annotated[int, interval("[2, 1e9)")]


Cost = Annotated[float, interval("[1e-100, 1e100]")]
"""C of an SVM or a logistic regression; sums of values beyond 1e100 could overflow."""
Costs = Annotated[Sequence[Cost], Field(min_length=1)]
Counts = Annotated[Sequence[Count], Field(min_length=1)]
Name = Annotated[str, must_be("printable and of at most 200 characters", lambda s: s.isprintable() and len(s) <= 200)]
"""A name in a file of unknown origin: printable and at most 200 characters, so that messages can quote it."""
ProjectorName = Literal["mlp", "elu", "linear", "residual", "none"]
Role = Literal["query", "target"]
"""Role of a graph in a pair."""
KEPT = "kept"
"""In `Annotated`: marks a setting of loading that is saved with an encoder, whose graphs are later read likewise."""
SplitName = Annotated[
    str,
    must_be(
        "random, stratified or scaffold, with a seed if wanted, such as scaffold-1",
        re.compile(r"(random|stratified|scaffold)(-\d{1,9})?").fullmatch,
    ),
]
"""Splits of a table with targets."""
MetricName = Literal["rocauc", "ap", "acc", "rmse", "mae", "r2"]
"""Metrics by which a split can be scored."""
_WANTED = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "a string",
    **dict.fromkeys(("list", "tuple", "sequence"), "a list"),
    "callable": "a function",
    **dict.fromkeys(("dict", "model"), "a mapping of keys to values"),
}
"""First word of a type of pydantic's errors -> the value that is wanted."""
_TEXTS = {
    "missing": "is required",
    "invalid_key": "is not a known key: keys are strings",
    "too_short": "must hold one value or more, got none",
    "literal_error": "must be {expected}, got {value}",
    "is_instance_of": "must be of type {class}, got {value}",
}
"""Type of pydantic's errors -> the message after the name."""
MAX_NAMES = 30
"""Largest number of valid names that a message lists."""
_MEANT = {
    "simclr": "ntxent twoviews",
    "tau temp": "temperature",
    "p augratio droprate": "ratio",
    "augmentation augmentations aug transform transforms": "first second",
    "view1": "first",
    "view2": "second",
    "learningrate stepsize": "lr",
    "model network gnn backbone arch architecture": "encoder",
    "evaluator evaluators evaluate classifier downstream": "eval",
    "batch bs": "batchsize",
    "dim hidden hiddendim hiddensize embdim embeddingdim width channels units": "hiddenchannels outchannels",
    "outdim": "outchannels",
    "projdim projectiondim": "projection",
    "layers nlayers numgclayers depth": "numlayers",
    "epoch numepochs nepochs maxepochs": "epochs",
    "iterations iters maxsteps": "steps",
    "seed": "seeds randomstate",
    "randomstate": "seeds",
    "optim": "optimizer",
    "wd l2": "weightdecay",
    "scheduler lrscheduler": "schedule",
    "clip gradclip clipgrad maxnorm": "clipnorm",
    "earlystopping": "patience",
    "fp16 bf16 precision mixedprecision": "amp",
    "gpu cuda": "device",
    "workers numworkers": "threads",
    "data ds dataname": "dataset",
    "output outdir savedir logdir folder": "out",
    "pooling pool": "readout",
    "criterion objective lossfn": "loss",
    "cv nfolds kfold kfolds": "folds",
    "pretrained weights": "init",
    "m ema": "momentum",
}
_SYNONYMS = {word: meant.split() for words, meant in _MEANT.items() for word in words.split()}
"""Name that people type -> names in this library, all in lower case without `_` and `-`."""
MAX_PROBLEMS = 20
"""Largest number of mistakes that one message lists."""


def nearest(name: object, valid: Iterable[str], similar: Sequence[str] = ()) -> str:
    """Return advice on an unknown `name` for an error message: similar names, and all valid names.

    Beyond `MAX_NAMES` valid names, list only the three most similar ones, or those in `similar`.
    """
    names = sorted(set(valid))
    if len(names) > MAX_NAMES:
        return f"{did_you_mean(similar or resembling(name, names, 0))}there are {len(names)} names"
    return f"{did_you_mean(resembling(name, names))}choose from: {', '.join(names) or 'nothing'}"


def did_you_mean(names: Sequence[str]) -> str:
    """Return "did you mean A or B? ", or an empty string without names; arguments of both views are joined by "and"."""
    both = {"first", "second"} <= {part for name in names for part in name.split(".")}
    return f"did you mean {(' and ' if both else ' or ').join(names)}? " if names else ""


def resembling(name: object, valid: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """Return up to three valid names that resemble `name`, best first, regardless of case, `_`, `-` and word order.

    A dotted name is also compared by its last part.

    Example:
        >>> resembling("NTXent", ["adnce", "nt_xent"]), resembling("drop_nodes", ["node_drop", "identity"])
        (['nt_xent'], ['node_drop'])
        >>> resembling("temperature", ["features", "loss.temperature"])
        ['loss.temperature']
    """

    def by_word(text: str) -> str:
        return "".join(sorted(text[:100].lower().replace("-", "_").split("_")))

    wanted = plain(str(name)[:100])
    forms = {option: {plain(option), plain(option.rpartition(".")[2])} for option in valid}
    same = [option for key in (wanted, *_SYNONYMS.get(wanted, ())) for option in forms if key in forms[option]]
    if same:
        return same[:3]
    likeness = {}
    for option, keys in forms.items():
        pairs = [(by_word(str(name)), by_word(option)), *((wanted, key) for key in keys)]
        likeness[option] = max(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)
    best = sorted(likeness, key=lambda option: -likeness[option])[:3]
    return [option for option in best if likeness[option] >= cutoff]


def plain(name: str) -> str:
    """Return a name in lower case, without `_` and `-`."""
    return name.lower().replace("_", "").replace("-", "")


def problems(
    error: ValidationError,
    model: type[BaseModel],
    prefix: str = "",
    unknown: Callable[[str], str] | None = None,
) -> list[str]:
    """Return one line for each problem of a failed validation; a last line counts problems beyond `MAX_PROBLEMS`.

    Args:
        error: the error that pydantic raised.
        model: the model that was validated.
        prefix: dotted path put before each name.
        unknown: function that returns advice on an unknown setting; default: the nearest fields of `model`.
    """
    lines = []
    errors = error.errors()
    for item in errors[:MAX_PROBLEMS]:
        name = f"`{prefix}{'.'.join(one_line(part, 60) for part in item['loc'])}`"
        kind, values = item["type"], {"value": shown(item["input"]), **item.get("ctx", {})}
        expected = "a list" if values.get("class") == "Sequence" else _WANTED.get(kind.split("_")[0])
        if kind == "extra_forbidden":
            *parents, key = item["loc"]
            inner: Any = model
            for parent in parents:  # through a list or an optional group, no keys are known
                inner = getattr(getattr(inner, "model_fields", {}).get(parent), "annotation", None)
            advice = unknown(str(key)) if unknown and not parents else nearest(key, getattr(inner, "model_fields", ()))
            text = f"is not a known key; {advice}"
        elif expected and kind.endswith(("_type", "_parsing", "_str", "_from_float", "_of")):
            text = f"must be {expected}, got {values['value']}"
        else:
            text = _TEXTS[kind].format(**values) if kind in _TEXTS else one_line(item["msg"], 300)
        lines.append(f"{name} {text}.")
    if len(errors) > MAX_PROBLEMS:
        lines.append(f"... and {len(errors) - MAX_PROBLEMS} more.")
    return lines


def shown(value: object) -> str:
    """Return the repr of `value` on one line, shortened if it is long."""
    try:
        return one_line(repr(value))
    except (ValueError, RecursionError):  # repr fails for an integer of thousands of digits and for deeply nested lists
        return f"a large {type(value).__name__}"


class Settings(BaseModel):
    """Base class of settings. Values are immutable and never converted; unknown names are errors.

    A setting is defined once, by a field: its name, type, range and default, and its help text in the docstring below
    it. The title of a field is the placeholder for its value in the help of the command line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings given as keyword arguments of a function.

        Raises:
            InputTypeError: a value is of the wrong type.
            InputError: a value is out of range.
        """
        try:
            return cls.model_validate(to_python(values))
        except ValidationError as error:
            raise _input_error(error, cls) from None


class Arguments:
    """Validator for the arguments of a function, made from the function's signature.

    Only settings are validated. Parameters without a default (`required`), tensors and random generators (`tensors`)
    are data, which the function checks itself. `problems` also accepts "learn" for a temperature (`learnable`); the
    function does not.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        from torch import Generator, Tensor  # not at the top, because help texts must not import torch

        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        self.required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
        self._tensor = Tensor
        self.learnable = [name for name, hint in hints.items() if hint == Temperature]
        kinds = {name: (hints.get(name), *get_args(hints.get(name))) for name in parameters}
        self.tensors = [name for name, of in kinds.items() if Tensor in of or Generator in of]
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
        """Return one error message per problem with `values` as arguments of the function; an empty list if valid."""
        tensors = [name for name, value in values.items() if isinstance(value, self._tensor)]
        lines = [f"`{prefix}{name}` must be a plain value, got a tensor." for name in tensors]
        plain_values = {name: value for name, value in values.items() if name not in tensors}
        learned = {name for name in self.learnable if isinstance(values.get(name), str) and values[name] == LEARN}
        try:
            self.model.model_validate(plain_values | dict.fromkeys(learned, LEAST_LEARNED))
        except ValidationError as error:
            lines += problems(error, self.model, prefix)
        return lines

    def guard(self, function: F) -> F:
        """Return a wrapper of `function` that raises InputError for an argument of a wrong name, type or value.

        The wrapper converts NumPy numbers and arrays that are given by keyword to Python's, as validation is strict.
        """

        fields = self.model.model_fields
        converted = {name for name, field in fields.items() if field.annotation is not Any}  # Any may be a large array

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            kwargs = {name: to_python(value) if name in converted else value for name, value in kwargs.items()}
            settings = {name: value for name, value in bind(function, args, kwargs).items() if name in fields}
            if any(isinstance(value, self._tensor) for value in settings.values()):  # pydantic takes it as a number
                raise InputTypeError(" ".join(self.problems(settings)))
            try:
                self.model.model_validate(settings)
            except ValidationError as error:
                raise _input_error(error, self.model) from None
            return function(*args, **kwargs)

        return guarded  # type: ignore[return-value]


def checked(function: F) -> F:
    """Return a wrapper of `function` that raises InputError for an invalid setting, see `Arguments.guard`."""
    return Arguments(function).guard(function)


def _input_error(error: ValidationError, model: type[BaseModel]) -> InputError:
    types = any(item["type"].endswith(("_type", "_instance_of")) for item in error.errors())
    return (InputTypeError if types else InputError)(" ".join(problems(error, model)))


def keywords(model: type[BaseModel], names: Iterable[str] = ()) -> Callable[[F], F]:
    """Return a decorator that gives `function(..., **settings)` the signature with a keyword for each setting.

    Args:
        model: settings model.
        names: settings that are keywords; default: all.
    """

    def decorate(function: F) -> F:
        signature, types = inspect.signature(function), get_type_hints(model)  # types without ranges, to be readable
        parameters = [part for part in signature.parameters.values() if part.kind is not part.VAR_KEYWORD]
        for name in names or model.model_fields:
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=types[name])
            parameters.append(parameter.replace(default=model.model_fields[name].default))
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


def without_ranges(value: Any) -> list[Any]:
    """Return `value` as a list, with strings such as `3` and `0-4` replaced by the integers in that range."""
    numbers = list[Any]()
    for item in value if isinstance(value, list) else [value]:
        for part in item.split(",") if isinstance(item, str) else [item]:
            ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part) if isinstance(part, str) else None
            span = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else range(0)
            numbers += span if 0 < len(span) <= 10_000 else [part]
    return numbers


def to_python(value: Any) -> Any:
    """Convert NumPy numbers and arrays to Python's, also within dicts and lists; a tuple becomes a list."""
    if isinstance(value, dict):
        return {key: to_python(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_python(item) for item in value]
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def bind(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    advice: Callable[[str], str] = lambda name: "",
) -> dict[str, Any]:
    """Return the arguments of `function` by name; raise InputTypeError if one is missing or unknown.

    `advice` takes an unknown name and returns what to pass instead; if that is "", the message lists the valid names.
    """
    signature = inspect.signature(function)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        callee = function.__name__
        if callee == "__init__":  # the class that the user named may have inherited it
            callee = type(args[0]).__name__
        names = [name for name in signature.parameters if name != "self"]
        wrong = next((name for name in kwargs if name not in names), None)
        line = f" has no argument `{wrong}`; {advice(wrong) or nearest(wrong, names)}" if wrong else f": {error}"
        raise InputTypeError(f"`{callee}`{line}.") from None


def named_arguments(function: F, advice: Callable[[str], str] = lambda name: "") -> F:
    """Return a wrapper of `function` that raises InputTypeError if an argument is missing or unknown, see `bind`."""

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            bind(function, args, kwargs, advice)
            raise

    return named  # type: ignore[return-value]
