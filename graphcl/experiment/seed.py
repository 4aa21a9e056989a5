"""One seed of a configuration, from graphs to scores: the whole pipeline on one page.

| step                             | call                          | file                   |
|----------------------------------|-------------------------------|------------------------|
| load                             | `load_dataset`                | `run.py`               |
| hold: the data set on the device | `make_loader`                 | this one               |
| augment, views                   | `two_views`                   | `training/stream.py`   |
| encode: h `[B, H]`               | `model.encode_views`          | `methods/two_views.py` |
| project: z `[B, D]`              | `model.projector`             | `methods/two_views.py` |
| loss: a scalar                   | `loss(z1, z2)`                | `methods/two_views.py` |
| step: gradient, Adam             | `Step`                        | `training/step.py`     |
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
from graphcl.distributed.batchnorm import synchronise
from graphcl.distributed.launch import Group
from graphcl.distributed.ranks import across
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.experiment.build import make_augmentations, make_method, make_model
from graphcl.experiment.scores import EMBED_BATCH, OnFold, calibrated, reference_embeddings, score_rows
from graphcl.experiment.summary import ROWS
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoder
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed, train

Scores = dict[str, dict[str, FoldScores]]
"""By evaluator and row."""
_RANK_SEEDS = 2**41
"""Distance between the seeds of ranks."""


class Observer:
    """Hooks of `run_seed`, which do nothing here."""

    on_fold: OnFold | None = None

    def before_training(self, method: Method, h: Tensor | None) -> None:
        """Take the untrained method and, where they are scored, its embeddings `[n, H]`."""

    def on_epoch(self, epoch: Epoch) -> None:
        """Take a finished epoch."""

    def after_training(self, method: Method, h: Tensor) -> None:
        """Take the trained method and its embeddings `[n, H]`."""

    def on_scores(self, scores: Scores) -> None:
        """Take the scores by evaluator and row."""


@dataclass
class SeedResult:
    """The outcome of one seed.

    Attributes:
        model: the trained model.
        history: one record an epoch.
        h: embeddings `[n, H]`.
        y: labels or targets, or None.
        scores: by evaluator and row; empty for graphs that cannot be scored.
        epoch_scores: those of the trained encoder at the epochs asked for by `score_every`.
        seconds: wall time by stage.
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
    """Train, embed and score one seed of a configuration.

    Args:
        config: the settings.
        dataset: the graphs.
        seed: seed of the weights, the order of the graphs, the views and the folds.
        device: where the model is.
        group: the ranks that train together; by default this process alone.
        rows: which rows to score, of `ROWS`; none on ranks that only train.
        encoder: a module, or a function that makes one, instead of the named encoder.
        observer: hooks, for logs and progress.
        checkpoints: where training is saved and resumed.
        workers: number of threads of the evaluators; by default one a core.

    Raises:
        InputError: the settings do not fit together, or training failed.
    """
    group, observer, clock = group or Group(), observer or Observer(), Clock()
    model = make_model(config, dataset, seed, encoder).to(device)
    method = make_method(config, dataset, model, seed)
    first, second = make_augmentations(config)
    # Two generators, so that the order of the graphs is equal on all ranks and their views are not.
    order_generator = torch.Generator().manual_seed(2 * seed)
    view_generator = torch.Generator(device).manual_seed(2 * seed + 1 + group.rank * _RANK_SEEDS)
    shard = (group.rank, group.size)
    batches = make_loader(dataset, config.batch_size, True, order_generator, device, config.shuffle_window, shard)
    whole = make_loader(dataset, EMBED_BATCH, device=device)

    # Graphs that cannot be scored need the untrained embeddings only, for the report's map.
    wanted = set(rows) if dataset.scored else {"untrained"} & set(rows)

    def score(embeddings: dict[str, Tensor]) -> Scores:
        if not dataset.scored or not embeddings:
            return {}
        return score_rows(config, dataset, embeddings, seed, workers, observer.on_fold)

    def score_epoch(epoch: Epoch) -> None:
        if config.score_every and epoch.epoch % config.score_every == 0:
            # All ranks embed, as calibration may synchronise BatchNorm between them. It works on a copy, so that
            # training continues with its moving averages.
            h, _ = embed(calibrated(config, dataset, model, seed) if config.precise_bn else model, whole)
            if found := score({"trained": h} if "trained" in wanted else {}):
                epoch_scores[epoch.epoch] = {name: each["trained"] for name, each in found.items()}

    epoch_scores: dict[int, dict[str, FoldScores]] = {}
    embeddings = reference_embeddings(config, dataset, model, whole, seed, wanted)
    clock.lap("embed")
    observer.before_training(method, embeddings.get("untrained"))
    clock.lap("report")  # `before_training` took a snapshot
    with (
        across(group.process_group),
        reproducible(seed, group, device),
        _one_line_for_nondeterministic(config.deterministic),
    ):
        history = train(
            synchronise(method) if config.sync_batchnorm else method,
            batches,
            first,
            second,
            epochs=config.epochs,
            steps=config.steps,
            lr=config.lr,
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
        model.load_state_dict(calibrated(config, dataset, model, seed).state_dict())
    h, y = embed(model, whole)
    clock.lap("embed")
    observer.after_training(method, h)
    clock.lap("report")
    scores = score({**embeddings, **({"trained": h} if "trained" in wanted else {})})
    clock.lap("evaluate")
    observer.on_scores(scores)
    return SeedResult(model, history, h, y, scores, epoch_scores, clock.seconds)


class Clock:
    """Wall time by stage.

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
        """Add the time since the last lap to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@contextmanager
def reproducible(seed: int, group: Group, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, from which dropout draws, and restore them afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed + group.rank * _RANK_SEEDS)
        yield


@contextmanager
def _one_line_for_nondeterministic(deterministic: bool) -> Iterator[None]:
    """Turn PyTorch's error about an operation without a deterministic form into one line."""
    try:
        yield
    except RuntimeError as error:
        if not deterministic or "deterministic" not in str(error):
            raise
        operation = str(error).partition(".")[0]
        raise InputError(f"{operation}; choose another loss or method, or drop --deterministic.") from None
