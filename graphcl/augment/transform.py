"""Base class of augmentations, a PyG transform that draws a decision and applies it; the identity; pairs of views.

A decision holds the random draws. Applying it is deterministic and can be repeated.
"""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.transforms import BaseTransform

from graphcl.arguments import named_arguments, shown
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs.batching import Layout, as_batch
from graphcl.graphs.select import levels, select
from graphcl.registry import augmentations

Graphs = TypeVar("Graphs")  # `Batch` or `Data`; an augmentation returns the type of its input


@dataclass(frozen=True)
class Decision:
    """Changes to a batch of N nodes and E directed edges; a field that is None changes nothing.

    Args:
        keep_node: mask `[N]` of the nodes to keep.
        keep_edge: mask `[E]` of the edges to keep; edges of removed nodes are always removed.
        moved: indices `[K]` of the edges to rewire; the edges keep their attributes.
        moved_to: new sources and targets `[2, K]` of the rewired edges, within the same graph.
        masked: indices `[M]` of the nodes whose features are replaced.
        features: new features `[M, F]` of the masked nodes.
        then: decision to apply to the resulting batch; its indices refer to the resulting batch.
    """

    keep_node: Tensor | None = None
    keep_edge: Tensor | None = None
    moved: Tensor | None = None
    moved_to: Tensor | None = None
    masked: Tensor | None = None
    features: Tensor | None = None
    then: Decision | None = None


@named_arguments
def apply_decision(batch: Batch, decision: Decision) -> Batch:
    """Return `batch` changed by `decision`, with the same graphs in the same order. `batch` itself is not changed."""
    while decision.then is not None:
        batch, decision = apply_decision(batch, replace(decision, then=None)), decision.then
    if all(change is None for change in vars(decision).values()):
        return batch
    layout = Layout.of(batch)
    changed = {"edge_index": layout.edge_index}
    if decision.moved is not None and decision.moved_to is not None:
        changed["edge_index"] = layout.edge_index.clone()
        for ends, to in zip(changed["edge_index"], decision.moved_to, strict=True):
            ends.index_copy_(0, decision.moved, to)
    if decision.masked is not None and decision.features is not None:
        changed["x"] = batch.x.index_copy(0, decision.masked, decision.features)
    return select(batch, layout, decision.keep_node, decision.keep_edge, changed)


def as_augmentation(view: Any, argument: str = "augmentation") -> Any:
    """Return the augmentation named `view` with its default arguments; return any other callable unchanged.

    Raises:
        InputError: the name is unknown, or the augmentation has required arguments.
        InputTypeError: `view` is a registered class or function that was not called, or is not an augmentation.
    """
    rule = f"`{argument}` must be an augmentation"
    if isinstance(view, str):
        if required := [name for name in augmentations.arguments(view).required if name != "self"]:
            raise InputError(f"augmentation `{view}` needs `{'` and `'.join(required)}`; pass an object instead.")
        return augmentations[view]()
    if isinstance(view, Augmentation):
        return view
    if isinstance(view, type) or view in augmentations.values():
        raise InputTypeError(f"{rule}; call {view.__name__}, as in {view.__name__}().")
    if isinstance(view, BaseTransform):
        kind = type(view).__name__
        raise InputTypeError(f"{rule} of whole batches, got PyG's {kind}; wrap it: PerGraph({kind}(...)).")
    if not callable(view):
        raise InputTypeError(f"{rule} or the name of one, got {shown(view)}.")
    return view


def as_view(view: Any, argument: str) -> Any:
    """Return `view` as a function of (batch, generator), see `as_augmentation`."""
    view = as_augmentation(view, argument)
    try:
        if not isinstance(view, Augmentation):
            inspect.signature(view).bind("batch", "generator")
    except TypeError:
        name = getattr(view, "__name__", shown(view))
        advice = "add `generator`, or wrap a function of a single graph: PerGraph(function)"
        raise InputTypeError(f"`{argument}` must take (batch, generator), which {name} does not; {advice}.") from None
    except ValueError:  # a function of C without a signature
        pass
    return view


