"""Train, embed and score one seed of a configuration. The steps, and where they are implemented:

| step                             | call                          | file                   |
|----------------------------------|-------------------------------|------------------------|
| load                             | `load_dataset`                | `experiment/run.py`    |
| keep the data set on the device  | `training_loader`             | `experiment/build.py`  |
| augment, views                   | `two_views`                   | `training/stream.py`   |
| encode: h `[B, H]`               | `model.encode_views`          | `methods/two_views.py` |
| project: z `[B, D]`              | `model.projector`             | `methods/two_views.py` |
| loss: a scalar                   | `loss(z1, z2)`                | `methods/two_views.py` |
| step: gradient, optimiser        | `Step`                        | `training/step.py`     |
| embed: h `[n, H]`                | `embed`                       | `training/loop.py`     |
| evaluate: accuracy by row        | `score_rows`                  | `experiment/scores.py` |
| report: files, table, pictures   | `output.add`, `output.finish` | `experiment/output.py` |

The command line, sweeps, `graphcl.GraphCL` and the GPU example all call `run_seed`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.loader import make_loader
from graphcl.datasets.order import WHOLE
from graphcl.distributed.batchnorm import synchronise
from graphcl.distributed.launch import Group
from graphcl.distributed.ranks import across
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.experiment.build import make_augmentations, make_method, make_model, training_loader
from graphcl.experiment.scores import EMBED_BATCH, OnFold, calibrated, reference_embeddings, score_rows
from graphcl.experiment.summary import ROWS
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoder
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed, train

Scores = dict[str, dict[str, FoldScores]]
"""Evaluator -> row (see `ROWS`) -> score."""
_RANK_SEEDS = 2**41
"""Difference between the seeds of rank r and rank r + 1."""


class Observer:
    """Base class of the hooks of `run_seed`; here, every hook does nothing."""

    on_fold: OnFold | None = None

    def before_training(self, method: Method, h: Tensor | None) -> None:
        """Handle the start of training; `h [n, H]` are the untrained embeddings, None if they are not computed."""

    def on_epoch(self, epoch: Epoch) -> None:
        """Handle a finished epoch."""

    def after_training(self, method: Method, h: Tensor) -> None:
        """Handle the end of training; `h [n, H]` are the trained embeddings."""

    def on_scores(self, scores: Scores) -> None:
        """Handle the scores: evaluator -> row -> score."""


@dataclass
class SeedResult:
    """Result of one seed.

    Attributes:
        model: trained model.
        history: one `Epoch` per epoch.
        h: embeddings `[n, H]` of all graphs by the trained encoder.
        y: labels or targets of the graphs, or None.
        scores: evaluator -> row (see `ROWS`) -> score; empty if the graphs have no labels to score by.
        epoch_scores: epoch -> evaluator -> score of the encoder at that epoch, every `score_every` epochs.
        seconds: stage -> wall time in seconds.
    """

    model: ContrastiveModel
    history: list[Epoch]
    h: Tensor
    y: Tensor | None
    scores: Scores
    epoch_scores: dict[int, dict[str, FoldScores]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def run_seed(
    config: Config,
    dataset: GraphDataset,
    seed: int,
    device: torch.device,
    *,
    group: Group | None = None,
    rows: Collection[str] = tuple(ROWS),
    encoder: OwnEncoder | None = None,
    observer: Observer | None = None,
    checkpoints: Checkpoints | None = None,
    workers: int | None = None,
) -> SeedResult:
    """Train, embed and score one seed of a configuration, and return the result.

    Args:
        config: settings of the run.
        dataset: graphs of the run.
        seed: seed of the weights, the order of the graphs, the views and the folds.
        device: device of the model.
        group: ranks that train together; default: this process alone.
        rows: rows of `ROWS` to score; empty on ranks that only train.
        encoder: module to copy, or function from the number of columns to a module; default: the encoder in `config`.
        observer: hooks for logs and progress.
        checkpoints: checkpoints to write, and to resume from; default: none.
        workers: number of threads of the evaluators; default: one per core.

    Raises:
        InputError: the settings do not fit together, or training failed.
    """
    group, observer, clock = group or Group(), observer or Observer(), Clock()
    model = make_model(config, dataset, seed, encoder).to(device)
    method = make_method(config, dataset, model, seed)
    first, second = make_augmentations(config)
    shard = WHOLE if method.divides_nodes else (group.rank, group.size)
    # Two generators: the order of the graphs must be equal on all ranks, but the views of different graphs must differ.
    order_generator = torch.Generator().manual_seed(2 * seed)
    view_generator = torch.Generator(device).manual_seed(2 * seed + 1 + shard[0] * _RANK_SEEDS)
    batches = training_loader(config, dataset, order_generator, device, shard)
    whole = make_loader(dataset, EMBED_BATCH, device=device, like=batches)

    # Without scores, only the untrained embeddings are needed, for the report's map.
    wanted = set(rows) if dataset.scored else {"untrained"} & set(rows)

    def score(embeddings: dict[str, Tensor]) -> Scores:
        if not dataset.scored or not embeddings:
            return {}
        return score_rows(config, dataset, embeddings, seed, workers, observer.on_fold)

    def score_epoch(epoch: Epoch) -> None:
        if config.score_every and epoch.epoch % config.score_every == 0:
            # All ranks embed, as calibration may synchronise BatchNorm between ranks. `calibrated` returns a copy, so
            # that training keeps its moving averages.
            h, _ = embed(calibrated(config, dataset, model, seed, whole) if config.precise_bn else model, whole)
            if found := score({"trained": h} if "trained" in wanted else {}):
                epoch_scores[epoch.epoch] = {name: each["trained"] for name, each in found.items()}

    epoch_scores: dict[int, dict[str, FoldScores]] = {}
    embeddings = reference_embeddings(config, dataset, model, whole, seed, wanted)
    clock.lap("embed")
    observer.before_training(method, embeddings.get("untrained"))
    clock.lap("report")  # `before_training` took a snapshot
    with (
        across(group.process_group),
        reproducible(seed + shard[0] * _RANK_SEEDS, device),
        _one_line_for_nondeterministic(config.deterministic),
    ):
        history = train(
            synchronise(method) if config.sync_batchnorm else method,
            batches,
            first,
            second,
            epochs=config.epochs,
            steps=config.steps,
            optimizer=config.optimizer,
            lr=config.lr,
            schedule=config.schedule,
            warmup=config.warmup,
            patience=config.patience,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
            amp=config.amp,
            non_finite=config.non_finite,
            diagnostics=config.diagnostics,
            deterministic=config.deterministic,
            generator=view_generator,
            callbacks=[observer.on_epoch, score_epoch],
            checkpoints=checkpoints,
        )
    clock.lap("train")
    if config.precise_bn:
        model.load_state_dict(calibrated(config, dataset, model, seed, whole).state_dict())
    h, y = embed(model, whole)
    clock.lap("embed")
    observer.after_training(method, h)
    clock.lap("report")
    scores = score({**embeddings, **({"trained": h} if "trained" in wanted else {})})
    clock.lap("evaluate")
    observer.on_scores(scores)
    return SeedResult(model, history, h, y, scores, epoch_scores, clock.seconds)


class Clock:
    """Stopwatch that adds up the wall time of each stage, in seconds.

    Example:
        >>> clock = Clock()
        >>> clock.lap("load")
        >>> list(clock.seconds)
        ['load']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the previous lap to the time of `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@contextmanager
def reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators (used by dropout) within the block, and restore their state afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _one_line_for_nondeterministic(deterministic: bool) -> Iterator[None]:
    """Convert PyTorch's error about an operation without a deterministic implementation into an InputError."""
    try:
        yield
    except RuntimeError as error:
        if not deterministic or "deterministic" not in str(error):
            raise
        operation = str(error).partition(".")[0]
        raise InputError(f"{operation}; choose another loss or method, or drop --deterministic.") from None
