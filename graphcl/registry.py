"""Register losses, augmentations, encoders, methods, evaluators and more by name, and validate their arguments.

A file in `graphcl/losses/formulas/` or `graphcl/augment/` registers its functions; the command line, the help text and
the contract tests then find them. Installed packages add names by entry points of the groups `graphcl.losses`,
`graphcl.augmentations`, `graphcl.encoders`, `graphcl.methods`, `graphcl.evaluators`, `graphcl.references`,
`graphcl.datasets`, `graphcl.sources` and `graphcl.tasks`. The folders in `graphcl/extensions/` do the same.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import yaml

from graphcl.arguments import Arguments, nearest
from graphcl.errors import InputError, InputWarning, one_line, reason, warn

T = TypeVar("T", bound=Callable[..., Any])
_NAME = re.compile(r"(?!(auto|all)$)\w[\w.+-]*")
_RULE = "a name of letters, digits and `._+-` that is no number, nor auto, all, or a word of YAML such as yes"


class PluginWarning(InputWarning):
    """An installed package's entry point cannot be used; the message names the package."""


class Registry(Mapping[str, Callable[..., Any]]):
    """Mapping from names to the registered functions or classes of one kind.

    Args:
        kind: kind of the registered objects, such as "loss"; for messages.
        *packages: packages or modules that register functions when they are imported; the first look-up imports them.
        group: entry point group in which other packages add names; the first look-up reads it. Default: none.
        **facts: default metadata of every name, see the method `facts`; if given, `register` takes no others.
    """

    def __init__(self, kind: str, *packages: str, group: str = "", **facts: str) -> None:
        self.kind, self.packages, self.group = kind, packages, group
        self._usual = facts
        self._targets: dict[str, Callable[..., Any]] = {}
        self._arguments: dict[str, Arguments] = {}
        self._facts: dict[str, dict[str, str]] = {}
        self._owners: dict[str, str] = {}
        self._discovered = False

    def register(self, name: str, **facts: str) -> Callable[[T], T]:
        """Return a decorator that registers a function or class under `name` and validates its arguments.

        Args:
            name: name by which the function or class is looked up.
            **facts: metadata of `name`, see the method `facts`.

        Raises:
            InputError: the name is invalid or registered already.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(yaml.safe_load(name), str):
            raise InputError(f"a {self.kind} must be registered by {_RULE}, got {one_line(repr(name))}.")

        def decorate(target: T) -> T:
            if name in self._targets or name in self._owners:
                owner = self._owners.get(name) or self._targets[name].__module__
                raise InputError(f"{self.kind} `{name}` is registered already, by {owner}.")
            if self._usual and (unknown := sorted(facts.keys() - self._usual)):
                advice = nearest(unknown[0], self._usual)
                raise InputError(f"{self.kind} `{name}` is registered with an unknown fact {unknown[0]!r}; {advice}.")
            is_class = inspect.isclass(target)
            function = target.__init__ if is_class and target.__init__ is not object.__init__ else target
            arguments = Arguments(function)
            self._arguments[name] = arguments
            if not is_class:
                target = arguments.guard(target)
            elif function is not target:
                setattr(target, "__init__", arguments.guard(function))  # noqa: B010, mypy refuses the assignment
            self._targets[name], self._facts[name] = target, self._usual | facts
            return target

        return decorate

    def reserve(self, *names: str) -> None:
        """Reserve `names`, so that `register` raises InputError for them."""
        self._owners.update(dict.fromkeys(names, "graphcl"))

    def arguments(self, name: str) -> Arguments:
        """Return the validator for the arguments of `name`."""
        self[name]
        return self._arguments[name]

    def facts(self, name: str) -> Mapping[str, str]:
        """Return the metadata registered with `name`, for example `{"method": "two_views", ...}` for a loss."""
        self[name]
        return self._facts[name]

    def fact(self, name: str, key: str) -> str:
        """Return a fact of `name`; the default for a name that is not registered, as its file was not imported."""
        return self.facts(name)[key] if name in self else self._usual[key]

    def registered(self, package: str) -> dict[str, Callable[..., Any]]:
        """Return what the modules of `package` have registered so far, by name, without looking for more."""
        targets = sorted(self._targets.items())
        return {name: target for name, target in targets if f"{target.__module__}.".startswith(f"{package}.")}

    def summary(self, name: str) -> str:
        """Return the first line of the docstring of `name`."""
        return (inspect.getdoc(self[name]) or "").split("\n")[0]

    def modules(self) -> list[str] | None:
        """Return the modules that the first look-up imports, or None if it, or another import, has registered names."""
        if self._targets or self._discovered:
            return None
        root, names = Path(__file__).parents[1], [point.value for point in entry_points(self.group)]
        for package in self.packages:
            names += [f"{package}.{path.stem}" for path in sorted((root / package.replace(".", "/")).glob("*.py"))]
        return names

    def problems(self, name: str, values: Mapping[str, Any], prefix: str = "") -> list[str]:
        """Return one error message per problem with `values` as arguments of `name`; an empty list if valid."""
        try:
            return self.arguments(name).problems(values, prefix)
        except InputError as error:
            return [str(error)]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        self._discover()
        if name not in self._targets:
            raise InputError(f"unknown {self.kind} {name!r}; {nearest(name, self._targets)}.")
        return self._targets[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._targets))

    def __len__(self) -> int:
        self._discover()
        return len(self._targets)

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._targets

    def _discover(self) -> None:
        if not self._discovered:
            self._discovered = True
            for name in self.packages:
                package = importlib.import_module(name)
                for module in pkgutil.iter_modules(getattr(package, "__path__", []), f"{name}."):
                    importlib.import_module(module.name)
            if self.group:
                for point in entry_points(self.group):
                    self._plug_in(point)

    def _plug_in(self, point: metadata.EntryPoint) -> None:
        """Register what an entry point names; if this fails, warn and continue.

        It is a function or class, or a module whose decorators register names when it is loaded.
        """
        package, before = _package(point), set(self._targets)
        try:
            target = point.load()
            # skip what a decorator registered while the module was loaded: a second registration would fail
            if not isinstance(target, ModuleType) and self._targets.get(point.name) is not target:
                self.register(point.name)(target)
        except (Exception, SystemExit) as error:
            line = f"{self.kind} `{point.name}` of the installed package {package} is skipped: {reason(error)}"
            warn(line, PluginWarning)
        self._owners.update(dict.fromkeys(self._targets.keys() - before, package))


def load_points(group: str) -> dict[str, Any]:
    """Return what the entry points of a group name; a point that fails is skipped with a warning."""
    loaded = dict[str, Any]()
    for point in entry_points(group):
        try:
            loaded[point.name] = point.load()
        except (Exception, SystemExit) as error:
            warn(
                f"`{point.name}` of {group} of the package {_package(point)} is skipped: {reason(error)}", PluginWarning
            )
    return loaded


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group: those of graphcl's own extensions first, then by the name of the package.

    So name conflicts resolve independently of the order of installation.
    """
    points = metadata.entry_points(group=group)
    own = [point for point in points if point.value.startswith("graphcl.")]
    others = [point for point in points if point not in own]  # only their packages' metadata is read
    return [
        *sorted(own, key=lambda point: point.name),
        *sorted(others, key=lambda point: (_package(point), point.name)),
    ]


