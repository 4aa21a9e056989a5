"""Check the settings of a run with its data: run one training step, and warn of columns that differ in scale."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.config.needs import warn_of_unused
from graphcl.datasets.dataset import GraphDataset
from graphcl.distributed.batchnorm import synchronise
from graphcl.errors import InputError, warn
from graphcl.experiment.build import (
    has_numbers,
    make_augmentations,
    make_method,
    make_model,
    pairs_of,
    pick_device,
    training_sampler,
)
from graphcl.experiment.encoder_input import contrasts_nodes
from graphcl.experiment.parts import training_graphs
from graphcl.graphs.columns import warn_of_scales
from graphcl.loaders.order import check_shard
from graphcl.methods.method import explain_single_row
from graphcl.models.calibrate import has_batchnorm
from graphcl.models.interface import OwnEncoders
from graphcl.registry import encoders, methods
from graphcl.system.optional import import_neighbor_loader
from graphcl.training.captured import check_capture
from graphcl.training.randomness import seeded
from graphcl.training.settings import TrainingSettings
from graphcl.training.state import NonFiniteLossError, Training


def try_settings(config: Config, dataset: GraphDataset, encoder: OwnEncoders = None, ranks: int = 1) -> None:
    """Run one training step on two graphs with another model, to detect incompatible settings before a file is written.

    Training starts later, in `graphcl.training.loop.train`; nothing computed here is used by it.
    The `encoder` is that of `make_model`; `ranks` is the number of processes that train together.

    Raises:
        InputError: loss, method, views, encoder, data set and ranks are incompatible, or the features contain NaN.
    """
    _check_rows(config, dataset, ranks)
    batch: Any = Batch.from_data_list(dataset.sample())
    if dataset.targets is not None:
        batch = batch, Batch.from_data_list(dataset.targets.sample())
    generator = torch.Generator().manual_seed(0)
    method = make_method(config, dataset, make_model(config, dataset, encoder=encoder))
    if (relation := pairs_of(config, dataset)) is not None:
        mined = relation.negatives is not None or config.hard_negatives > 0
        method.check_pairs(True, relation.weight is not None, mined)
    settings = TrainingSettings.of({**config.training(), "capture": False, "non_finite": "stop"})
    if config.capture:
        check_capture(method, settings, pick_device(config.device))
    of_ranks = synchronise(method) if config.sync_batchnorm else method
    training = Training(of_ranks, [batch], *make_augmentations(config), generator, settings)
    with seeded(0), explain_single_row():
        try:
            for view1, view2, _ in training.views():
                dataset.check_views(view1, view2)
                training.step(view1, view2, torch.arange(view1.num_graphs))
        except NonFiniteLossError:
            raise InputError(
                f"the untrained encoder gives NaN or infinity; look for them in the features of {dataset.name}."
            ) from None
        except RuntimeError as error:
            if encoder in (None, (None, None)) or has_numbers(dataset):
                raise
            raise InputError(
                f"the encoder does not accept the `x` of {dataset.name}, which holds categories ({error}); add a "
                "torch.nn.Embedding for each column, or pass features='degree'."
            ) from None
    facts = {
        "BatchNorm": has_batchnorm(method),
        "BatchNorm of the model": has_batchnorm(method.model),
        "ranks": ranks > 1,
        "degrees": "degree" in dataset.features,
        "batches": dataset.rows != "nodes" or len(dataset) > 1 or bool(config.neighbours),
    }
    warn_of_unused(config, facts, features=dataset.features)


def _check_rows(config: Config, dataset: GraphDataset, ranks: int) -> None:
    """Raise InputError if `dataset` holds graphs and the settings need nodes or the reverse, or on too many ranks."""
    name, nodes = config.method["name"], dataset.rows == "nodes"
    if len(dataset) == 1 and not nodes:
        raise InputError(f"{dataset.name} holds 1 graph; contrasting graphs needs at least two.")
    if config.neighbours:
        import_neighbor_loader()
    if contrasts_nodes(vars(config)) != nodes:
        kinds = ("whole graphs", "nodes", "grace") if nodes else ("nodes", "whole graphs", "two_views")
        raise InputError(
            f"method `{name}` contrasts {kinds[0]}, but the data set is one of {kinds[1]}; use {kinds[2]}."
        )
    if ranks > 1 and encoders.fact(config.encoder["name"], "form") != "dense":
        raise InputError(f"encoder `{config.encoder['name']}` trains in one process, got {ranks} ranks.")
    if config.positives == "group" and dataset.groups is None:
        raise InputError(
            f"`positives` group needs graphs with a `group`, which {dataset.name} lacks; set it in each graph, or name "
            "a column of a table by --group."
        )
    training_graphs(config, dataset)  # raises if its groups cannot be split
    if config.positives != "views":
        training_sampler(config, dataset, config.batch_size, torch.Generator(), (0, ranks))
    elif not nodes:
        check_shard((0, ranks), config.batch_size, len(dataset))
    elif ranks > 1 and not getattr(methods[name], "divides_nodes", False):
        raise InputError(
            f"method `{name}` takes O(N) time for N nodes, which {ranks} ranks would not shorten; start one process."
        )


def warn_of_columns(config: Config, dataset: GraphDataset) -> None:
    """Warn if columns of numbers differ in scale, judging by the first graphs, or if no column can be standardised."""
    if dataset.rows != "graphs":
        return
    if dataset.scales:
        if config.standardise_columns:
            warn(f"`standardise_columns` has no effect, as the columns of {dataset.name} are standardised already")
        return
    scales = dataset.column_scales(torch.arange(min(len(dataset), 10_000)))
    if config.standardise_columns and all(each == 1 for _, deviation in scales.values() for each in deviation):
        warn(f"`standardise_columns` has no effect: {dataset.name} has no column of numbers other than 0 and 1.")
    for key, scale in scales.items() if not config.standardise_columns else ():
        if key == "x" or "edge_dim" in encoders.arguments(config.encoder["name"]).required:
            warn_of_scales(scale, f"`{key}` of {dataset.name}")
