"""Add contrastive pretraining to PyG's GraphGym, on import; needs the extra `graphgym`.

| GraphGym's key    | effect                                                                                 |
|-------------------|----------------------------------------------------------------------------------------|
| `dataset.format`  | `graphcl`: `dataset.name` is passed to `load_dataset`; split by `dataset.split`        |
| `model.type`      | `graphcl`: the encoder, projector and method from the section `graphcl`                |
| `model.loss_fun`  | name of the loss (`auto`: the method's usual loss); its arguments: `graphcl.loss`      |
| `custom_metrics`  | `[alignment, uniformity]` of the two views' projections                                |
| `train.mode`      | `graphcl`: for any method; `standard` (GraphGym's own loop): for `two_views` only      |
| `graphcl`         | `encoder`, `projection`, `projector`, `loss`, `method`, `views`, `features`, `max_degree`,  |
|                   | `mirror` as in a `Config`, always as mappings: `encoder: {name: gin, hidden_channels: 64}`      |

GraphGym provides the optimiser, schedule, epochs, loggers and checkpoints. See examples/graphgym for a script and a
configuration. GraphGym fills its global `cfg` when GraphGym is imported, before this module can register its keys.
Therefore this module also adds its keys to `cfg` itself.
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
from graphcl.config import Config, make_config
from graphcl.datasets import GraphDataset, load_dataset
from graphcl.errors import InputError
from graphcl.experiment.build import make_augmentations, make_method
from graphcl.losses import Loss
from graphcl.methods import Outcome, TwoViews
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.interface import make_encoder, takes_categories
from graphcl.registry import losses, methods
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

_KEYS = ("encoder", "projection", "projector", "features", "max_degree", "mirror")


def add_keys(cfg: CfgNode) -> None:
    """Add the section `graphcl`, with the defaults of `Config`, and `train.mode` to GraphGym's configuration `cfg`."""
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
    """Return a validated `Config` from the section `graphcl` of `cfg`, with the loss named by `model.loss_fun`.

    Raises:
        ConfigError: a setting is invalid; the message has one line per problem.
        InputError: the method needs the indices of the graphs, which GraphGym's loaders do not provide.
    """
    values = _plain(cfg.graphcl)
    values["loss"] = {"name": cfg.model.loss_fun, **values["loss"]}
    # leave out unset views, so that `make_config` sets them to the kind that the method accepts
    values["views"] = {key: view for key, view in values["views"].items() if view["name"] != "auto"}
    config = make_config(values)
    name = config.method["name"]
    if "num_graphs" in methods.arguments(name).required:
        raise InputError(
            f"method `{name}` needs the indices of a batch's graphs, which GraphGym's loaders do not provide."
        )
    return config


