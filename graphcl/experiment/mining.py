"""Mine hard negatives with the encoder in training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.experiment.parts import places
from graphcl.loaders.mining import mine_hard_negatives
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed


def hard_negatives(
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
        rows, _ = embed(model, whole)
        queries, targets = rows[: len(dataset)], rows[len(dataset) :] if dataset.targets is not None else rows
        count, margin = config.hard_negatives, config.mine_margin
        sampler.relation = mine_hard_negatives(
            queries, targets, sampler.relation, count, relative_margin=margin, within=within
        )

    return mine
