"""The parser of all commands' arguments: `--key value value`, dotted keys, `--config FILE`, `--help`."""

from __future__ import annotations

import re
import textwrap
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from graphcl.arguments import nearest, problems
from graphcl.config.completion import valid_keys
from graphcl.config.files import parse_value, read_config
from graphcl.config.nested import set_value
from graphcl.errors import InputError
from graphcl.version import __version__

S = TypeVar("S", bound=BaseModel)
Options = list[tuple[str, list[str]]]
"""Pairs of an option's key and its values, in the order given."""
GENERAL = {
    "--config FILE": "YAML file with settings, or the name of a shipped configuration; options override it",
    "--print-config": "print the complete settings and exit",
    "--version": "print the version and exit",
    "--help": "print this help and exit",
}
"""Options of every command."""
_METAVARS = {bool: "", int: "N", float: "X", str: "TEXT"}


@dataclass(frozen=True)
class Command(Generic[S]):
    """A command of the command line: it parses arguments into settings, and prints help.

    Every field of `model` is an option `--field`; nested settings have dotted names. Options override `--config FILE`
    regardless of their order. If a setting is given several times, the last value is used.

    Args:
        usage: usage line of the help text.
        summary: description of the command in the help text.
        model: pydantic model of the settings.
        positional: field that the first argument sets if it does not begin with `--`.
        validate: function that makes settings from nested values; default: `Command.model_validate`.
        rewrite: function that replaces the given options before they are read.
        details: function that returns further help text.
    """

    usage: str
    summary: str
    model: type[S]
    positional: str | None = None
    validate: Callable[[dict[str, Any]], S] | None = None
    rewrite: Callable[[Options], Options] | None = None
    details: Callable[[], str] | None = None

    def parse(self, arguments: Sequence[str]) -> S | None:
        """Parse arguments and return the settings.

        For `--help`, `--version` and `--print-config`, print the requested text and return None.

        Raises:
            InputError: an argument is invalid; the message has one line per problem.
        """
        if self.answers(arguments):
            return None
        first, options = self.split(arguments)
        options = self.rewrite(options) if self.rewrite else options
        values: dict[str, Any] = {} if first is None else {str(self.positional): first}
        for key, given in options:
            if key == "config":
                values = {**read_config(one_value(key, given)), **values}
        defaults = {name: _plain(field.default) for name, field in self.model.model_fields.items()}
        for key, given in options:
            if key not in ("config", "print_config"):
                set_value(values, key.split("."), read_value(self.model, key, given), defaults)
        settings = (self.validate or self.model_validate)(values)
        if "print_config" in dict(options):
            print(yaml.safe_dump(settings.model_dump(), sort_keys=False, allow_unicode=True), end="")
            return None
        return settings

    def answers(self, arguments: Sequence[str]) -> bool:
        """Print the help text or the version if an argument requests it, and return whether one does."""
        if "--help" in arguments or "-h" in arguments:
            print(self.help(), end="")
        elif "--version" in arguments:
            print(f"graphcl {__version__}")
        else:
            return False
        return True

    def split(self, arguments: Sequence[str], *more: str) -> tuple[str | None, Options]:
        """Split arguments into the positional argument, or None, and the options.

        Args:
            arguments: arguments of the command line.
            *more: names of valid options in addition to the model's fields.

        Raises:
            InputError: an argument belongs to no option, or an option is unknown.
        """
        first = None
        if self.positional is not None and arguments and not arguments[0].startswith("--"):
            first, *arguments = arguments
        known = [name for name in self.model.model_fields if name != self.positional]
        return first, split_options(arguments, [*known, *more, "config", "print_config"])

    def model_validate(self, values: dict[str, Any]) -> S:
        """Validate nested values and return them as settings.

        Raises:
            InputError: a value is missing or invalid; the message has one line per problem.
        """
        required = [name for name, field in self.model.model_fields.items() if field.is_required()]
        if missing := [name for name in required if name not in values]:
            names = [f"`{name.upper() if name == self.positional else flag(name)}`" for name in missing]
            raise InputError(f"{' and '.join(names)} must be given; see --help.")
        try:
            return self.model.model_validate(values)
        except ValidationError as error:
            raise InputError("\n".join(problems(error, valid_keys(self.model)))) from None

    def help(self) -> str:
        """Return the help text of the command."""
        lines = [f"usage: {self.usage}", "", self.summary, ""]
        for name, field in self.model.model_fields.items():
            title = field.title or metavar(field.annotation)
            option = field.title or name.upper() if name == self.positional else f"{flag(name)} {title}".rstrip()
            lines.append(_option_line(option, f"{field.description}{_default(field)}"))
        lines += [_option_line(option, text) for option, text in GENERAL.items()]
        return "\n".join([*lines, *(["", self.details()] if self.details else [])]) + "\n"


