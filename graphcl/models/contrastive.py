"""Encoder and projector: what contrastive training optimises."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import Linear

from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs.batching import check_batch
from graphcl.registry import encoders

Head = Literal["mlp", "linear", "residual"]
AnyModule = TypeVar("AnyModule", bound=nn.Module)
OwnEncoder = nn.Module | Callable[[int], nn.Module]
"""An encoder that is not registered: such a module, or what makes one of the number of columns of `x`."""
ONE_PASS = 8_192
"""Nodes of two views together, below which both are encoded in one pass on the CPU."""


class ContrastiveModel(nn.Module):
    """An encoder, kept after training, and a projector, dropped.

    Any PyG encoder of whole graphs with the call `(x, edge_index, batch=...)` fits; one of nodes goes into a `Pooled`.
    If it has parameters named `size`, `edge_attr` or `edge_weight`, it gets the number of graphs too, and what the
    graphs have of the others; with one named `parts`, as `GIN` has it, two views may go through it in one pass.

    Args:
        encoder: gives embeddings h `[B, H]`; its `out_channels` is H.
        projection: D, width of the projection; H by default, as in GraphCL.
        head: the projector, see `make_head`.
        out_channels: H, where the encoder has no such attribute.

    Raises:
        InputError: the width of the embeddings is unknown, the projection's is below 1, there is no such head, the
            encoder does not take `edge_index` and `batch`, or (when called) it gives no row of that width for each
            graph.

    Example:
        >>> from torch_geometric.nn import GAT
        >>> from graphcl import Pooled
        >>> ContrastiveModel(Pooled(GAT(7, hidden_channels=32, num_layers=3), readout="mean")).width
        32
    """

    def __init__(
        self,
        encoder: nn.Module,
        projection: int | None = None,
        head: Head = "mlp",
        out_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_signature(encoder, "edge_index", "batch")
        width = out_channels or getattr(encoder, "out_channels", None)
        if width is None:
            raise InputError(f"{type(encoder).__name__} has no `out_channels`; pass `out_channels=` its output width.")
        projection = width if projection is None else projection
        if projection < 1:
            raise InputError(f"`projection` must be at least 1, got {projection}.")
        self.encoder, self.width, self.projection, self.head = encoder, width, projection, head
        self.projector = self.new_head()
        self._optional = [name for name in ("size", "edge_attr", "edge_weight", "parts") if self.takes(name)]

    def new_head(self) -> nn.Module:
        """Another projector of the same form, with weights of its own."""
        return make_head(self.width, self.projection, self.head)

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Tensor:
        """Embeddings h `[B, H]` of the graphs of a batch; `edge_weight [E]` multiplies the weights that they have.

        Raises:
            InputError: no batch of graphs with features; edge weights, and an encoder that takes none; see the class.
        """
        check_batch(batch)
        own = batch.get("edge_weight")
        if edge_weight is not None:
            self.need("edge_weight")
            own = edge_weight if own is None else own * edge_weight
        given = batch.num_graphs, batch.x, batch.edge_index, batch.batch
        return self._encode(*given, edge_attr=batch.get("edge_attr"), edge_weight=own)

    def takes(self, argument: str) -> bool:
        """Whether the encoder makes use of an argument of that name."""
        return accepts(self.encoder, argument)

    def need(self, argument: str) -> None:
        """Refuse an encoder that does not take an argument of that name.

        Raises:
            InputError: it does not.
        """
        if not self.takes(argument):
            raise InputError(f"{_name(self.encoder)} takes no `{argument}`; use gin, or give its forward one.")

    def encode_nodes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embeddings h `[B, H]` of the graphs of a batch, and representations `[N, H]` of its nodes.

        The encoder's `with_nodes(x, edge_index, batch=...)` gives both, as that of `GIN` does; like the encoder's
        forward it may take `size`, `edge_attr` and `edge_weight` too.

        Raises:
            InputError: an encoder without that, or other shapes.
        """
        check_batch(batch)
        give, kind = self.node_encoder(), _name(self.encoder)
        known = {"size": batch.num_graphs} | {name: batch.get(name) for name in ("edge_attr", "edge_weight")}
        optional = {name: each for name, each in known.items() if name in inspect.signature(give).parameters}
        h, nodes = give(batch.x, batch.edge_index, batch=batch.batch, **optional)
        wanted = [[batch.num_graphs, self.width], [batch.x.size(0), self.width]]
        if (found := [list(h.shape), list(nodes.shape)]) != wanted:
            raise InputError(f"{kind}.with_nodes gives {found[0]} and {found[1]}, not {wanted[0]} and {wanted[1]}.")
        return h, nodes

    def node_encoder(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """The encoder's `with_nodes`, see `encode_nodes`."""
        give = getattr(self.encoder, "with_nodes", None)
        if not callable(give):
            raise InputError(
                f"{_name(self.encoder)} gives no nodes' representations; use gin, gine or Pooled(node_encoder), or "
                f"give it a method `with_nodes(x, edge_index, batch)` that returns h [B, H] and the nodes' rows [N, H]."
            )
        return give

    def encode_views(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor]:
        """`encode` of two views; in one pass where the encoder takes `parts` and that is quicker.

        BatchNorm's statistics are those of each view by itself either way, and its running ones see view 1 first.
        """
        check_batch(view1)
        check_batch(view2)
        # Half as many operations to start, but twice the memory in use, which beyond the CPU's caches costs more.
        if "parts" not in self._optional or not (view1.x.is_cuda or self._small(view1, view2)):
            return self.encode(view1), self.encode(view2)
        parts, graphs = [view1.x.size(0), view2.x.size(0)], view1.num_graphs
        x, batch = torch.cat([view1.x, view2.x]), torch.cat([view1.batch, view2.batch + graphs])
        edge_index = torch.cat([view1.edge_index, view2.edge_index + parts[0]], dim=1)
        of_edges = {name: _both(view1.get(name), view2.get(name)) for name in ("edge_attr", "edge_weight")}
        h1, h2 = self._encode(2 * graphs, x, edge_index, batch, parts=parts, **of_edges).split(graphs)
        return h1, h2

    def _small(self, view1: Batch, view2: Batch) -> bool:
        # Ranks have batches of different numbers of nodes, and must normalise in the same order.
        alone = ranks.size() == 1
        return alone and getattr(self.encoder, "one_pass", True) and view1.x.size(0) + view2.x.size(0) < ONE_PASS

    def _encode(self, size: int, x: Tensor, edge_index: Tensor, batch: Tensor, **known: Any) -> Tensor:
        known["size"] = size
        h = self.encoder(x, edge_index, batch=batch, **{name: known.get(name) for name in self._optional})
        if not isinstance(h, Tensor):
            raise InputTypeError(
                f"{_name(self.encoder)} must return a tensor, a row for each graph [B, H], got {_kind(h)}."
            )
        if h.dim() != 2 or h.size(0) != size:
            raise InputError(
                f"{_name(self.encoder)} gives {list(h.shape)} for {size} graphs, not a row for each; "
                f"an encoder of nodes is wrapped, as in Pooled({_name(self.encoder)}(...), readout='sum')."
            )
        if h.size(1) != self.width:
            raise InputError(
                f"{_name(self.encoder)} gives rows of width {h.size(1)}, not {self.width}; pass `out_channels=`."
            )
        return h

    def forward(self, batch: Batch) -> Tensor:
        """Projections z `[B, D]`."""
        z: Tensor = self.projector(self.encode(batch))
        return z


def make_encoder(name: str, arguments: Mapping[str, Any], in_channels: int, edge_dim: int | None = None) -> nn.Module:
    """A registered encoder of so many node features and, if it takes them, edge attributes."""
    known = {"edge_dim": edge_dim} if "edge_dim" in encoders.arguments(name).required else {}
    encoder: nn.Module = encoders[name](in_channels, **known, **arguments)
    return encoder


def takes_categories(name: str) -> bool:
    """Whether the encoder of that name takes an `x` of whole numbers, of categories."""
    return name in encoders and encoders.facts(name).get("x") == "categories"


def own_encoder(given: OwnEncoder, in_channels: int) -> nn.Module:
    """A module of the user's: a copy of the given one, or made by the given function.

    Raises:
        InputTypeError: neither a module nor a function that gives one.
    """
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    encoder = given(in_channels) if callable(given) else given
    if not isinstance(encoder, nn.Module):
        raise InputTypeError(
            f"`encoder` must be a module, or a function that makes one of the number of columns; got {encoder!r}."
        )
    return encoder


def with_head(encoder: nn.Module) -> ContrastiveModel:
    """A trained encoder as a model again, in the encoder's mode; its projector is new and means nothing."""
    with torch.random.fork_rng(devices=[]):
        return ContrastiveModel(encoder).train(encoder.training)


def accepts(encoder: nn.Module, argument: str) -> bool:
    """Whether an encoder makes use of an argument of that name.

    PyG's basic models have every argument, and say by `supports_edge_attr` and `supports_edge_weight` which they use.
    """
    named = argument in inspect.signature(encoder.forward).parameters
    return named and bool(getattr(encoder, f"supports_{argument}", True))


def check_signature(encoder: nn.Module, *needed: str) -> None:
    """Refuse what cannot be called as `(x, edge_index, batch=...)`.

    Raises:
        InputTypeError: no module, or one whose `forward` lacks an argument that is needed.
    """
    if not isinstance(encoder, nn.Module):
        raise InputTypeError(f"an encoder must be a torch.nn.Module, got {_kind(encoder)}.")
    parameters = inspect.signature(encoder.forward).parameters.values()
    if any(each.kind == each.VAR_KEYWORD for each in parameters):  # whatever it takes, it does not say
        return
    # The edges come second, whatever their name.
    by_place = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD and each.name != "batch"]
    taken = {each.name for each in parameters} | ({"edge_index"} if len(by_place) > 1 else set())
    if missing := [name for name in needed if name not in taken]:
        raise InputTypeError(
            f"{_name(encoder)}.forward takes no {' and no '.join(f'`{name}`' for name in missing)}; an encoder of "
            f"graphs is called as (x, edge_index, batch=...), and one of nodes is wrapped as Pooled(node_encoder)."
        )