def check_registered(name: str, target: Any) -> None:
    """Raise InputTypeError if `target`, to be registered as the augmentation `name`, cannot make views."""
    problem, called = "", getattr(target, "__name__", "")
    if inspect.isclass(target):
        if issubclass(target, BaseTransform) and not issubclass(target, Augmentation):
            problem = f"got PyG's {called}, a transform of single graphs; register a function that returns "
            problem += f"PerGraph({called}(...))"
        elif inspect.isabstract(target) or not any("__call__" in vars(base) for base in target.__mro__):
            problem = f"but {called} does not define `decide`; see docs/extending.md"
    elif inspect.isfunction(target):
        first = next(iter(inspect.signature(target).parameters.values()), None)
        names = ("batch", "data", "graph", "graphs", "view")
        if first is not None and first.default is first.empty and first.name in names:
            problem = f"but {called} takes `{first.name}`; derive a class from Augmentation, or return "
            problem += "PerGraph(function) for a function of a single graph"
    else:
        problem = f"got {shown(target)}; register a function without arguments that returns it"
    if problem:
        title = f"augmentation `{name}` must be a class of augmentations or a function that returns one"
        raise InputTypeError(f"{title}, {problem}.")


augmentations.check = check_registered


class Augmentation(BaseTransform):
    """Random augmentation of all graphs in a batch.

    Called on a `Batch`, it returns a `Batch` with the same graphs in the same order, each with at least one node.
    Called on a `Data`, for example as `transform=` of a data set, it returns a `Data`. The input is never changed.

    A subclass implements `decide` and stores each argument of its constructor as an attribute of the same name. If both
    views have the same class and arguments, training on CUDA makes them in one call, on a batch with each graph twice.
    """

    def __call__(self, data: Graphs, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Graphs:
        """Return an augmented copy of `data`, a batch or a single graph.

        Args:
            data: PyG `Batch` or `Data`.
            generator: source of randomness, on the device of `data`; torch's global generator by default.
            graphs: mask `[B]` of the graphs to augment; all by default.

        Raises:
            InputTypeError: `data` is not a homogeneous PyG graph or batch.
            InputError: `data` lacks an attribute that the augmentation needs, or `graphs` is not a boolean `[B]`.
        """
        batch = as_batch(data)
        form = getattr(graphs, "dtype", None), getattr(graphs, "shape", None)
        if graphs is not None and form != (torch.bool, (batch.num_graphs,)):
            raise InputError(f"`graphs` must be a boolean tensor of shape [{batch.num_graphs}], got {shown(graphs)}.")
        view: Any = self.augment(batch, generator, graphs)
        if isinstance(data, Batch):
            return view
        out: Any = copy.copy(data)  # graph-level attributes do not change
        for key, level in levels(view, Layout.of(view)).items():
            if level != "other":
                out[key] = view[key]  # batching a single graph shifts no indices, so none need to be shifted back
        if "num_nodes" in view:
            out.num_nodes = view.num_nodes
        return out

    def forward(self, data: Graphs) -> Graphs:
        """Return an augmented copy of `data`; PyG's `BaseTransform` requires this method."""
        return self(data)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Draw a decision and return `batch` changed by it."""
        return apply_decision(batch, self.decide(batch, generator, graphs))

    @abstractmethod
    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a random decision for `batch`, to be applied by `apply_decision`. `batch` is not changed."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"


@augmentations.register("identity")
class Identity(Augmentation):
    """Leave every graph unchanged.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1)[0]
        >>> Identity()(graph).num_nodes == graph.num_nodes
        True
    """

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision that changes nothing."""
        return Decision()


@named_arguments
def two_views(
    batch: Batch | Sequence[Batch],
    first: Augmentation | str,
    second: Augmentation | str,
    generator: torch.Generator | None = None,
) -> tuple[Batch, Batch]:
    """Return two views of `batch`; graph i of one view is the positive of graph i of the other.

    Args:
        batch: the graphs, which are not changed; or a pair of batches, of which each gives one view.
        first: augmentation of the first view, or its name; `Identity()` for the original graphs.
        second: augmentation of the second view, or its name.
        generator: source of randomness, on the device of `batch`.
    """
    one, two = batch if isinstance(batch, tuple | list) else (batch, batch)
    return as_view(first, "first")(one, generator), as_view(second, "second")(two, generator)


def alike(one: Any, two: Any) -> bool:
    """Return whether two augmentations, or two arguments of them, are the same or have the same class and arguments."""
    if one is two or type(one) is not type(two):
        return one is two
    if isinstance(one, Augmentation):
        return alike([*vars(one).items()], [*vars(two).items()])
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    return isinstance(one, str | float | int) and one == two
