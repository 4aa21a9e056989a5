"""Define the model that contrastive training optimises: an encoder and a projector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import ProjectorName, Role, named_arguments
from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs.batching import check_batch
from graphcl.models.encoder import GraphEncoder
from graphcl.models.interface import accepts, call, check_signature, kind, optional_arguments, width_of
from graphcl.models.perceptron import make_projector
from graphcl.models.pieces import LazyBatch, in_pieces

ONE_PASS = 8_192
"""Total number of nodes below which two views are encoded in one pass on the CPU."""
AnyEmbeddings = TypeVar("AnyEmbeddings", bound="Embeddings")


class ContrastiveModel(nn.Module):
    """A graph encoder followed by a projector. Training uses both; only the encoder is kept afterwards.

    The encoder can be any module that is called as `(x, edge_index, batch=...)` and returns one row per graph; wrap a
    node encoder in `Pooled`. Its `forward` may have further keywords: `size` receives the number of graphs, and
    `edge_attr` and `edge_weight` receive the batch's attributes, if it has them. With `**kwargs`, as in compiled
    modules, it receives those that the encoder within it takes. If the encoder has the keyword `parts` (see
    `GraphEncoder.forward`), both views may be encoded in one pass.

    Args:
        encoder: module that returns embeddings h `[B, H]` and has the attribute `out_channels`, H.
        projection: D, width of the projections; H by default, as in GraphCL.
        projector: form of the projector, see `make_projector`.
        out_channels: H, for an encoder without the attribute `out_channels`.

    Attributes:
        micro_batch: largest number of graphs that are encoded at a time in training mode, see `in_pieces`; default:
            all.

    Raises:
        InputError: H is unknown, `projection` is below 1, the projector is unknown, or the encoder does not accept
            `edge_index` and `batch`. When called: the encoder's output is not `[B, H]`.

    Example:
        >>> from torch_geometric.nn import GAT
        >>> from graphcl import Pooled
        >>> ContrastiveModel(Pooled(GAT(7, hidden_channels=32, num_layers=3), readout="mean")).width
        32
    """

    micro_batch: int | None = None
    form: ClassVar[str] = "dense"
    """Form of the embeddings: `dense`, a tensor, or that of another class of `Embeddings`."""

    @named_arguments
    def __init__(
        self,
        encoder: nn.Module,
        projection: int | None = None,
        projector: ProjectorName = "mlp",
        out_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_signature(encoder, "edge_index", "batch")
        width = out_channels or width_of(encoder)
        self._name = name = type(encoder).__name__
        special = getattr(encoder, "contrasted_by", None)  # of encoders whose embeddings are no tensor
        if special is not None and not isinstance(self, special):
            model = special.__name__
            raise InputError(f"{name} returns {special.form} rows, which no layer can follow; use {model}, or gin.")
        if width is None:
            raise InputError(
                f"{name} has no `out_channels`; set it in its __init__, `self.out_channels = 64`, or pass it: "
                "ContrastiveModel(encoder, out_channels=64)."
            )
        projection = width if projection is None else projection
        if projection < 1:
            raise InputError(f"`projection` must be at least 1, got {projection}.")
        self.encoder, self.width, self.projection, self._form = encoder, width, projection, projector
        self.projector = self.new_projector()
        self._optional = optional_arguments(encoder, ("size", "edge_attr", "edge_weight", "parts"))

    def forward(self, batch: Batch) -> Tensor:
        """Return the projections z `[B, D]` of the graphs in `batch`."""
        return self.rows(batch)[1]

    def rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the embeddings h `[B, H]` and the projections z `[B, D]` of the graphs in `batch`.

        If the batch is encoded in pieces, h are the rows of the first piece only, without a gradient.
        """
        if not self._is_large(batch):
            h = self.encode(batch)
            return h, self.projector(h)

        first: list[Tensor] = []

        def project(piece: Batch) -> Tensor:
            h = self._encode_batch(piece)
            if not first:
                first.append(h.detach())
            return self.projector(h)

        z = in_pieces(self, project, batch, self.micro_batch or 1)
        return first[0], z

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Tensor:
        """Return the embeddings `[B, H]` of the graphs in `batch`; `edge_weight [E]` multiplies existing edge weights.

        Raises:
            InputError: `batch` has no node features, or the encoder takes no `edge_weight` or does not return `[B, H]`.
        """
        if edge_weight is None and self._is_large(batch):
            return in_pieces(self.encoder, self._encode_batch, batch, self.micro_batch or 1)
        return self._encode_batch(batch, edge_weight)

    def _is_large(self, batch: Batch) -> bool:
        if isinstance(batch, LazyBatch):
            return True
        return self.micro_batch is not None and self.training and batch.num_graphs > self.micro_batch

    def _encode_batch(self, batch: Batch, edge_weight: Tensor | None = None) -> Tensor:
        check_batch(batch)
        weight = batch.get("edge_weight")
        if edge_weight is not None:
            self.require("edge_weight")
            weight = edge_weight if weight is None else weight * edge_weight
        part, size = _extent(batch)
        of_edges = {"edge_attr": batch.get("edge_attr"), "edge_weight": weight}
        if size == batch.num_graphs:
            return self._encode(size, batch.x, batch.edge_index, batch.batch, **of_edges)
        return self._encode(size, batch.x, batch.edge_index, batch.batch, parts=[part], **of_edges)[: batch.num_graphs]

    def encode_nodes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the embeddings `[B, H]` of the graphs in `batch` and the representations `[N, H]` of its nodes.

        Raises:
            InputError: the encoder has no method `with_nodes`, or the method returns other shapes.
        """
        check_batch(batch)
        with_nodes = self.node_encoder()
        values = {name: batch.get(name) for name in ("edge_attr", "edge_weight")}
        uses = {"batch": True} | optional_arguments(self.encoder, ("size", *values), "with_nodes")
        h, nodes = call(with_nodes, batch.x, batch.edge_index, uses, batch=batch.batch, size=batch.num_graphs, **values)
        wanted = [[size, self.width] for size in (batch.num_graphs, batch.x.size(0))]
        shapes = [list(h.shape), list(nodes.shape)]
        if shapes != wanted:
            lines = [" and ".join(map(str, pair)) for pair in (wanted, shapes)]
            raise InputError(f"{self._name}.with_nodes must return {lines[0]}, got {lines[1]}.")
        return h, nodes

    def encode_views(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor]:
        """Return the embeddings `[B, H]` of each view.

        Both views are encoded in one pass if the encoder supports it and one pass is faster. BatchNorm always
        normalises each view separately, and updates its running statistics first with view 1, then with view 2.
        """
        both = self.encode_both(view1, view2)
        return both if isinstance(both, tuple) else both.split([view1.num_graphs, view2.num_graphs])

    def encode_both(self, view1: Batch, view2: Batch) -> Tensor | tuple[Tensor, Tensor]:
        """Return the embeddings of each view, or those of both views in one tensor, see `encode_views`.

        A model of other embeddings overrides this method.
        """
        target = self.role("target")
        if target is not self or self._is_large(view1) or self._is_large(view2):
            return self.encode(view1), target.encode(view2)
        check_batch(view1)
        check_batch(view2)
        if isinstance(self.encoder, GraphEncoder):
            h = self.encoder.embed_views((view1, view2))
            if h is not None:
                return self._of_width(h)
        # One pass launches half as many operations but needs twice the memory. On the CPU it is slower if the views
        # exceed the cache, so large views are encoded one by one. Ranks have different numbers of nodes, so that they
        # could disagree on what is large.
        small = ranks.size() == 1 and getattr(self.encoder, "one_pass", True)
        small = small and view1.x.size(0) + view2.x.size(0) < ONE_PASS
        shared, other = ([name for name in ("edge_attr", "edge_weight") if name in view] for view in (view1, view2))
        if "parts" not in self._optional or not (view1.x.is_cuda or small) or shared != other:
            return self.encode(view1), self.encode(view2)
        parts, graphs = zip(_extent(view1), _extent(view2), strict=True)
        x, batch = torch.cat([view1.x, view2.x]), torch.cat([view1.batch, view2.batch + graphs[0]])
        edge_index = torch.cat([view1.edge_index, view2.edge_index + view1.x.size(0)], dim=1)
        of_edges = {name: torch.cat([view1[name], view2[name]]) for name in shared}
        h1, h2 = self._encode(sum(graphs), x, edge_index, batch, parts=parts, **of_edges).split(graphs)
        return (h1, h2) if isinstance(parts[0], int) else (h1[: view1.num_graphs], h2[: view2.num_graphs])

    def project(self, *h: Tensor) -> tuple[Tensor, ...]:
        """Return the projections `[B, D]` of each embedding `[B, H]`, all computed in one call of the projector."""
        return self.projector(torch.cat(h)).split([rows.size(0) for rows in h])

    def project_views(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the embeddings of the first view, see `rows`, and the projections `[B, D]` of each view."""
        if self._is_large(view1) or self._is_large(view2):
            h, z1 = self.rows(view1)
            return h, z1, self.role("target")(view2)
        both = self.encode_both(view1, view2)
        if isinstance(both, tuple):
            z1, z2 = self.project(*both)
            return both[0], z1, z2
        z1, z2 = self.projector(both).split([view1.num_graphs, view2.num_graphs])
        return both[: len(z1)], z1, z2

    def role(self, role: Role) -> ContrastiveModel:
        """Return the model of graphs with this role in a pair: this one, unless targets have their own."""
        return self

    def new_projector(self) -> nn.Module:
        """Return a projector of the same form and widths as the model's, with new random weights."""
        return make_projector(self.width, self.projection, self._form)

    @property
    def fitted(self) -> bool:
        """Whether the model can train as it is; else `fit` must see the training graphs first."""
        return True

    def fit(self, batches: Iterable[Batch], group: Tensor) -> None:
        """Prepare the encoder from all graphs, of which those with a group >= 0 in `group [n]` are trained on."""

    def embedder(self) -> Callable[[Batch], Any]:
        """Return a function from a batch to its embeddings in float32, for one pass over a data set."""
        return lambda batch: self.encode(batch).float()

    def no_rows(self) -> Any:
        """Return the embeddings of no graph."""
        return torch.zeros(0, self.width)

    def features(self, h: Any) -> Any:
        """Return embeddings on the CPU in the form that scikit-learn takes: an array, or a sparse matrix of SciPy."""
        return h.numpy()

    def report_arrays(self, batches: Iterable[Batch]) -> dict[str, np.ndarray]:
        """Return what a section of the report draws of the trained encoder, as NAME_KEY -> array; default: nothing."""
        return {}

    @property
    def takes_padding(self) -> bool:
        """Whether the encoder leaves out the padding of views, see `graphcl.models.batchnorm`."""
        return "parts" in self._optional and isinstance(self.encoder, GraphEncoder)

    def node_encoder(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the encoder's `with_nodes`, which maps (x, edge_index, batch) to graph and node rows, or raise."""
        with_nodes = getattr(self.encoder, "with_nodes", None)
        if not callable(with_nodes):
            raise InputError(
                f"{self._name} returns no node representations; use gin, gine or Pooled(node_encoder), or give it a "
                f"method `with_nodes(x, edge_index, batch)` that returns h [B, H] and the nodes' rows [N, H]."
            )
        return with_nodes

    def require(self, argument: str) -> None:
        """Raise InputError unless the encoder's `forward` uses the argument named `argument`."""
        if not accepts(self.encoder, argument):
            raise InputError(f"{self._name} takes no `{argument}`; use gin, or add it to its forward.")

    def _encode(self, size: int, x: Tensor, edge_index: Tensor, batch: Tensor, **more: Any) -> Tensor:
        h = call(self.encoder, x, edge_index, {"batch": True} | self._optional, batch=batch, size=size, **more)
        if not isinstance(h, Tensor):
            raise InputTypeError(f"{self._name} must return a tensor [B, H], one row per graph, got {kind(h)}.")
        if h.dim() != 2 or h.size(0) != size:
            raise InputError(
                f"{self._name} must return one row per graph, got {list(h.shape)} for {size} graphs; wrap a node "
                f"encoder, as in Pooled({self._name}(...), readout='sum')."
            )
        return self._of_width(h)

    def _of_width(self, h: Tensor) -> Tensor:
        if h.size(1) != self.width:
            raise InputError(f"{self._name} returns rows of width {h.size(1)}, not {self.width}; pass `out_channels=`.")
        return h


def _extent(batch: Batch) -> tuple[Any, int]:
    """Return the part of BatchNorm that `batch` is, see `GraphEncoder.forward`, and its number of graphs with padding.

    The part is the batch's padding, or without padding its number of nodes.
    """
    padding = batch.get("padding")
    return (batch.x.size(0), batch.num_graphs) if padding is None else (padding, batch.num_graphs + padding.graphs)


def model_of(encoder: nn.Module, projection: int | None = None, projector: ProjectorName = "mlp") -> ContrastiveModel:
    """Return the model that contrasts graphs by an encoder.

    It is of the class that the encoder names as `contrasted_by`, and then without a projector, if it names one.
    """
    special: type[ContrastiveModel] | None = getattr(encoder, "contrasted_by", None)
    if special is not None:
        return special(encoder, projector="none")
    return ContrastiveModel(encoder, projection, projector)


def with_projector(encoder: nn.Module) -> ContrastiveModel:
    """Return the model of `encoder` and an untrained projector, in the training mode of `encoder`."""
    with torch.random.fork_rng(devices=[]):
        return model_of(encoder).train(encoder.training)


# -- embeddings in a form of their own, such as sparse rows, where a tensor `[B, H]` does not fit ----------------------


class Embeddings(ABC):
    """Embeddings of B graphs in another form than a tensor `[B, H]`.

    The encoder is registered with the fact `form`, the form's name, and names the `ContrastiveModel` whose `encode`
    returns them as its attribute `contrasted_by`. Evaluators that take `matrix()` name the form in their fact `forms`.
    """

    form: ClassVar[str]
    """Name of the form; that of a tensor is `dense`."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of graphs, B."""

    @abstractmethod
    def __getitem__(self: AnyEmbeddings, some: Any) -> AnyEmbeddings:
        """Return the embeddings of some graphs: a slice, a number, several numbers or a mask."""

    @classmethod
    @abstractmethod
    def cat(cls: type[AnyEmbeddings], parts: Sequence[AnyEmbeddings]) -> AnyEmbeddings:
        """Return the embeddings of several batches, one below the other."""

    @abstractmethod
    def cpu(self: AnyEmbeddings) -> AnyEmbeddings:
        """Return the embeddings on the CPU, without gradients."""

    @abstractmethod
    def finite(self) -> Tensor:
        """Return whether all values of each graph are finite, `[B]`."""

    @abstractmethod
    def spread(self: AnyEmbeddings, places: Sequence[int] | np.ndarray, size: int) -> AnyEmbeddings:
        """Return embeddings of `size` graphs: these at `places`, in this order, and empty ones of the others."""

    @abstractmethod
    def matrix(self) -> Any:
        """Return what evaluators of this form take."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return arrays for the folder of a run; those of two seeds differ in `h` only."""

    @abstractmethod
    def npz(self) -> dict[str, Any]:
        """Return the arrays for an .npz file of `graphcl embed`."""

    @abstractmethod
    def arrow(self) -> dict[str, Any]:
        """Return columns of PyArrow, for a Parquet file of `graphcl embed`."""


def arrays_of(h: Tensor | Embeddings) -> dict[str, np.ndarray]:
    """Return the arrays of embeddings for the folder of a run: `h`, and others that are equal for all seeds."""
    return h.arrays() if isinstance(h, Embeddings) else {"h": h.numpy()}