def _package(point: metadata.EntryPoint) -> str:
    if point.dist is None:
        return point.value
    read = point.dist.metadata  # parsed at each look
    return f"{read['Name']} {read['Version']}"


losses = Registry("loss", "graphcl.losses.formulas", group="graphcl.losses", method="two_views", repels="yes")
augmentations = Registry("augmentation", "graphcl.augment", group="graphcl.augmentations")
encoders = Registry("encoder", "graphcl.models", group="graphcl.encoders", form="dense", x="numbers")
methods = Registry("method", "graphcl.methods", group="graphcl.methods")
evaluators = Registry(
    "evaluator",
    "graphcl.evaluate.graphs",
    group="graphcl.evaluators",
    needs="labels",
    rows="",
    forms="dense",
    task="predict",
    usual="",
    chooses="C",
    protocol="",
    note="",
)
"""Functions that score embeddings; `graphcl.evaluate.needs` describes their facts."""
references = Registry("row", "graphcl.references", group="graphcl.references", label="", needs="", task="", after="")
"""Functions that return an embedding or a kernel; `graphcl.references.rows` describes their facts."""
references.reserve("metric", "gain", "gain_over_best", "best_reference", "per_seed")  # keys of `result.json`
datasets = Registry("data set", "graphcl.datasets.names", group="graphcl.datasets")
"""Functions of other packages that take the folder for downloads and return a source for `load_dataset`."""
sources = Registry("source", "graphcl.datasets.sources", group="graphcl.sources", takes="")
"""Kinds of sources of `load_dataset`; the fact `takes` is for messages, see `graphcl.datasets.sources.Source`."""
tasks = Registry("task", "graphcl.tasks.pairs", "graphcl.tasks.task", group="graphcl.tasks")
"""Kinds of what a run trains on and scores, see `graphcl.tasks.task.Task`."""

REGISTRIES = (losses, augmentations, encoders, methods, evaluators, references, datasets, sources, tasks)
_IMPORTED = "graphcl_import_"
"""Start of the module names of imported files."""
_ADDED: dict[str, set[str]] = {}
"""Module name of an imported file -> the names that it registered."""


def import_files(files: Iterable[str]) -> None:
    """Run Python files that register losses, evaluators or other objects; a file runs once in a process.

    Raises:
        InputError: a file is not found, or fails.
    """
    for file in files:
        path, name = _module_of(file)
        if name in sys.modules:
            continue
        if not path.is_file():
            raise InputError(f"Python file {file!r} not found.")
        spec: Any = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        before = _every_name()
        sys.path.append(str(path.parent))  # so that the file can import its neighbours
        try:
            spec.loader.exec_module(module)
            _ADDED[name] = {added for _, added in _every_name() - before}
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, KeyboardInterrupt):
                raise
            line = f"fails: {type(error).__name__}: {one_line(error)}; `python {file}` shows the line"
            if isinstance(error, SystemExit):
                line = f'calls sys.exit({error.code!r}); call it under `if __name__ == "__main__":` only'
            raise InputError(f"{file} {line}.") from error
        finally:
            sys.path.remove(str(path.parent))


def added_names(file: str) -> set[str]:
    """Return the names that an imported file registered."""
    return _ADDED.get(_module_of(file)[1], set())


def _module_of(file: str) -> tuple[Path, str]:
    """Return the path and the module name of an imported file."""
    path = Path(file).expanduser().resolve()
    return path, f"{_IMPORTED}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _every_name() -> set[tuple[str, str]]:
    return {(registry.kind, name) for registry in REGISTRIES for name in registry}


def registering_modules() -> set[str]:
    """Return the modules whose registered names a new process does not find by itself, such as a script, `__main__`.

    Installed packages and imported files are not among them.
    """
    modules = {
        target.__module__
        for registry in REGISTRIES
        for name, target in registry.items()
        if name not in registry._owners
    }
    return {name for name in modules if name.partition(".")[0] != "graphcl" and not name.startswith(_IMPORTED)}
