"""Parse the arguments of every command: `--key value value`, dotted keys, `--config FILE`; make its help texts."""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from graphcl.arguments import did_you_mean, nearest, plain, problems, resembling
from graphcl.cli import program
from graphcl.config.recipes import override, parse_value, plain_default, read_config, shipped_configs
from graphcl.config.resolve import NAMED, choices, similar_settings, to_yaml
from graphcl.datasets.settings import split_columns, split_names
from graphcl.errors import InputError
from graphcl.registry import Registry, evaluators, import_files, sources
from graphcl.system.memory import import_pyg
from graphcl.version import __version__

S = TypeVar("S", bound=BaseModel)
Options = list[tuple[str, list[str]]]
"""Options of a command line in the given order, each as a pair of its key and its values."""
GENERAL = {
    "--config FILE": "YAML file with settings, or the name of a shipped configuration; options override it",
    "--print-config": "print the complete settings and exit",
    "--version": "print the version and exit",
    "--help": "print this help and exit",
}
"""Options that every command accepts, with their help texts."""
_KEYWORDS = {"import": "imports"}
"""Option that is a keyword of Python -> its setting."""
_METAVARS = {bool: "", int: "N", float: "X", str: "TEXT"}


@dataclass(frozen=True)
class Command(Generic[S]):
    """Parser of the arguments of one command, such as `graphcl run`, with its help text.

    Every field of `model` is an option `--field`; nested settings have dotted names. Options override `--config FILE`
    regardless of their order. The values of a repeated option add up.

    Args:
        usage: usage line of the help text.
        model: pydantic model of the settings.
        summary: description of the command in the help text; default: the docstring of `model`.
        positional: field that the first argument sets if it does not begin with `--`; also an option otherwise.
        validate: function that converts nested values, and the names of those that are options, into settings;
            default: `Command.model_validate`.
        rewrite: function that takes the given options and returns the options to use instead.
        details: function that returns further help text.
        common: fields that the short help lists; default: all. `--help all` always lists all.
        topic: function that takes the NAME of `--help NAME` and returns a help text.
        of_run: whether settings of `graphcl run` are options too, also those that are no fields of `model`.
        without: fields that are no options of this command, only of `graphcl run`.
        recipes: folder of the shipped configurations that `--config` names, see `read_config`.
    """

    usage: str
    model: type[S]
    summary: str = ""
    positional: str | None = None
    validate: Callable[[dict[str, Any], Sequence[str]], S] | None = None
    rewrite: Callable[[Options], Options] = list
    details: Callable[[], str] = str
    common: Sequence[str] | None = None
    topic: Callable[[str], str] | None = None
    of_run: bool = False
    without: Collection[str] = ()
    recipes: str = ""

    def main(
        self, function: Callable[[S], str | None], interrupted: str = "nothing was written"
    ) -> Callable[[Sequence[str] | None], int]:
        """Return the entry point of the command, which takes arguments and returns the exit code.

        Args:
            function: function that runs the command; the text that it returns is printed.
            interrupted: text of the message on an interruption, see `program`.
        """

        def main(arguments: Sequence[str] | None = None) -> int:
            with program(interrupted) as this:
                settings = self.parse(arguments)
                if settings is not None and (text := function(settings)):
                    print(text)
            return this.code

        return main

    def parse(self, arguments: Sequence[str] | None = None) -> S | None:
        """Parse arguments, by default those of this process, and return the settings.

        For `--help`, `--version` and `--print-config`, print the requested text and return None. Raise InputError if
        an argument is invalid; the message has one line per problem.
        """
        arguments = sys.argv[1:] if arguments is None else arguments
        if self.show_help(arguments):
            return None
        first, options = self.split(arguments)
        options = self.rewrite(options)
        values: dict[str, Any] = {} if first is None else {str(self.positional): first}
        last = dict(options)
        if "config" in last:
            dataset = one_value("dataset", last["dataset"]) if "dataset" in last else None
            values = {**read_config(one_value("config", last["config"]), dataset, self.recipes), **values}
        typed = {key: texts for key, texts in options if key not in ("config", "print_config")}
        typed_values = {key: read_value(self.model, key, texts) for key, texts in typed.items()}
        values = override(values, typed_values, self.model)
        if "torch" not in sys.modules and sys.stderr.isatty():
            print("loading PyTorch ...", file=sys.stderr)  # the import takes seconds
        import_pyg()
        settings = self.validate(values, [*last]) if self.validate else self.model_validate(values)
        if "print_config" in last:
            print(to_yaml(settings), end="")
            return None
        return settings

    def show_help(self, arguments: Sequence[str]) -> bool:
        """Print the help text or the version if an argument requests it; return whether anything was printed."""
        asked = next((place for place, argument in enumerate(arguments) if argument in ("--help", "-h")), None)
        if asked is not None:
            name, before = "".join(arguments[asked + 1 : asked + 2]).replace("--", ""), arguments[:asked]
            if any(argument.startswith("--import") for argument in before):
                import_files(file for key, files in self.split(before)[1] if key == "imports" for file in files)
            print(self.topic(name) if self.topic and name not in ("", "all") else self.help(name == "all"), end="")
        elif "--version" in arguments:
            print(f"graphcl {__version__}")
        return asked is not None or "--version" in arguments

    def split(self, arguments: Sequence[str], *more: str) -> tuple[str | None, Options]:
        """Return the positional argument (None if it is not given) and the options.

        Options are `--key value value` or `--key=value`. Dashes in keys are replaced by underscores. Keys are the
        model's fields and `more`; of a dotted key, only the part before the first dot is checked. Each option is
        returned once, with the values of all its occurrences.

        Raises:
            InputError: an argument belongs to no option, or an option is unknown.
        """
        first, options = None, Options()
        if self.positional is not None and arguments and not arguments[0].startswith("--"):
            first, *arguments = arguments
        fields = [name for name in self.model.model_fields if name not in self.without]
        valid = [name for name in fields if first is None or name != self.positional]
        valid += [*more, "config", "print_config"]
        for argument in arguments:
            if argument.startswith("--") and len(argument) > 2:
                key, equals, value = argument[2:].partition("=")
                options.append((_KEYWORDS.get(key, key.replace("-", "_")), [value] if equals else []))
            elif options:
                options[-1][1].append(argument)
            else:
                hint = f", such as --dataset {argument}" if "dataset" in valid else ""
                raise InputError(f"`{argument}` belongs to no option; pass settings as --KEY VALUE{hint}, see --help.")
        for key, _ in options:
            if key.split(".")[0] in self.without:
                raise InputError(f"`{flag(key)}` is an option of graphcl run only; leave it out.")
            if key.split(".")[0] not in valid:
                meant = similar_settings(key) if self.of_run else resembling(key, valid)
                advice = did_you_mean([*map(flag, meant)])
                raise InputError(f"`{flag(key)}` is not a known option; {advice}see --help all.")
        merged: dict[str, list[str]] = {}
        for key, values in options:
            merged[key] = [*merged.get(key, ()), *values]
        return first, list(merged.items())

    def model_validate(self, values: dict[str, Any]) -> S:
        """Return nested values as settings; raise InputError with one line per missing or invalid value."""
        fields = self.model.model_fields.items()
        missing = [name for name, field in fields if field.is_required() and name not in values]
        if missing:
            names = [f"`{name.upper() if name == self.positional else flag(name)}`" for name in missing]
            raise InputError(f"{' and '.join(names)} must be given; see --help.")
        try:
            return self.model.model_validate(values)
        except ValidationError as error:
            raise InputError("\n".join(problems(error, self.model))) from None

    def help(self, every: bool = False) -> str:
        """Return the help text of the command, with all options if `every`, else with the common options."""
        fields = self.model.model_fields
        names = sorted(fields, key=lambda name: not fields[name].is_required() and name != self.positional)
        names = [*self.common] if self.common is not None and not every else names
        names = [name for name in names if name not in self.without]
        lines = [option_help(name, fields[name], positional=name == self.positional) for name in names]
        lines += [option_line(option, text) for option, text in GENERAL.items()]
        lines += ["", self.details()] if self.details() else []
        about = self.summary or inspect.getdoc(self.model) or ""
        return "\n".join([f"usage: {self.usage}", "", about, "", *lines]) + "\n"


