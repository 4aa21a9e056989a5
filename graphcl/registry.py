"""Name -> callable, with checked arguments and helpful errors.

A file in `graphcl/losses/` or `graphcl/augment/` registers what it defines; nothing else has to be edited for the
command line, the help text and the contract tests to see it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from graphcl.arguments import Arguments, nearest
from graphcl.errors import InputError

T = TypeVar("T", bound=Callable[..., Any])


class Registry(Mapping[str, Callable[..., Any]]):
    """Registered callables of one kind, by name.

    Args:
        kind: what is registered, for messages ("loss").
        *packages: the packages or modules whose files register themselves; imported at the first look-up.
    """

    def __init__(self, kind: str, *packages: str) -> None:
        self.kind, self.packages = kind, packages
        self._targets: dict[str, Callable[..., Any]] = {}
        self._arguments: dict[str, Arguments] = {}
        self._facts: dict[str, dict[str, str]] = {}
        self._discovered = False

    def register(self, name: str, **facts: str) -> Callable[[T], T]:
        """Register the decorated function or class under `name`; its arguments are checked from now on.

        Args:
            name: under which it is found.
            **facts: what else is to be known of it, see `facts`.
        """

        def decorate(target: T) -> T:
            if name in self._targets:
                raise InputError(f"{self.kind} `{name}` is registered already, by {self._targets[name].__module__}.")
            is_class = inspect.isclass(target)
            function = vars(target)["__init__"] if is_class and "__init__" in vars(target) else target
            arguments = self._arguments[name] = Arguments(function)
            if not is_class:
                target = arguments.guard(target)
            elif function is not target:
                setattr(target, "__init__", arguments.guard(function))  # noqa: B010, mypy knows no other way
            self._targets[name], self._facts[name] = target, facts
            return target

        return decorate

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


losses = Registry("loss", "graphcl.losses")
augmentations = Registry("augmentation", "graphcl.augment")
encoders = Registry("encoder", "graphcl.gin", "graphcl.molecule")
methods = Registry("method", "graphcl.methods")
