"""Train a method on a data set, and embed a data set with a trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_geometric.data import Batch

from graphcl.arguments import keywords, named_arguments, nearest, shown
from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs.batching import check_batch
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel, Embeddings, with_projector
from graphcl.system.memory import Rows
from graphcl.system.progress import progress
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch
from graphcl.training.settings import TrainingSettings
from graphcl.training.state import NonFiniteLossError, Training

__all__ = ["Epoch", "NonFiniteLossError", "embed", "embed_batches", "train"]


@keywords(TrainingSettings)
def train(
    method: Method,
    loader: Iterable[Batch],
    first: Augmentation | str,
    second: Augmentation | str,
    *,
    generator: torch.Generator | None = None,
    callbacks: Sequence[Callable[[Epoch], Any]] = (),
    checkpoints: Checkpoints | None = None,
    on_step: Callable[[Training], object] = lambda training: None,
    score: Callable[[], float] | None = None,
    unpack: Callable[[Any], Any] | None = None,
    **settings: Any,
) -> list[Epoch]:
    """Train the model of `method` and return one record per epoch.

    Labels are used only if `method` was created with `labels=True`. Bit-identical results on CUDA, and on several ranks
    that resume, need `torch.use_deterministic_algorithms(True)`.

    Args:
        method: method to train in place, such as `TwoViews(model, Loss("adnce"))`; moved to the model's device.
        loader: batches of graphs; one iteration is one epoch.
        first: augmentation of the first view, or its name; a method may replace it.
        second: augmentation of the second view, or its name.
        generator: random generator for the augmentations and the method, on the model's device.
        callbacks: functions that are called with each finished `Epoch`.
        checkpoints: where to save checkpoints; training resumes from an existing checkpoint.
        on_step: function that is called after each step, for a progress bar.
        score: function that is called after each epoch; the weights after the epoch of the highest value are kept, and
            `patience` watches it instead of the loss. Do not score by what is tested.
        unpack: function that takes the `Batch`, or a pair of them, out of what the loader yields: of a loader of
            `(batch, y)`, `lambda item: item[0]`.
        **settings: keywords such as `epochs=5`, see `graphcl.training.settings.TrainingSettings`.

    Returns:
        The records of all epochs, including the epochs before training resumed.

    Raises:
        NonFiniteLossError: the loss or the weights became NaN or infinite, or all steps of an epoch were skipped.
        InputError: the loader gave no batch, a checkpoint does not fit, an argument is invalid, or `schedule` or
            `warmup` needs the number of steps but the loader has no length.
        Stopped: a stop signal was received, see `Checkpoints`.
    """
    if not isinstance(method, Method):
        hint = 'pass a method, such as TwoViews(model, "infonce")'
        raise InputTypeError(f"`method` must be a Method, got {type(method).__name__}; {hint}.")
    for name, value, kind in (("generator", generator, torch.Generator), ("checkpoints", checkpoints, Checkpoints)):
        if value is not None and not isinstance(value, kind):
            raise InputTypeError(f"`{name}` must be of type {kind.__name__}, got {shown(value)}.")
    if not isinstance(callbacks, Sequence):
        raise InputTypeError(f"`callbacks` must be a list, got {shown(callbacks)}.")
    functions = {"on_step": on_step, "score": score, "unpack": unpack} | {
        f"callbacks.{number}": function for number, function in enumerate(callbacks)
    }
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise InputTypeError(f"`{name}` must be a function, got {shown(function)}.")
    for name in settings.keys() - TrainingSettings.model_fields.keys():
        raise InputTypeError(f"`train` has no argument `{name}`; {nearest(name, signature(train).parameters)}.")
    training = Training(method, _unpacked(loader, unpack), first, second, generator, TrainingSettings.of(settings))
    if checkpoints:
        checkpoints.resume(training.load_state_dict)
    while not training.finished:
        for view1, view2, ids in training.views():  # the next batch, augmented twice
            training.step(view1, view2, ids)  # encode, project, loss (method); gradient, optimiser
            on_step(training)
            if checkpoints:
                checkpoints.after_step(training)
        record = training.end_epoch()
        if score is not None:
            training.add_score(score())
        for callback in callbacks:
            callback(record)
        if checkpoints:
            checkpoints.after_epoch(training)
    training.restore_best()
    return training.history


@named_arguments
def embed(
    model: nn.Module, loader: Iterable[Batch], unpack: Callable[[Any], Batch] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return the embeddings and labels of all graphs. The encoder runs in evaluation mode without gradients.

    Args:
        model: an encoder or a `ContrastiveModel`; its training mode is restored afterwards.
        loader: batches of graphs, not shuffled; rows are returned in the same order.
        unpack: function that takes the `Batch` out of what the loader yields, see `train`.

    Returns:
        h `[n, H]` in float32 and labels y `[n]` (None if the graphs have none, or no tensor), both on the CPU. If h has
        more than 64 MB, it is mapped from an unlinked temporary file. Of an encoder with rows in another form, h are
        its `graphcl.models.contrastive.Embeddings`.

    Raises:
        InputError: `loader` gave no batch, a batch has no node features, or an embedding is NaN or infinite.
    """
    h, special, y, done = Rows(), list[Embeddings](), [], 0
    for part, batch in embed_batches(model, _unpacked(loader, unpack)):
        done += len(part)
        (special if isinstance(part, Embeddings) else h).append(part.cpu())
        if isinstance(batch.get("y"), Tensor):
            y.append(batch.y.cpu())
    if not done:
        raise InputError("`loader` gave no batch; it must give all batches each time it is iterated.")
    rows: Any = special[0].cat(special) if special else h.joined()
    return rows, torch.cat(y) if y else None


