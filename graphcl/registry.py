"""Name -> callable, with checked arguments and helpful errors.

A file in `graphcl/losses/` or `graphcl/augment/` registers what it defines; nothing else has to be edited for the
command line, the help text and the contract tests to see it. Other installed packages add names by entry points of the
groups `graphcl.losses`, `graphcl.augmentations`, `graphcl.encoders`, `graphcl.methods` and `graphcl.datasets`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, TypeVar

from graphcl.arguments import Arguments, nearest
from graphcl.errors import InputError, InputTypeError, reason

T = TypeVar("T", bound=Callable[..., Any])


class PluginWarning(UserWarning):
    """Another package's entry point cannot be used; the message names the package."""


class Registry(Mapping[str, Callable[..., Any]]):
    """Registered callables of one kind, by name.

    Args:
        kind: what is registered, for messages ("loss").
        *packages: the packages or modules whose files register themselves; imported at the first look-up.
        group: of other packages' entry points, read at the first look-up too; none by default.
        **facts: what is known of a name that is registered without saying so itself.
    """

    def __init__(self, kind: str, *packages: str, group: str | None = None, **facts: str) -> None:
        self.kind, self.packages, self.group = kind, packages, group
        self._usual = facts
        self._targets: dict[str, Callable[..., Any]] = {}
        self._arguments: dict[str, Arguments] = {}
        self._facts: dict[str, dict[str, str]] = {}
        self._owners: dict[str, str] = {}
        self._discovered = False

    def register(self, name: str, **facts: str) -> Callable[[T], T]:
        """Register the decorated function or class under `name`; its arguments are checked from now on.

        Args:
            name: under which it is found.
            **facts: what else is to be known of it, see `facts`.
        """

        def decorate(target: T) -> T:
            if name in self._targets or name in self._owners:
                owner = self._owners.get(name) or self._targets[name].__module__
                raise InputError(f"{self.kind} `{name}` is registered already, by {owner}.")
            is_class = inspect.isclass(target)
            function = vars(target)["__init__"] if is_class and "__init__" in vars(target) else target
            arguments = self._arguments[name] = Arguments(function)
            if not is_class:
                target = arguments.guard(target)
            elif function is not target:
                setattr(target, "__init__", arguments.guard(function))  # noqa: B010, mypy knows no other way
            self._targets[name], self._facts[name] = target, self._usual | facts
            return target

        return decorate

    def reserve(self, *names: str) -> None:
        """Names that are taken, though they are not looked up here."""
        self._owners.update(dict.fromkeys(names, "graphcl"))

    def arguments(self, name: str) -> Arguments:
        """The checker of `name`'s arguments."""
        self[name]
        return self._arguments[name]

    def facts(self, name: str) -> Mapping[str, str]:
        """What is known of `name` besides its arguments; of a loss: `method`, the method that it is made for."""
        self[name]
        return self._facts[name]

    def summary(self, name: str) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self[name]) or "").split("\n")[0]

    def problems(self, name: str, values: Mapping[str, Any], prefix: str = "") -> list[str]:
        """What is wrong with calling `name` with `values`: one line each."""
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
            # By the packages' names, so that it does not depend on the order of installation who is refused.
            points = metadata.entry_points(group=self.group) if self.group else ()
            for point in sorted(points, key=lambda point: (_package(point), point.name)):
                self._plug_in(point)

    def _plug_in(self, point: metadata.EntryPoint) -> None:
        """Register what another package gives; what cannot be used is left out, with a warning."""
        package, known = _package(point), set(self._targets)
        try:
            target = point.load()
            # A decorator in the package's module may have registered it along.
            if point.name not in self._targets.keys() - known and self._targets.get(point.name) is not target:
                if not callable(target):
                    raise InputTypeError(f"{point.value} is no function or class.")
                self.register(point.name)(target)
        except Exception as error:
            line = f"{self.kind} `{point.name}` of the installed package {package} is left out: {reason(error)}"
            warnings.warn_explicit(line, PluginWarning, package, 0)  # from no line of code: one line on the screen
        self._owners.update(dict.fromkeys(self._targets.keys() - known, package))


def _package(point: metadata.EntryPoint) -> str:
    """Name and version of the package that an entry point comes from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


losses = Registry("loss", "graphcl.losses", group="graphcl.losses", method="two_views", gathering="gather_negatives")
augmentations = Registry("augmentation", "graphcl.augment", group="graphcl.augmentations")
encoders = Registry("encoder", "graphcl.models", group="graphcl.encoders")
methods = Registry("method", "graphcl.methods", group="graphcl.methods")
datasets = Registry("data set", "graphcl.datasets.names", group="graphcl.datasets")
"""Of other packages: each a function of the folder for downloads, which returns what `load_dataset` takes."""