class Network(nn.Module):
    """Network for GraphGym, built from the encoder, projector and method in the section `graphcl`.

    Args:
        dim_in: number of node feature columns.
        dim_out: number of classes, which GraphGym passes; ignored.

    Raises:
        InputError: the encoder requires edge attributes and the graphs have none; see also `settings`.
    """

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        config = settings(cfg)
        arguments = dict(config.encoder)
        name, edge_dim = arguments.pop("name"), cfg.share.get("edge_dim")
        model = ContrastiveModel(make_encoder(name, arguments, dim_in, edge_dim), config.projection, config.projector)
        self.method = make_method(config, (), model, cfg.seed)  # needs no graphs, see `settings`
        self.first, self.second = self.method.augmentations(*make_augmentations(config))

    @property
    def encoder(self) -> nn.Module:
        """The graph encoder, without projector and method."""
        encoder: nn.Module = self.method.model.encoder
        return encoder

    def contrast(self, batch: Batch) -> Outcome:
        """Augment a batch twice and return the method's outcome for the two views."""
        outcome: Outcome = self.method(*two_views(batch, self.first, self.second))
        return outcome

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Augment a batch twice and return the two views' projections `[B, D]`, for the loss in GraphGym's own loop."""
        if not isinstance(self.method, TwoViews):
            raise InputError(f"method {type(self.method).__name__} needs `train.mode: graphcl`.")
        h1, h2 = self.method.model.encode_views(*two_views(batch, self.first, self.second))
        z1, z2 = self.method.model.project(h1, h2)
        return z1, z2


class Pretraining(GraphGymModule):
    """GraphGym's Lightning module, with a training step for the method in the section `graphcl`.

    Its checkpoints can be loaded into a plain `GraphGymModule`.

    Args:
        model: module from GraphGym's `create_model`, with `model.type: graphcl`.
    """

    def __init__(self, model: GraphGymModule) -> None:
        pl.LightningModule.__init__(self)  # `GraphGymModule.__init__` would create a second network
        if not isinstance(model.model, Network):
            raise InputError(f"`train.mode` graphcl needs `model.type` graphcl, got a {type(model.model).__name__}.")
        self.cfg, self.model = model.cfg, model.model

    def _shared_step(self, batch: Batch, split: str) -> dict[str, Any]:
        outcome = self.model.contrast(batch)
        views = {"true": outcome.z2.detach(), "pred_score": outcome.z1.detach()}
        return {"loss": outcome.loss, **views, "step_end_time": time.time()}

    def on_train_batch_end(self, outputs: Any, batch: Batch, number: int) -> None:
        """Update the method's state (momentum encoder, queue or memory bank) after the optimiser step."""
        self.model.method.after_step()

    def on_train_epoch_end(self) -> None:
        """Update the method's state after an epoch, and log the method's own metrics."""
        self.log_dict(self.model.method.after_epoch())


def pretrain(
    model: GraphGymModule, datamodule: Any, logger: bool = True, trainer_config: dict[str, Any] | None = None
) -> None:
    """Train `model` with its contrastive method; GraphGym calls this function if `train.mode` is `graphcl`."""
    train(Pretraining(model), datamodule, logger, trainer_config)


def load(format: str, name: str, folder: str) -> GraphDataset | None:
    """Load the data set `name` if `format` is `graphcl`, else return None; called by GraphGym.

    The graphs are split at random into training, validation and test parts, by `dataset.split` and `seed`.

    Raises:
        InputError: a part would have fewer than two graphs; see also `load_dataset`.
    """
    if format != "graphcl":
        return None
    section = cfg.graphcl
    categories = takes_categories(section.encoder["name"])
    dataset = load_dataset(name, folder, section.mirror, section.features, section.max_degree, categories=categories)
    dataset = copy.copy(dataset)
    dataset._data = copy.copy(dataset._data)
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(cfg.seed))
    sizes = [int(part * len(dataset)) for part in cfg.dataset.split[1:]]
    sizes.insert(0, len(dataset) - sum(sizes))
    if len(sizes) != 3 or min(sizes) < 2:
        split = cfg.dataset.split
        raise InputError(f"`dataset.split` must give each of three parts at least two graphs, got {split}.")
    for part, graphs in zip(("train", "val", "test"), order.split(sizes), strict=True):
        dataset._data[f"{part}_graph_index"] = graphs
    cfg.share.edge_dim = dataset.num_edge_features
    return dataset


def _compare(name: str, pred: Tensor, true: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return (loss, `pred`), as GraphGym expects of a loss function; None if `model.loss_fun` is not `name`."""
    if cfg.model.loss_fun != name:
        return None
    loss = Loss(name, **_plain(cfg.graphcl.loss))
    if loss.learns:
        raise InputError("`graphcl.loss.temperature` must be a number: a loss function of GraphGym has no parameters.")
    return loss(pred, true), pred


def _mean(measure: Any, true: list[Tensor], pred: list[Tensor], task: str) -> float:
    """Return the mean over batches of `measure`, a function of two views' projections."""
    # uniformity costs O(rows^2), so use the first 1024 rows, which estimate it well enough
    values = [float(measure(z1[:1024], z2[:1024])) for z1, z2 in zip(pred, true, strict=True)]
    return round(sum(values) / len(values), cfg.round)


def _node(values: dict[str, Any]) -> CfgNode:
    """Return nested settings as a yacs `CfgNode`; configuration files may add keys to it."""
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
