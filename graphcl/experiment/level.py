"""Define what differs between runs that contrast graphs and runs that contrast nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.nodes import NodeDataset
from graphcl.datasets.order import check_shard
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS, NODE_EVALUATORS, SPLIT_EVALUATORS, FoldScores
from graphcl.graphs.statistics import graph_statistics
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.node_gcn import propagate
from graphcl.models.nodes import NodeModel
from graphcl.registry import methods
from graphcl.system.optional import import_neighbor_loader

Evaluators = Mapping[str, Callable[..., FoldScores]]


@dataclass(frozen=True)
class Level:
    """The model and the reference rows of runs whose embeddings have one row per graph, or one row per node.

    Args:
        model: class of the model.
        references: row of scores -> function of a loader of all graphs and the settings that returns an embedding
            without an encoder, `[n, columns]`.
    """

    model: type[ContrastiveModel]
    references: Mapping[str, Callable[[Iterable[Batch], Config], Tensor]]


LEVELS = {
    "graphs": Level(ContrastiveModel, {"statistics": lambda whole, config: graph_statistics(whole, config.max_degree)}),
    "nodes": Level(
        NodeModel,
        {
            "raw": lambda whole, _: torch.cat([batch.x for batch in whole]).cpu(),
            "propagated": lambda whole, _: torch.cat([propagate(each.x, each.edge_index) for each in whole]).cpu(),
        },
    ),
}


def level_of(dataset: GraphDataset) -> Level:
    """Return the level of `dataset`."""
    return LEVELS["nodes" if isinstance(dataset, NodeDataset) else "graphs"]


def sample(dataset: GraphDataset) -> list[Data]:
    """Return two graphs, or a part of one whose nodes are contrasted, to try settings on."""
    return dataset.sample() if isinstance(dataset, NodeDataset) else [dataset[0], dataset[1]]


def contrasts_nodes(settings: Mapping[str, Any]) -> bool:
    """Return whether the method in the `settings` of a run contrasts nodes."""
    name = settings.get("method", {}).get("name")
    return name in methods and methods.facts(name).get("rows") == "nodes"


def check_method(config: Config, dataset: GraphDataset) -> None:
    """Raise InputError if the method contrasts nodes and `dataset` holds whole graphs, or the reverse."""
    nodes = isinstance(dataset, NodeDataset)
    if contrasts_nodes(vars(config)) != nodes:
        contrasted, held, usual = (
            ("whole graphs", "nodes", "grace") if nodes else ("nodes", "whole graphs", "two_views")
        )
        raise InputError(
            f"method `{config.method['name']}` contrasts {contrasted}, but the data set is one of {held}; use {usual}."
        )


def check_neighbours(config: Config, dataset: GraphDataset) -> None:
    """Raise InputError if `neighbours` are to be sampled in whole graphs, or cannot be sampled."""
    if config.neighbours:
        if not isinstance(dataset, NodeDataset):
            raise InputError(f"`neighbours` are sampled around nodes, but {dataset.name} holds whole graphs; omit it.")
        import_neighbor_loader()


def check_ranks(config: Config, dataset: GraphDataset, ranks: int) -> None:
    """Raise InputError if the graphs of a batch, or the nodes of a graph, cannot be divided between `ranks` ranks."""
    name = config.method["name"]
    if not isinstance(dataset, NodeDataset):
        check_shard((0, ranks), config.batch_size, len(dataset))
    elif ranks > 1 and not getattr(methods[name], "divides_nodes", False):
        raise InputError(
            f"method `{name}` takes O(N) time for N nodes, which {ranks} ranks would not shorten; start one process."
        )


def fitting_evaluators(dataset: GraphDataset) -> Evaluators:
    """Return the evaluators that fit `dataset`."""
    if dataset.benchmark is not None:
        return SPLIT_EVALUATORS
    if not isinstance(dataset, NodeDataset):
        return EVALUATORS
    usable = {
        name: function
        for name, function in NODE_EVALUATORS.items()
        if dataset.split is not None or "split" not in inspect.signature(function).parameters
    }
    return {**EVALUATORS, **usable}


def check_evaluators(names: Sequence[str], dataset: GraphDataset) -> None:
    """Raise InputError if an evaluator in `names` does not fit `dataset`."""
    if unfit := [name for name in names if name not in fitting_evaluators(dataset)]:
        if isinstance(dataset, NodeDataset):
            why, usual = "has no train_mask, val_mask and test_mask", "random_splits"
        elif dataset.benchmark is not None:
            why, usual = "is scored on its own split", "ogb"
        else:
            why, usual = f"has no {'nodes to score' if unfit[0] in NODE_EVALUATORS else 'split of its own'}", "svm"
        raise InputError(f"`eval` {unfit[0]} does not fit {dataset.name}, which {why}; pass --eval {usual}.")


def split_of(dataset: GraphDataset) -> dict[str, Any]:
    """Return the arguments of evaluators that a benchmark or a public split prescribes; empty without one."""
    if isinstance(dataset, NodeDataset):
        return {"split": dataset.split}
    return {} if dataset.benchmark is None else vars(dataset.benchmark)


def check_views(dataset: GraphDataset, view1: Batch, view2: Batch) -> None:
    """Raise InputError if nodes are contrasted and a view does not keep every node of a sample, in order."""
    if isinstance(dataset, NodeDataset):
        every = dataset.sample()[0].node_id
        for name, view in (("first", view1), ("second", view2)):
            if not torch.equal(view.node_id, every):
                raise InputError(
                    f"`views.{name}` removes nodes, so that row i of both views is not the same node; use edge_drop, "
                    "feature_mask, attribute_mask, edge_perturb or drop_and_mask."
                )
