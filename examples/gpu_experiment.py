"""A grid of settings over several GPUs: torchrun --nproc-per-node 8 examples/gpu_experiment.py --dataset PROTEINS

Each process takes its share of the runs and its own GPU (or CPU threads); nothing is split within a run, so the figures
do not depend on the number of processes. The first one gathers the scores and prints the table. Without `torchrun` it
is one process: python examples/gpu_experiment.py --epochs 1 (half a minute on a CPU). Expect gains above 0.
"""

import argparse
import os
from itertools import product

import torch
import torch.distributed as dist

from graphcl import embed, load_dataset, make_config, make_loader
from graphcl.evaluate import paired_gain, summarise
from graphcl.experiment.seed import make_model, score, train_seed

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="synthetic")
parser.add_argument("--mirror")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seeds", type=int, default=2)
options = parser.parse_args()

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
gpu = int(os.environ.get("LOCAL_RANK", 0))
device = torch.device("cuda", gpu) if torch.cuda.is_available() else torch.device("cpu")
torch.set_num_threads(1)
if world > 1:
    dist.init_process_group("gloo")  # only for the scores, a few numbers

dataset = load_dataset(options.dataset, mirror=options.mirror)
grid = list(product(("infonce", "adnce"), (0.1, 0.5), range(options.seeds)))
mine = {}
for loss, temperature, seed in grid[rank::world]:
    config = make_config(
        {
            "loss": {"name": loss, "temperature": temperature},
            "epochs": options.epochs,
            "evaluation": {"folds": 5, "inner_folds": 2},
        }
    )
    whole = make_loader(dataset, 1024, device=device)
    model = make_model(config, dataset, seed).to(device)
    untrained, y = embed(model, whole)
    train_seed(config, dataset, model, seed)
    trained, y = embed(model, whole)
    before, after = (score(config, "svm", h, y, seed) for h in (untrained, trained))
    mine[loss, temperature, seed] = before, after
    print(f"[{rank}] {loss}, temperature {temperature}, seed {seed}: {before.mean:.1f} to {after.mean:.1f} %")

found = [mine]
if world > 1:
    found = [{}] * world
    dist.all_gather_object(found, mine)
    dist.destroy_process_group()
if rank == 0:
    scores = {key: value for part in found for key, value in part.items()}
    for loss, temperature in dict.fromkeys(key[:2] for key in grid):
        before, after = zip(*(scores[loss, temperature, seed] for seed in range(options.seeds)), strict=True)
        gain = paired_gain(after, before).mean
        print(f"{loss:8} {temperature:4} {summarise(after)} ({gain:+.1f})")