@torch.no_grad()
def embed_batches(
    model: nn.Module, loader: Iterable[Batch], first: int = 0, finite: bool = True
) -> Iterator[tuple[Any, Batch]]:
    """Yield each batch's embeddings `[B, H]` in float32 and the batch, both on the model's device; see `embed`.

    If `finite`, rows that are NaN or infinite raise InputError; its message counts rows from `first`.
    """
    if isinstance(loader, Dataset):
        hint = "use ResidentLoader(dataset, 1024)"
        raise InputTypeError(f"`loader` must give batches, got {type(loader).__name__}; {hint}.")
    model = model if isinstance(model, ContrastiveModel) else with_projector(model)
    device = next(model.parameters()).device
    was_training = model.training
    try:
        encode = model.eval().embedder()
        sampler = getattr(loader, "batch_sampler", None)
        with progress("embedding", getattr(sampler, "num_graphs", None)) as update:
            for batch in loader:
                check_batch(batch)
                batch = batch.to(device)
                h = encode(batch)
                usable = h.finite() if isinstance(h, Embeddings) else h.isfinite().all(dim=1)
                if finite and not usable.all():
                    hint = "look for NaN or very large values in its features, or in the weights of the encoder"
                    row = first + int((~usable).nonzero()[0])
                    raise InputError(f"the embedding of graph {row} is NaN or infinite; {hint}.")
                first += len(h)
                yield h, batch
                update(batch.num_graphs)
    finally:
        model.train(was_training)


def _unpacked(loader: Any, unpack: Callable[[Any], Any] | None) -> Any:
    """Return a loader of what `unpack` takes out of the items of `loader`; `loader` itself without `unpack`."""
    return loader if unpack is None else _Unpacked(loader, unpack)


class _Unpacked:
    def __init__(self, loader: Any, unpack: Callable[[Any], Any]) -> None:
        self.loader, self.unpack = loader, unpack

    def __iter__(self) -> Iterator[Any]:
        return map(self.unpack, self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name in ("loader", "chunks"):  # not set yet; batches that would pass by `unpack`
            raise AttributeError(name)
        return getattr(self.loader, name)
