"""Pretraining in GraphGym: python examples/graphgym/main.py --cfg examples/graphgym/contrastive.yaml

Needs the extra `graphgym`. Ten epochs on the embedded data set, logged by GraphGym to results/contrastive/0, and the
accuracy of a k-nearest neighbour classifier before and after. Expect a gain of at least 10 points. Override any
key: `model.loss_fun dcl optim.max_epoch 20`, `model.loss_fun moco train.batch_size 64`.
"""

import logging
import warnings

import torch
from torch_geometric import seed_everything
from torch_geometric.graphgym import create_model, load_cfg, parse_args, set_out_dir, set_printing, set_run_dir, train
from torch_geometric.graphgym.config import cfg, dump_cfg
from torch_geometric.graphgym.register import train_dict
from torch_geometric.graphgym.train import GraphGymDataModule
from torch_geometric.graphgym.utils.comp_budget import params_count
from torch_geometric.graphgym.utils.device import auto_select_device

import graphcl.graphgym  # noqa: F401  registers everything
from graphcl import embed, knn


def accuracy(model, data):
    """Return the accuracy of the frozen embeddings of all loaders' graphs."""
    parts = [embed(model.model.method.model, loader) for loader in data.loaders]
    h, y = (torch.cat(part) for part in zip(*parts, strict=True))
    return knn(h, y).mean


warnings.filterwarnings("ignore", module="torch_geometric.graphgym|torch.utils.data")  # GraphGym's own warnings
args = parse_args()
load_cfg(cfg, args)
set_out_dir(cfg.out_dir, args.cfg_file)
dump_cfg(cfg)
torch.set_num_threads(cfg.num_threads)
set_run_dir(cfg.out_dir)
set_printing()
seed_everything(cfg.seed)
auto_select_device()
data = GraphGymDataModule()
model = create_model()
cfg.params = params_count(model)
untrained = accuracy(model, data)
quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
train_dict.get(cfg.train.mode, train)(model, data, logger=True, trainer_config=quiet)
trained = accuracy(model, data)
logging.info(f"k-NN accuracy: untrained {untrained:.1f} %, trained {trained:.1f} %")
