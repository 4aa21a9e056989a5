"""Apply a transform of single graphs, such as PyG's, to every graph of a batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.arguments import named_arguments
from graphcl.augment.transform import Augmentation, Decision
from graphcl.errors import InputError, InputTypeError


class PerGraph(Augmentation):
    """Apply a transform of single graphs to each graph of a batch: split the batch, transform, and batch again.

    This is a Python loop over copies of the graphs: about 0.2 ms a graph besides the transform, 5 to 100 times as long
    as an augmentation of whole batches takes, and on CUDA longer. Transforms draw from the global generators of torch,
    NumPy and Python, which the given generator seeds; they are restored afterwards. It cannot be a member of a `OneOf`.

    Args:
        transform: PyG transform, or another function of a `Data` that returns a `Data`.

    Raises:
        InputTypeError: `transform` cannot be called, or is a class. When called: it does not return a `Data`.
        InputError: when called: the transform leaves a graph without nodes, or graphs with different attributes.

    Example:
        >>> from torch_geometric.transforms import RandomJitter
        >>> from torch_geometric.data import Data
        >>> graph = Data(pos=torch.zeros(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> view = PerGraph(RandomJitter(0.1))(Batch.from_data_list([graph, graph]))
        >>> view.num_graphs, bool((view.pos == 0).any())
        (2, False)
    """

    @named_arguments
    def __init__(self, transform: Callable[[Any], Any]) -> None:
        if isinstance(transform, type) or not callable(transform):
            hint = f"; make an instance: {transform.__name__}(...)" if isinstance(transform, type) else ""
            rule = "`transform` must be a function of a Data, or a PyG transform"
            raise InputTypeError(f"{rule}, got {transform!r}{hint}.")
        self.transform = transform

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Return a batch of the transformed graphs."""
        chosen = [True] * batch.num_graphs if graphs is None else graphs.tolist()
        with _seeded(generator):
            pairs = zip(batch.to_data_list(), chosen, strict=True)
            parts = [self._transformed(graph.clone()) if change else graph for graph, change in pairs]
        if len({frozenset(part.keys()) for part in parts}) > 1:  # PyG would leave some of them out
            raise InputError(f"{self._name} leaves graphs with different attributes; give all of them the same.")
        view = Batch.from_data_list(parts)
        for key, value in batch._store.items():  # of the whole batch
            if key not in view and key not in batch._slice_dict:
                view[key] = value
        return view

    @property
    def _name(self) -> str:
        return f"the transform {getattr(self.transform, '__name__', None) or repr(self.transform)}"

    def _transformed(self, graph: Data) -> Data:
        result = self.transform(graph)
        if not isinstance(result, Data) or isinstance(result, Batch):
            raise InputTypeError(f"{self._name} must return a Data, got {type(result).__name__}.")
        if not result.num_nodes:
            raise InputError(f"{self._name} leaves a graph without nodes.")
        return result

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Raise InputError, as a transform draws and applies at once."""
        raise InputError("PerGraph has no decision to keep or to mix in a pool; use it by itself or in `Compose`.")


@contextmanager
def _seeded(generator: torch.Generator | None) -> Iterator[None]:
    """Seed the global generators by a draw of `generator` within a `with` block; leave them alone if it is None."""
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