def read_value(model: type[BaseModel], key: str, texts: list[str]) -> Any:
    """Convert the texts given for the option `key`, such as `lr` or `loss.mu`, to the type of the setting.

    In a list of names, commas and blanks separate names, in a list of columns only commas; in other lists, every value
    is one element. A string setting is not converted, so `--dataset 123` gives "123". An option without a value gives
    True.

    Raises:
        InputError: the number of values is wrong.
    """
    kind = _base(model.model_fields[key].annotation) if key in model.model_fields else None
    if kind is not None and _is_list(kind):
        if not texts:
            raise InputError(f"`{flag(key)}` takes one or more values, got 0.")
        whole = parse_value(" ".join(texts))
        if isinstance(whole, list):
            return whole
        if any(getattr(rule, "func", None) is split_columns for rule in model.model_fields[key].metadata):
            return split_columns(",".join(texts))
        element = _base(get_args(kind)[0])
        names = element is str or get_origin(element) is Literal
        return split_names(" ".join(texts)) if names else [parse_value(text) for text in texts]
    if not texts and kind in (None, bool):
        return True
    if get_origin(kind) is dict and len(texts) > 1:
        raise InputError(f"`{flag(key)}` takes one value, got {len(texts)}; graphcl sweep compares several.")
    value = parse_value(one_value(key, texts))
    if isinstance(kind, type) and issubclass(kind, BaseModel) and not isinstance(value, dict):
        parts = " or ".join(f"{flag(key)}.{name}" for name in kind.model_fields)
        raise InputError(f"`{flag(key)}` is a group; set {parts}.")
    return texts[0] if kind is str and value is not None else value


