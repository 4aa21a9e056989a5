"""Write what a transfer made: the encoder, its embeddings or the fine-tuned output layer, and test predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from graphcl.datasets.dataset import GraphDataset
from graphcl.experiment.predict import OUTPUTS, label_arrays
from graphcl.experiment.record.predictions import write_predictions
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.embeddings import Embeddings, arrays_of
from graphcl.models.saved import EncoderDescription, Weights, read_saved, save_encoder
from graphcl.system.arrays import id_arrays, read_arrays
from graphcl.system.files import write_whole

PER_SEED = ("h", "weight", "bias", "graphs", "epochs")
"""Arrays with an entry for each seed."""


class TransferFiles:
    """The files of a transfer besides its scores, written anew after each seed, for `graphcl predict` and `embed`.

    Args:
        folder: folder of the transfer.
        description: description of the encoder.
        dataset: graphs of the transfer.
    """

    def __init__(self, folder: Path, description: EncoderDescription, dataset: GraphDataset) -> None:
        self._folder, self._dataset = folder, dataset
        self._description = description.model_copy(update={"target": None})
        self._weights: Weights = {}
        self._arrays: dict[str, list[Any]] = {}
        self._shared: dict[str, np.ndarray] = {}
        self.seeds: list[int] = []
        self._done: list[int] = []
        self.predicted: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def resume(self, done: Sequence[int]) -> None:
        """Read what was written for the finished seeds `done`, to continue with the others."""
        self._done = [*done]
        if not done:
            return
        rows = self._folder / "embeddings.npz"
        arrays, (_, weights) = read_arrays(rows if rows.exists() else self._folder / OUTPUTS), read_saved(self._folder)
        self._shared = {name: arrays[name] for name in ("column", "ptr") if name in arrays}
        for place, seed in enumerate(arrays["seeds"].tolist()):
            if seed in done:
                self._add(seed, weights[seed], {name: arrays[name][place] for name in PER_SEED if name in arrays})

    def add_rows(self, seed: int, encoder: nn.Module, h: Tensor | Embeddings) -> None:
        """Keep a frozen encoder and its embeddings `h [n, H]`."""
        arrays = arrays_of(h)
        self._shared = {name: values for name, values in arrays.items() if name != "h"}
        state = {key: value.cpu() for key, value in encoder.state_dict().items()}
        self._add(seed, state, {"h": arrays["h"]})

    def add_model(self, seed: int, model: ContrastiveModel, graphs: int, epochs: int) -> None:
        """Keep a model that was fine-tuned on a number of graphs, for a number of epochs."""
        layer: Any = next(each for each in model.projector.modules() if isinstance(each, nn.Linear))
        arrays = {name: getattr(layer, name).detach().cpu().numpy() for name in ("weight", "bias")}
        state = {key: value.detach().cpu().clone() for key, value in model.encoder.state_dict().items()}
        self._add(seed, state, {**arrays, "graphs": graphs, "epochs": epochs})

    def _add(self, seed: int, state: dict[str, Tensor], arrays: dict[str, Any]) -> None:
        self._weights[seed] = state
        self.seeds.append(seed)
        for name, values in arrays.items():
            self._arrays.setdefault(name, []).append(values)

    def keep(self, name: str, rows: np.ndarray, predicted: np.ndarray) -> None:
        """Hold the predictions of an evaluator for test rows until `write`; those of several folds are joined."""
        before = self.predicted.get(name, (rows[:0], predicted[:0]))
        self.predicted[name] = np.concatenate([before[0], rows]), np.concatenate([before[1], predicted])

    def write(self, seed: int, split: GraphDataset) -> None:
        """Write all files, and `predicted` for the test part (or all test parts) of a split, for a seed."""
        arrays: dict[str, Any] = {name: np.stack(each) for name, each in self._arrays.items()}
        name = "embeddings.npz" if "h" in arrays else OUTPUTS
        if "h" in arrays:
            arrays |= {**self._shared, "y": self._dataset.y.numpy(), **id_arrays(self._dataset.ids)}
        arrays |= {**label_arrays(self._dataset), "seeds": np.array(self.seeds)}
        save_encoder(self._folder / "encoder.pt", self._description, self._weights)
        write_whole(self._folder / name, lambda file: np.savez(file, **arrays))
        write_predictions(self._folder, seed, self.predicted, split, self._done)
        self._done.append(seed)
        self.predicted = {}