def _name(module: nn.Module) -> str:
    return type(module).__name__


def _kind(value: object) -> str:
    return f"the class {value.__name__}; make an instance" if isinstance(value, type) else type(value).__name__


def _both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])


def make_head(width: int, out: int, form: Head = "mlp") -> nn.Module:
    """A head of a form, Xavier-initialised with zero biases.

    Args:
        width: of its input, and of hidden layers.
        out: of its output.
        form: `mlp` (Linear, ReLU, Linear), `linear` (one layer, as in MoCo v1) or `residual` (three times Linear and
            ReLU, and beside them a linear shortcut, as in InfoGraph).

    Raises:
        InputError: no such form.
    """
    if form not in get_args(Head):
        raise InputError(f"`head` must be 'mlp', 'linear' or 'residual', got {form!r}.")
    head: nn.Module
    if form == "residual":
        head = _Residual(width, out)
    else:
        hidden = [nn.Linear(width, width), nn.ReLU()] if form == "mlp" else []
        head = nn.Sequential(*hidden, nn.Linear(width, out))
    return initialise(head)


def initialise(module: AnyModule) -> AnyModule:
    """The module, its linear layers' weights (torch's and PyG's) drawn anew (Xavier) and their biases 0."""
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, Linear)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


class _Residual(nn.Module):
    """Three times Linear and ReLU, plus a linear map of the input."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        widths = [width, width, width, out]
        layers = [[nn.Linear(a, b), nn.ReLU()] for a, b in pairwise(widths)]
        self.block = nn.Sequential(*(each for layer in layers for each in layer))
        self.shortcut = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.block(x) + self.shortcut(x)
        return z
