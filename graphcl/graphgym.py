"""Contrastive pretraining in PyG's GraphGym: `import graphcl.graphgym` registers it; needs the extra `graphgym`.

| GraphGym's key    | what it does                                                                           |
|-------------------|----------------------------------------------------------------------------------------|
| `dataset.format`  | `graphcl`: `dataset.name` is whatever `load_dataset` knows; split by `dataset.split`   |
| `model.type`      | `graphcl`: encoder, projector and method of the section `graphcl`                      |
| `model.loss_fun`  | the loss's name (`auto`: as the method is meant); its arguments are in `graphcl.loss`  |
| `custom_metrics`  | `[alignment, uniformity]` of the two views' projections                                |
| `train.mode`      | `graphcl` trains by any method; `standard`, GraphGym's own loop, by `two_views`        |
| `graphcl`         | `encoder`, `projection`, `head`, `loss`, `method`, `views`, `features`, `max_degree`,  |
|                   | `mirror` as in a `Config`, names always as mappings: `encoder: {name: gin, hidden: 64}` |

Everything else is GraphGym's: optimiser, schedule, epochs, loggers, checkpoints. examples/graphgym has a script and a
configuration. GraphGym reads the functions of `register_config` once, when it is imported, which is too early for
anybody else's; the keys are therefore put into its global `cfg` here, too.
"""

from __future__ import annotations

import copy
import functools
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment import two_views
from graphcl.config.settings import Config, build_augmentation, make_config
from graphcl.datasets import GraphDataset, load_dataset
from graphcl.errors import InputError
from graphcl.experiment.seed import edge_columns, make_method
from graphcl.losses import Loss
from graphcl.methods import Outcome, TwoViews
from graphcl.models.contrastive import ContrastiveModel, make_encoder
from graphcl.registry import encoders, losses, methods
from graphcl.training.diagnostics import alignment, uniformity

try:
    from yacs.config import CfgNode

    from graphcl.lightning import pl
except ImportError:
    raise ImportError('graphcl.graphgym needs yacs and Lightning: pip install "graphcl[graphgym]"') from None

from torch_geometric.graphgym import register
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.model_builder import GraphGymModule
from torch_geometric.graphgym.train import train

_KEYS = ("encoder", "projection", "head", "features", "max_degree", "mirror")


def add_keys(cfg: CfgNode) -> None:
    """Put the section `graphcl`, with `Config`'s defaults, and `train.mode` into a configuration of GraphGym."""
    usual, auto = Config().model_dump(), {"name": "auto"}
    section = {key: usual[key] for key in _KEYS} | {
        "loss": {},
        "method": auto,
        "views": {"first": auto, "second": auto},
    }
    cfg.graphcl = _node(section)
    if "mode" not in cfg.train:
        cfg.train.mode = "standard"


def settings(cfg: CfgNode) -> Config:
    """The checked settings of the section `graphcl`, with the loss that `model.loss_fun` names.

    Raises:
        ConfigError: with one line for each problem.
        InputError: a method that has to know which graph of the data set is which.
    """
    values = _plain(cfg.graphcl)
    values["loss"] = {"name": cfg.model.loss_fun, **values["loss"]}
    # What is not chosen is left to the method, which may take but one kind of views.
    values["views"] = {key: view for key, view in values["views"].items() if view["name"] != "auto"}
    config = make_config(values)
    name = config.method["name"]
    if "num_graphs" in methods.arguments(name).required:
        raise InputError(f"method `{name}` has to know which graph is which, and GraphGym's loaders do not tell.")
    return config


class Network(nn.Module):
    """Encoder, projector and method, as the section `graphcl` has them.

    Args:
        dim_in: width of the node features.
        dim_out: of no use here; GraphGym gives the number of classes.

    Raises:
        InputError: see `settings`; the encoder needs edge attributes and the graphs have none.
    """

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        config = settings(cfg)
        arguments = dict(config.encoder)
        name, edge_dim = arguments.pop("name"), cfg.share.get("edge_dim")
        if "edge_dim" in encoders.arguments(name).required and not edge_dim:
            raise InputError(f"encoder `{name}` needs `edge_attr`, and these graphs have none; use gin.")
        model = ContrastiveModel(make_encoder(name, arguments, dim_in, edge_dim), config.projection, config.head)
        self.method = make_method(config, (), model, cfg.seed)
        views = build_augmentation(config.views.first), build_augmentation(config.views.second)
        self.first, self.second = self.method.augmentations(*views)

    @property
    def encoder(self) -> nn.Module:
        """What is kept after training."""
        encoder: nn.Module = self.method.model.encoder
        return encoder

    def contrast(self, batch: Batch) -> Outcome:
        """What the method makes of two views of a batch."""
        outcome: Outcome = self.method(*two_views(batch, self.first, self.second))
        return outcome

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Projections `[B, D]` of two views, which `model.loss_fun` compares in GraphGym's own loop."""
        if not isinstance(self.method, TwoViews):
            raise InputError(f"method {type(self.method).__name__} is trained by `train.mode: graphcl` only.")
        h1, h2 = self.method.model.encode_views(*two_views(batch, self.first, self.second))
        return self.method.model.projector(h1), self.method.model.projector(h2)


