"""Replay training steps as CUDA graphs, which launches all operations of a step at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.graphs.batching import assemble
from graphcl.methods import Method, Outcome
from graphcl.models.batchnorm import Padding
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.settings import TrainingSettings

Step = Callable[[Batch, Batch, Tensor | None], Outcome | None]
"""Function of both views and the ids that updates the weights."""
_Views = tuple[dict[str, Tensor], dict[str, Tensor]]
"""The tensors of both views by name."""
_OF_NODES, _OF_EDGES, _OF_GRAPHS = ("x",), ("edge_attr", "edge_weight"), ("y", "pair_weight")
_COLUMNS = (*_OF_NODES, *_OF_EDGES, *_OF_GRAPHS)


def check_capture(method: Method, settings: TrainingSettings, device: torch.device) -> None:
    """Raise InputError if the steps of `method` cannot be captured."""
    models = [module for module in method.modules() if isinstance(module, ContrastiveModel)]
    problems = {
        f"needs a CUDA device, and training runs on the {device.type}": device.type != "cuda",
        f"does not fit {type(method).__name__}, whose steps differ from each other": not method.capturable,
        "needs an encoder of this library, as it pads views": not all(model.takes_padding for model in models),
        "does not fit a loss that draws random numbers, such as sigreg": bool(method.draws(None)),
        "runs on one rank": ranks.size() > 1,
        "does not fit `micro_batch`": settings.micro_batch is not None,
        "does not fit `non_finite` skip, which waits for the device": settings.non_finite == "skip",
    }
    for problem, is_met in problems.items():
        if is_met:
            raise InputError(f"`capture` {problem}; leave it out.")


class Captured:
    """A training step that is captured as a CUDA graph and replayed, with equal results up to rounding.

    Views are padded to a fixed size, some 12 % above the first; a larger one makes a new graph of larger size. The
    first step of each size runs as usual, as libraries set themselves up then.

    Args:
        step: function that updates the weights, without waiting for the device or reading values on the host.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._stream = torch.cuda.Stream()
        self._captures: dict[Any, _Capture] = {}

    def __call__(self, view1: Batch, view2: Batch, ids: Tensor | None) -> Outcome | None:
        """Return the outcome of a step on two views."""
        views = _tensors(view1), _tensors(view2)
        key = *map(_signature, (view1, view2), views), ids is None
        capture = self._captures.get(key)
        if capture is None or not capture.fits(views):
            capture = self._captures[key] = _Capture(views, (view1.num_graphs, view2.num_graphs), ids, capture)
        capture.fill(views, ids)
        if not capture.is_set_up:
            capture.is_set_up = True
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                outcome = self._step(*capture.padded(), capture.ids)
            torch.cuda.current_stream().wait_stream(self._stream)
            return outcome
        if capture.outcome is None:
            capture.outcome = self._record(capture)
        capture.graph.replay()
        # The next replay overwrites the outcome. The loss of each step is read, so copy it; the rows of one step are.
        return replace(capture.outcome, loss=capture.outcome.loss.clone())

    def _record(self, capture: _Capture) -> Outcome:
        """Capture a step, and return the outcome that each replay writes.

        Raises:
            InputError: the step waits for the device.
        """
        collects, current = gc.isenabled(), torch.cuda.current_stream()
        gc.disable()  # a collection could release an earlier graph, which CUDA forbids during a capture
        try:  # other threads, such as those of a DataLoader, may use CUDA meanwhile
            with torch.cuda.graph(capture.graph, capture.pool, self._stream, capture_error_mode="thread_local"):
                outcome = self._step(*capture.padded(), capture.ids)
        except RuntimeError as error:
            if "captur" not in str(error):
                raise
            _recover(current)
            raise InputError(
                "`capture` does not fit this model or loss, which reads values on the host in each step; leave it out."
            ) from error
        finally:
            if collects:
                gc.enable()
        assert outcome is not None
        return Outcome(**{name: value.detach() for name, value in vars(outcome).items()})


def _recover(stream: torch.cuda.Stream) -> None:
    """Let PyTorch draw random numbers again after a failed capture, and make `stream` the current one again."""
    torch.cuda.set_stream(stream)
    # The end of any capture resets the generator. Old versions of PyTorch refuse another one, so drawing fails there.
    with suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        torch.zeros(1, device=stream.device)


def _signature(view: Batch, tensors: dict[str, Tensor]) -> Any:
    """Return what a graph's replays must have in common: the number of graphs, and the columns and their dtypes."""
    columns = {key: tensor for key, tensor in tensors.items() if key in _COLUMNS}
    return view.num_graphs, tuple((key, tensor.dtype, tensor.shape[1:]) for key, tensor in columns.items())


def _tensors(view: Batch) -> dict[str, Tensor]:
    """Return the tensors of `view` that a step may read."""
    entries = view.to_dict()  # once, as `view.get` takes longer
    tensors = {key: entries[key] for key in ("batch", "edge_index", *_COLUMNS) if key in entries}
    tensors = {key: value for key, value in tensors.items() if isinstance(value, Tensor) and value.dim()}
    if "y" in tensors and len(tensors["y"]) != view.num_graphs:
        del tensors["y"]  # of nodes
    return tensors


