"""The pipeline of this library, for the benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import torch
from torch_geometric.data import Batch

from graphcl import (
    GIN,
    ContrastiveModel,
    Identity,
    Loss,
    ResidentLoader,
    TwoViews,
    load_dataset,
    random4,
    train,
)
from graphcl.config import make_config, read_config
from graphcl.experiment.trial import Trial
from graphcl.tasks.task import make_task
from graphcl.training.epoch import Epoch

RATIO, TEMPERATURE, LEARNING_RATE = 0.2, 0.2, 0.01
"""Settings of all pipelines."""


class Loader:
    """A shuffling loader whose epoch can end early, at the first chunk boundary after `limit` graphs."""

    def __init__(self, dataset: Any, batch_size: int, device: torch.device | str = "cpu", seed: int = 0) -> None:
        self._all = ResidentLoader(dataset, batch_size, True, torch.Generator().manual_seed(seed), device)
        self.limit: int | None = None
        self.taken = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch, _ in self.chunks():
            yield batch

    def chunks(self) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the graphs that `train` augments at once, and the sizes of their batches."""
        self.taken = 0
        chunks = getattr(self._all, "chunks", None)
        for batch, sizes in chunks() if chunks else ((batch, [batch.num_graphs]) for batch in self._all):
            self.taken += sum(sizes)
            yield batch, sizes
            if self.limit is not None and self.taken >= self.limit:
                return


def take_apart(batch: Batch, sizes: list[int]) -> list[Batch]:
    """Return the batches of a chunk."""
    from graphcl.graphs.batching import split

    return split(batch, sizes)


class Ours:
    """The pipeline of `train` with a resident loader; `recipe` is a shipped configuration to use for PROTEINS."""

    name = "graphcl"

    def __init__(
        self, dataset: Any, batch_size: int = 128, device: torch.device | str = "cpu", seed: int = 0,
        amp: bool = False, recipe: str | None = None, capture: bool = False,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        self.amp, self.capture = amp, capture
        self.loader = Loader(dataset, batch_size, device, seed)
        self.size, self.views = (32, 3), (Identity(), random4(RATIO))
        if recipe:
            config = make_config(read_config(recipe, "PROTEINS"))
            self.size = config.encoder["hidden_channels"], config.encoder["num_layers"]
            trial = Trial(make_task(config, load_dataset(dataset)), 0, torch.device(device))
            self.views, self.model, self.method = trial.views, trial.model, trial.method
        else:
            self.model = ContrastiveModel(GIN(dataset.num_features, hidden_channels=32, num_layers=3)).to(device)
            self.method = TwoViews(self.model, Loss("infonce", temperature=TEMPERATURE))
        self.generator = torch.Generator(device).manual_seed(seed)
        self.data_share = 0.0
        """Seconds of the last epoch that its steps waited for views."""

    def epoch(self, limit: int | None = None) -> int:
        """Train for an epoch, or on about `limit` graphs of it, and return the number of graphs."""
        self.loader.limit = limit
        (record,) = self._train(1)
        self.data_share = record.data_seconds / record.seconds
        return self.loader.taken

    def epoch_seconds(self, epochs: int) -> float:
        """Return the median seconds of an epoch, the first two left out; an epoch ends with a wait for the device."""
        return statistics.median(record.seconds for record in self._train(2 + epochs)[2:])

    def _train(self, epochs: int) -> list[Epoch]:
        given = {"lr": LEARNING_RATE, "generator": self.generator, "amp": self.amp, "capture": self.capture}
        return train(self.method, self.loader, *self.views, epochs=epochs, **given)