class Pretraining(GraphGymModule):
    """GraphGym's module with the steps of a method; a checkpoint is one of that module.

    Args:
        model: as `create_model` makes it with `model.type: graphcl`.
    """

    def __init__(self, model: GraphGymModule) -> None:
        pl.LightningModule.__init__(self)  # GraphGym's own would make the network anew
        if not isinstance(model.model, Network):
            raise InputError(f"`train.mode` graphcl needs `model.type` graphcl, got a {type(model.model).__name__}.")
        self.cfg, self.model = model.cfg, model.model

    def _shared_step(self, batch: Batch, split: str) -> dict[str, Any]:
        outcome = self.model.contrast(batch)
        views = {"true": outcome.z2.detach(), "pred_score": outcome.z1.detach()}
        return {"loss": outcome.loss, **views, "step_end_time": time.time()}

    def on_train_batch_end(self, outputs: Any, batch: Batch, number: int) -> None:
        """What the method does after the optimiser's step."""
        self.model.method.after_step()

    def on_train_epoch_end(self) -> None:
        """What the method does after an epoch."""
        self.log_dict(self.model.method.after_epoch())


def pretrain(
    model: GraphGymModule, datamodule: Any, logger: bool = True, trainer_config: dict[str, Any] | None = None
) -> None:
    """GraphGym's `train`, by the model's method: the same arguments."""
    train(Pretraining(model), datamodule, logger, trainer_config)


def load(format: str, name: str, folder: str) -> GraphDataset | None:
    """The data set of `dataset.format: graphcl`, split at random by `dataset.split` and `seed`.

    Raises:
        InputError: see `load_dataset`; a part of fewer than two graphs.
    """
    if format != "graphcl":
        return None
    section = cfg.graphcl
    dataset = copy.copy(load_dataset(name, folder, section.mirror, section.features, section.max_degree))
    dataset._data = copy.copy(dataset._data)
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(cfg.seed))
    sizes = [int(part * len(dataset)) for part in cfg.dataset.split[1:]]
    sizes.insert(0, len(dataset) - sum(sizes))
    if len(sizes) != 3 or min(sizes) < 2:
        split = cfg.dataset.split
        raise InputError(f"`dataset.split` must leave two graphs or more to each of three parts, got {split}.")
    for part, graphs in zip(("train", "val", "test"), order.split(sizes), strict=True):
        dataset._data[f"{part}_graph_index"] = graphs
    cfg.share.edge_dim = edge_columns(dataset) or 0
    return dataset


def _compare(name: str, pred: Tensor, true: Tensor) -> tuple[Tensor, Tensor] | None:
    """The loss of two views' projections, where it is the one that `model.loss_fun` names."""
    if cfg.model.loss_fun != name:
        return None
    return Loss(name, **_plain(cfg.graphcl.loss))(pred, true), pred


def _mean(measure: Any, true: list[Tensor], pred: list[Tensor], task: str) -> float:
    """A measure of two views' projections: the mean over batches."""
    # Uniformity compares all pairs; a thousand rows estimate it well enough.
    values = [float(measure(z1[:1024], z2[:1024])) for z1, z2 in zip(pred, true, strict=True)]
    return round(sum(values) / len(values), cfg.round)


def _node(values: dict[str, Any]) -> CfgNode:
    """Nested settings as yacs has them; a group may get keys that it has not."""
    node = CfgNode(new_allowed=True)
    for key, value in values.items():
        node[key] = _node(value) if isinstance(value, dict) else value
    return node


def _plain(node: Any) -> Any:
    return {key: _plain(value) for key, value in node.items()} if isinstance(node, dict) else node


register.register_config("graphcl", add_keys)
register.register_loader("graphcl", load)
register.register_network("graphcl", Network)
register.register_train("graphcl", pretrain)
register.register_metric("alignment", functools.partial(_mean, alignment))
register.register_metric("uniformity", functools.partial(_mean, lambda z1, z2: uniformity(z1)))
for _name in losses:
    if "labels" not in losses.arguments(_name).tensors:
        register.register_loss(f"graphcl_{_name}", functools.partial(_compare, _name))
add_keys(cfg)
