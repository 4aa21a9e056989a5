"""Pretraining in PyG's GraphGym: python examples/graphgym.py

Needs `pip install yacs pytorch-lightning`. Registers a data set, a network and a loss of this library, which GraphGym
then trains and logs to results/example: ten epochs on the embedded data set, scored by a k-nearest neighbour classifier
before and after. Expect a gain of at least 5 points. A configuration file of GraphGym may set the same keys.
"""

import warnings

import torch
from torch_geometric.graphgym import create_model, register, set_printing, set_run_dir, train
from torch_geometric.graphgym.config import assert_cfg, cfg, set_cfg
from torch_geometric.graphgym.train import GraphGymDataModule

from graphcl import GIN, ContrastiveModel, NodeDrop, Subgraph, embed, knn, load_dataset, two_views
from graphcl.losses import adnce
from graphcl.training.diagnostics import alignment


@register.register_loader("graphcl")
def load(format, name, folder):
    """Return a data set split at random into training, validation and test parts."""
    if format != "graphcl":
        return None
    dataset = load_dataset(name, folder)
    order, sizes = torch.randperm(len(dataset)), [len(dataset) - 2 * (len(dataset) // 10), *[len(dataset) // 10] * 2]
    for part, graphs in zip(("train", "val", "test"), order.split(sizes), strict=True):
        dataset._data[f"{part}_graph_index"] = graphs
    return dataset


@register.register_network("contrastive")
class Contrastive(torch.nn.Module):
    """Return the projections of two views of a batch, in place of GraphGym's predictions and labels."""

    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.model = ContrastiveModel(GIN(dim_in, cfg.gnn.dim_inner))

    def forward(self, batch):
        view1, view2 = two_views(batch, NodeDrop(0.2), Subgraph(0.2))
        return self.model(view1), self.model(view2)


@register.register_loss("adnce")
def compare(z1, z2):
    return (adnce(z1, z2, temperature=0.2), z1) if cfg.model.loss_fun == "adnce" else None


@register.register_metric("alignment")
def logged(z2, z1, task):
    return sum(float(alignment(*each)) for each in zip(z1, z2, strict=True)) / len(z1)


def accuracy(model, data):
    """Return the accuracy of the frozen embeddings of all loaders' graphs."""
    parts = [embed(model.model.model, loader) for loader in data.loaders]
    h, y = (torch.cat(part) for part in zip(*parts, strict=True))
    return knn(h, y).mean


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # GraphGym's own warnings
    torch.manual_seed(0)
    torch.set_num_threads(1)
    set_cfg(cfg)
    cfg.run_dir = cfg.out_dir = "results/example"
    cfg.dataset.format, cfg.dataset.name, cfg.dataset.task = "graphcl", "synthetic", "graph"
    cfg.dataset.transductive = False
    cfg.model.type, cfg.model.loss_fun, cfg.gnn.dim_inner = "contrastive", "adnce", 32
    cfg.train.batch_size, cfg.train.enable_ckpt, cfg.optim.max_epoch = 128, False, 10
    cfg.custom_metrics, cfg.params, cfg.accelerator = ["alignment"], 0, "cpu"
    assert_cfg(cfg)
    set_run_dir(cfg.out_dir)
    set_printing()
    data, model = GraphGymDataModule(), create_model()
    untrained = accuracy(model, data)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    train(model, data, logger=True, trainer_config=quiet)
    print(f"k-NN accuracy: untrained {untrained:.1f} %, trained {accuracy(model, data):.1f} %")
