"""The pairs of views that training sees, one epoch after another, and how to go on in the middle of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.augment.views import two_views
from graphcl.errors import InputError
from graphcl.graphs.batching import check_batch, split
from graphcl.training.randomness import Generators


class ViewStream:
    """Two views of each batch of a loader; where it gives several batches at a time, those are augmented at once.

    It is iterated once an epoch. Its `state` is where it stands, and a stream of the same loader and augmentations that
    is given it goes on there: the epoch's order is drawn again, the views of the chunk under way too, and what had been
    seen of both is left out. A loader of the user's own is asked for all batches again.

    Args:
        loader: batches of graphs.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view.
        generator: source of the views, on the device.
        device: where the views are made.
        resumable: whether `state` will be asked for; where the generators stood is looked up only then.

    Attributes:
        step: how many batches of the epoch under way were given.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        first: Augmentation,
        second: Augmentation,
        generator: torch.Generator | None,
        device: torch.device,
        resumable: bool = False,
    ) -> None:
        self.loader, self.first, self.second, self.generator = loader, first, second, generator
        self.device, self.resumable, self.step = device, resumable, 0
        self._sampler: Any = getattr(loader, "batch_sampler", None)
        order = getattr(self._sampler, "generator", None) or getattr(loader, "generator", None)
        self._generators = Generators(device, order=order, views=generator)
        self._epoch: dict[str, Any] | None = None
        self._chunk: dict[str, Any] | None = None
        self._chunk_step = 0
        self._resumed: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[tuple[Batch, Batch]]:
        resumed, self._resumed = self._resumed, None
        self.step = 0
        if resumed is not None:
            self._generators.restore(resumed["epoch"])
            self.step = resumed["chunk_step"]
        self._epoch = self._look()
        for batch, sizes in self._chunks(self.step):
            self._chunk_step = self.step
            if resumed is not None:
                self._generators.restore(resumed["chunk"])
            self._chunk = self._look()
            check_batch(batch)
            view1, view2 = two_views(batch.to(self.device), self.first, self.second, self.generator)
            pairs = zip(split(view1, sizes), split(view2, sizes), strict=True) if sizes else iter([(view1, view2)])
            if resumed is not None and resumed["step"] > self._chunk_step:
                self.step = resumed["step"]
                pairs = islice(pairs, self.step - self._chunk_step, None)
                self._generators.restore(resumed["now"])
            resumed = None
            for pair in pairs:
                self.step += 1
                yield pair

    def end_epoch(self) -> None:
        """The epoch under way is over, whether all of its batches were asked for or not."""
        self.step, self._resumed = 0, None

    def state(self) -> dict[str, Any]:
        """Where the stream stands, to be asked for between two batches."""
        if self._resumed is not None:
            return self._resumed
        now = self._generators.state()
        if not self.step:
            return {"step": 0, "now": now}
        return {
            "step": self.step, "now": now, "epoch": self._epoch, "chunk": self._chunk, "chunk_step": self._chunk_step,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where another stream stood; the next iteration is the rest of its epoch."""
        self.step = state["step"]
        self._resumed = state if self.step else None
        self._generators.restore(state["now"])

    def restore_elsewhere(self, state: dict[str, Any], seed: int) -> None:
        """Stand where a stream of another number of ranks stood: the same order and place, but views drawn anew.

        Args:
            state: of any of those ranks.
            seed: of the views from here on.
        """
        own = {key: each for key, each in state.get("epoch", state["now"])["own"].items() if key == "order"}
        own["views"] = torch.Generator(self.device).manual_seed(seed).get_state()
        now = {"own": own, "torch": torch.Generator().manual_seed(seed).get_state()}
        self.restore({"step": state["step"], "now": now, "epoch": now, "chunk": now, "chunk_step": state["step"]})

    def ids(self) -> Tensor | None:
        """Which graphs the last given batch holds, where the loader tells."""
        return graph_ids(self.loader, self.step - 1, self.device)

    def _look(self) -> dict[str, Any] | None:
        return self._generators.state() if self.resumable else None

    def _chunks(self, skip: int) -> Iterator[tuple[Batch, list[int] | None]]:
        """The loader's batches or chunks of them, without the first `skip` batches."""
        left = skip
        if skip and hasattr(self._sampler, "skip"):
            self._sampler.skip, left = skip, 0
        chunks = getattr(self.loader, "chunks", None)
        found = chunks() if chunks else ((batch, None) for batch in self.loader)
        while left > 0:
            if (seen := next(found, None)) is None:
                raise InputError("`loader` gives fewer batches than the checkpoint has seen; go on with the same data.")
            _, sizes = seen
            left -= len(sizes) if sizes else 1
        return found


def order_of(loader: Iterable[Batch]) -> Sequence[Tensor] | None:
    """The batches of the epoch under way, where the loader tells."""
    return getattr(getattr(loader, "batch_sampler", None), "current", None)


def graph_ids(loader: Iterable[Batch], step: int, device: torch.device) -> Tensor | None:
    """Which graphs the batch of a step holds, where the loader tells."""
    order = order_of(loader)
    return torch.as_tensor(order[step]).to(device, non_blocking=True) if order else None
