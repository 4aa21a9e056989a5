"""Train, embed and score one seed of a configuration. The steps, and where they are implemented:

| step                            | call                          | file                          |
|---------------------------------|-------------------------------|-------------------------------|
| load                            | `load_dataset`                | `experiment/run_config.py`    |
| keep the data set on the device | `training_loader`             | `experiment/build.py`         |
| rows without training           | `SeedRows`                    | `experiment/scoring.py`          |
| augment, views                  | `two_views`                   | `training/epoch.py`           |
| encode: h `[B, H]`              | `model.encode_views`          | `methods/two_views.py`        |
| project: z `[B, D]`             | `model.projector`             | `methods/two_views.py`        |
| loss: a scalar                  | `loss(z1, z2)`                | `methods/two_views.py`        |
| step: gradient, optimiser       | `Training.step`               | `training/state.py`           |
| embed: h `[n, H]`               | `embed`                       | `training/loop.py`            |
| evaluate: accuracy by row       | `score_rows`                  | `experiment/scoring.py`       |
| report: files, table, pictures  | `output.add`, `output.finish` | `experiment/record/output.py` |

The command line, sweeps, `graphcl.GraphCL` and the GPU example all call `run_seed`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.config.resolve import complete_spec
from graphcl.datasets.dataset import GraphDataset
from graphcl.distributed.batchnorm import synchronise
from graphcl.evaluate import FoldScores
from graphcl.experiment.build import make_augmentations, make_method, make_model, prepared, training_loader
from graphcl.experiment.context import Context, Scores
from graphcl.experiment.copies import sampled, with_copies
from graphcl.experiment.parts import places
from graphcl.experiment.scoring import EMBED_BATCH, SeedRows, calibrated
from graphcl.loaders.loader import make_loader
from graphcl.loaders.mining import mine_hard_negatives
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import OwnEncoders
from graphcl.registry import encoders
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed, train


@dataclass
class SeedResult:
    """Result of one seed.

    Attributes:
        model: trained model.
        history: one `Epoch` per epoch.
        h: embeddings `[n, H]` of all graphs by the trained encoder.
        y: labels or targets of the graphs, or None.
        scores: evaluator -> row, see `graphcl.references.rows` -> score; empty if the graphs have no labels.
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
    rows: Collection[str] | None = None,
    encoder: OwnEncoders = None,
    context: Context | None = None,
) -> SeedResult:
    """Train, embed and score one seed of a configuration, and return the result.

    Args:
        config: settings of the run.
        dataset: graphs of the run.
        seed: seed of the weights, the order of the graphs, the views and the folds.
        device: device of the model.
        rows: names of the rows to score; empty on ranks that only train; default: all that are registered.
        encoder: module to copy, or function from the number of columns to a module; default: the encoder in `config`.
        context: ranks, checkpoints, logs and progress; default: this process alone, and none of them.

    Raises:
        InputError: the settings do not fit together, or training failed.
    """
    context = context or Context()
    model = make_model(config, dataset, seed, encoder).to(device)
    dataset = prepared(config, dataset, model)
    method = make_method(config, dataset, model, seed)
    first, second = make_augmentations(config)
    shard, order, generator = context.draws(method, seed, device)
    batches = training_loader(config, dataset, order, device, shard)
    graphs, n = make_loader(dataset, EMBED_BATCH, device=device, like=batches), dataset.num_rows
    part = sampled(config, dataset, seed)  # all graphs, unless they have no labels
    of_part = graphs if part is dataset else make_loader(part, EMBED_BATCH, device=device)
    whole = with_copies(config, part, of_part, seed, device)
    scored = SeedRows(config, part, model, whole, seed, rows, context)
    context.on_embeddings("before", method, graphs, scored.untrained)

    mine = _hard_negatives(config, dataset, model, whole if part is dataset else graphs, batches)
    with context.training(method, seed, device):
        history = train(
            synchronise(method) if config.sync_batchnorm else method,
            batches,
            first,
            second,
            generator=generator,
            callbacks=[context.on_epoch, scored.score_epoch, mine],
            checkpoints=context.checkpoints,
            on_step=context.on_step,
            **config.training(),
        )
    if config.precise_bn:
        model.load_state_dict(calibrated(config, dataset, model, seed, graphs).state_dict())
    of_scored, y = embed(model, whole)
    h = of_scored[:n]
    if part is not dataset:
        h, y = embed(model, graphs)
    context.on_embeddings("after", method, graphs, h)
    scores = scored.score(of_scored, lambda name: trained_by(name, config, part, seed, device))
    context.on_scores(scores)
    if dataset.targets is not None:  # without the labels of the targets
        y = dataset._data.get("y")
    return SeedResult(model, history, h, y, scores, scored.epoch_scores, context.clock.seconds)


def _hard_negatives(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, whole: Iterable[Batch], batches: Any
) -> Callable[[Epoch], None]:
    """Return a function to call after each epoch, which mines negatives for the next ones by `mine_hard_negatives`.

    With `batch_by`, they come from the query's place. `whole` is a loader of all rows, and `batches` the loader of the
    pairs of the training part.
    """
    within = places(dataset, config.batch_by, "batch_by")

    def mine(epoch: Epoch) -> None:
        if not config.hard_negatives or epoch.epoch % config.mine_every:
            return
        sampler = batches.batch_sampler
        rows = embed(model, whole)[0][: dataset.num_rows]  # without augmented copies
        queries, targets = rows[: len(dataset)], rows[len(dataset) :] if dataset.targets is not None else rows
        count, margin = config.hard_negatives, config.mine_margin
        sampler.relation = mine_hard_negatives(
            queries, targets, sampler.relation, count, relative_margin=margin, within=within
        )

    return mine


def trained_by(name: str, config: Config, dataset: GraphDataset, seed: int, device: torch.device) -> Tensor:
    """Return the embeddings by another encoder that is trained with the settings of a run."""
    spec = complete_spec({"name": name}, encoders)
    other = config.model_copy(update={"encoder": spec, "target_encoder": spec, "init": None})
    return run_seed(other, dataset, seed, device, rows=()).h