def one_value(key: str, texts: Sequence[str]) -> str:
    """Return the only value of the option `key`, or raise InputError."""
    if len(texts) != 1:
        raise InputError(f"`{flag(key)}` takes one value, got {len(texts)}.")
    return texts[0]


def flag(name: str) -> str:
    """Return the option that sets the setting `name`, such as `--batch-size` for `batch_size`."""
    return "--" + next((option for option, key in _KEYWORDS.items() if key == name), name.replace("_", "-"))


def shown_default(value: Any) -> str:
    """Return a default value as text, in the notation of the command line."""
    if isinstance(value, dict):
        parts = {key: shown_default(part) for key, part in value.items()}
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


def option_help(name: str, field: FieldInfo, positional: bool = False) -> str:
    """Return the line of the help text on the setting `name`: option, description and default."""
    title = field.title or metavar(field.annotation)
    option = field.title or name.upper() if positional else f"{flag(name)} {title}".rstrip()
    value = plain_default(field)
    hidden = field.is_required() or value is None or value is False or value == []
    return option_line(option, f"{field.description}" if hidden else f"{field.description} [{shown_default(value)}]")


def option_line(option: str, text: str) -> str:
    """Return a line of the help text: `option`, then `text`, wrapped at 120 columns."""
    return textwrap.fill(f"  {option:23} {text}", 120, subsequent_indent=" " * 26, break_on_hyphens=False)


def _is_list(annotation: Any) -> bool:
    return get_origin(_base(annotation)) is list


def _base(annotation: Any) -> Any:
    """Return the type without `Annotated` and `None`: `int` for `Annotated[int | None, ...]`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(part for part in get_args(annotation) if part is not type(None))
        else:
            return annotation


REGISTRIES: dict[str, tuple[Registry, str]] = {}
"""Help topic, such as `losses` -> registry, and the first setting that takes a name from this registry."""
for _path, _registry in NAMED.items():
    REGISTRIES.setdefault(_registry.group.removeprefix("graphcl."), (_registry, _path))
REGISTRIES["evaluators"] = (evaluators, "eval")
LISTS = (*REGISTRIES, "datasets", "configurations")
SHIPPED = Path(__file__).with_name("topics.json")
"""Help texts of the registries, and the modules that they are of; `python -m tests.cli.test_topics` writes it."""


def topic(name: str) -> str:
    """Return the help text for a list of names such as `losses`, or for a registered name such as `adnce`.

    Raises:
        InputError: `name` is unknown.
    """
    if name in REGISTRIES:  # the shipped text needs no PyTorch
        shipped = json.loads(SHIPPED.read_text(encoding="utf-8")).get(name, {})
        if shipped and shipped["modules"] == REGISTRIES[name][0].modules():
            return str(shipped["text"])
    if name in LISTS:
        return list_names(name)
    texts = [
        _describe(member, registry, setting)
        for registry, setting in REGISTRIES.values()
        for member in registry
        if plain(member) == plain(name)
    ]
    if not texts:
        names = [member for registry, _ in REGISTRIES.values() for member in choices(registry)]
        names += LISTS
        raise InputError(f"no help about {name!r}; {nearest(name, names)}; topics: all, {', '.join(LISTS)}.")
    return "\n".join(texts)


def list_names(kind: str) -> str:
    """Return the help text of the list `kind`, such as `losses`."""
    return "\n".join([f"{kind}:", *(f"  {member:15} {text}".rstrip() for member, text in _rows(kind))]) + "\n"


def _describe(name: str, registry: Registry, setting: str) -> str:
    options = [f"--{setting}.{key} {value}" for key, value in _defaults(registry, name).items()]
    command = " ".join([f"--{setting} {name}", *options])
    return f"{registry.kind} {name}, with its defaults:\n  {command}\n\n{inspect.getdoc(registry[name]) or ''}\n"


def _defaults(registry: Registry, name: str) -> dict[str, str]:
    values = {} if registry is evaluators else registry.arguments(name).defaults  # `evaluation` sets theirs
    return {key: shown_default(value) for key, value in values.items() if key != "reduction"}


def _rows(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each member of the list `kind`, such as `losses`."""
    if kind in REGISTRIES:
        registry, _ = REGISTRIES[kind]
        for name in choices(registry):
            yield name, registry.summary(name)
            if defaults := _defaults(registry, name):
                yield "", ", ".join(map("=".join, defaults.items()))
    elif kind == "datasets":
        from graphcl.datasets import dataset_names

        for line in textwrap.wrap(", ".join(dataset_names()), 108, break_on_hyphens=False):
            yield line, ""
        for name in sources:
            if takes := sources.facts(name)["takes"]:
                yield f"or {takes}", ""
    else:
        for name, file in shipped_configs().items():
            yield name, file.read_text(encoding="utf-8").split("\n# ")[1].split(":")[0]