def _size(view: dict[str, Tensor]) -> tuple[int, int]:
    """Return the numbers of nodes and edges."""
    return view["batch"].size(0), view["edge_index"].size(1)


class _Capture:
    """The inputs of steps of one size at fixed addresses, and the CUDA graph that reads them."""

    def __init__(self, views: _Views, graphs: tuple[int, int], ids: Tensor | None, smaller: _Capture | None) -> None:
        before: Sequence[_FixedView | None] = smaller.views if smaller else (None, None)
        self.sizes = torch.zeros(2, 2, dtype=torch.long, device=views[0]["x"].device)
        self.views: list[_FixedView] = [_FixedView(*e) for e in zip(views, graphs, self.sizes, before, strict=True)]
        self.ids = None if ids is None else ids.clone()
        self.graph, self.is_set_up = torch.cuda.CUDAGraph(), False
        # A graph may write where an earlier graph of its pool had intermediate results, so only graphs of which the
        # earlier is never replayed again share one. A pool ends with its last graph.
        self._smaller = smaller
        self.pool: Any = smaller.pool if smaller else torch.cuda.graph_pool_handle()
        self.outcome: Outcome | None = None  # of the last replay

    def fits(self, views: _Views) -> bool:
        return all(fixed.fits(view) for fixed, view in zip(self.views, views, strict=True))

    def fill(self, views: _Views, ids: Tensor | None) -> None:
        """Copy the views and ids to the fixed addresses, in one call for each dtype."""
        self.sizes.copy_(torch.tensor([_size(view) for view in views]), non_blocking=True)
        pairs = [pair for fixed, view in zip(self.views, views, strict=True) for pair in fixed.pairs(view)]
        if self.ids is not None and ids is not None:
            pairs.append((self.ids, ids))
        for dtype in {buffer.dtype for buffer, _ in pairs}:
            buffers, values = zip(*(pair for pair in pairs if pair[0].dtype == dtype), strict=True)
            torch._foreach_copy_(buffers, values)

    def padded(self) -> tuple[Batch, Batch]:
        first, second = self.views
        return first.padded(), second.padded()


class _FixedView:
    """Views of B graphs at fixed addresses, padded to P nodes and Q edges.

    Padding nodes are spread over B / 8 + 1 padding graphs and padding edges over padding nodes, as one warp sums the
    rows of a graph or a node. `sizes [2]` on the device holds the numbers of nodes and edges of the view.
    """

    def __init__(self, like: dict[str, Tensor], graphs: int, sizes: Tensor, smaller: _FixedView | None) -> None:
        nodes, edges = (size + size // 8 + 64 for size in _size(like))
        self._nodes: int = max(nodes, smaller._nodes) if smaller else nodes
        self._edges: int = max(edges, smaller._edges) if smaller else edges
        nodes, edges, self._graphs, self._sizes = self._nodes, self._edges, graphs, sizes
        device = like["x"].device
        rooms = dict.fromkeys(_OF_NODES, nodes) | dict.fromkeys(_OF_EDGES, edges) | dict.fromkeys(_OF_GRAPHS, graphs)
        self._fields = {
            key: tensor.new_zeros(rooms[key], *tensor.shape[1:]) for key, tensor in like.items() if key in _COLUMNS
        }
        self._batch = like["batch"].new_zeros(nodes)
        self._edge_index = like["edge_index"].new_zeros(2, edges)
        self._node, self._edge = torch.arange(nodes, device=device), torch.arange(edges, device=device)
        self._ptr = torch.zeros(graphs + 1, dtype=torch.long, device=device)
        self._counts = torch.tensor([[nodes, 0.0], [-nodes, 1.0]], device=device)

    def fits(self, view: dict[str, Tensor]) -> bool:
        """Return whether there is room for `view` and at least one padding node."""
        nodes, edges = _size(view)
        return nodes < self._nodes and edges <= self._edges

    def pairs(self, view: dict[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the buffer at a fixed address for each tensor of `view`, and the tensor."""
        nodes, edges = _size(view)
        yield self._batch[:nodes], view["batch"]
        yield self._edge_index[:, :edges], view["edge_index"]
        for key, buffer in self._fields.items():
            value = view[key]
            yield buffer[: value.size(0)], value

    def padded(self) -> Batch:
        """Return the view with padding, computed from what `fill` copied."""
        nodes, edges = self._sizes
        kept, extra = self._node < nodes, self._graphs // 8 + 1
        graph = torch.where(kept, self._batch, self._graphs + (self._node - nodes) % extra)
        ends = torch.where(self._edge < edges, self._edge_index, nodes + self._edge % (self._nodes - nodes))
        counts = self._counts[:, 0] + self._counts[:, 1] * nodes
        fields = {**self._fields, "edge_index": ends, "padding": Padding(kept[:, None], counts, extra)}
        return assemble(Data, fields, None, {}, self._ptr, graph)