def split_options(arguments: Iterable[str], known: Sequence[str]) -> Options:
    """Split `--key value value ...` and `--key=value` into options; dashes in keys become underscores.

    Args:
        arguments: arguments of the command line.
        known: valid keys; a dotted key is valid if its first part is.

    Raises:
        InputError: an argument belongs to no option, or an option is unknown.
    """
    options: Options = []
    for argument in arguments:
        if argument.startswith("--") and len(argument) > 2:
            key, equals, value = argument[2:].partition("=")
            options.append((key.replace("-", "_"), [value] if equals else []))
        elif options:
            options[-1][1].append(argument)
        else:
            raise InputError(f"`{argument}` belongs to no option; pass settings as --KEY VALUE, see --help.")
    for key, _ in options:
        if key.split(".")[0] not in known:
            raise InputError(f"`{flag(key)}` is not a known option; {nearest(key, known)}.".replace("_", "-"))
    return options


def read_value(model: type[BaseModel], key: str, given: list[str]) -> Any:
    """Convert the values of an option to the value of the setting, and return it.

    A list of names may be separated by commas or blanks; any other list has one element per value. A text setting keeps
    its text, so `--dataset 123` is "123". An option without a value is true.

    Args:
        model: settings that contain the field.
        key: name of the field, or a dotted key below it.
        given: values of the option, as texts.

    Raises:
        InputError: the number of values is wrong.
    """
    kind = _base(model.model_fields[key].annotation) if key in model.model_fields else None
    if get_origin(kind) is list:
        if not given:
            raise InputError(f"`{flag(key)}` takes one or more values, got 0.")
        text = " ".join(given)
        whole = parse_value(text)
        if isinstance(whole, list):
            return whole
        names = _base(get_args(kind)[0]) is str or get_origin(_base(get_args(kind)[0])) is Literal
        return re.findall(r"[^\s,]+", text) if names else [parse_value(each) for each in given]
    if not given:
        return True
    value = parse_value(one_value(key, given))
    return given[0] if kind is str and value is not None else value


def one_value(key: str, given: Sequence[str]) -> str:
    """Return the only value of the option `key`.

    Raises:
        InputError: the option has no value, or several.
    """
    if len(given) != 1:
        raise InputError(f"`{flag(key)}` takes one value, got {len(given)}.")
    return given[0]


def flag(name: str) -> str:
    """Return the option of a setting: `--batch-size` for `batch_size`."""
    return "--" + name.replace("_", "-")


def shown_default(value: Any) -> str:
    """Return a default value as text, in the notation of the command line."""
    if isinstance(value, dict):
        parts = {key: shown_default(each) for key, each in value.items()}
        return ", ".join(text if key == "name" else f"{key}={text}" for key, text in parts.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "null" if value is None else str(value)


def metavar(annotation: Any) -> str:
    """Return the placeholder for a value of this type in the help text, such as `N` for an integer."""
    kind = _base(annotation)
    if get_origin(kind) is list:
        return f"{metavar(get_args(kind)[0])} ..."
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    return _METAVARS.get(kind, "VALUE")


def _option_line(option: str, text: str) -> str:
    return textwrap.fill(
        text, 120, initial_indent=f"  {option:23} ", subsequent_indent=" " * 26, break_on_hyphens=False
    )


def _default(field: FieldInfo) -> str:
    value = _plain(field.default)
    hidden = field.is_required() or value is None or value is False or value == []
    return "" if hidden else f" [{shown_default(value)}]"


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def _base(annotation: Any) -> Any:
    """Return the type inside `Annotated[...]` and `... | None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation
