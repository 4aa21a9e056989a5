"""A grid of settings over several GPUs: torchrun --nproc-per-node 8 examples/gpu_experiment.py --dataset PROTEINS

Each process takes every R-th run on its own GPU (or CPU thread). Runs are not split, so the results do not depend on
the number of processes. Rank 0 gathers the scores and prints the table. Without torchrun it is one process:
python examples/gpu_experiment.py --epochs 1 (half a minute on a CPU). Expect gains above 0.
"""

import argparse
import sys
from itertools import product

import torch

from graphcl import load_dataset, make_config
from graphcl.distributed.launch import launch
from graphcl.evaluate import paired_gain, summarise
from graphcl.experiment.trial import Trial
from graphcl.tasks.task import make_task

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="synthetic")
parser.add_argument("--mirror")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seeds", type=int, default=2)
options = parser.parse_args()

torch.set_num_threads(1)
grid = list(product(("infonce", "adnce"), (0.1, 0.5), range(options.seeds)))

with launch() as group:
    device = torch.device("cuda", group.local_rank or 0) if torch.cuda.is_available() else torch.device("cpu")
    dataset = load_dataset(options.dataset, mirror=options.mirror)
    mine = {}
    for loss, temperature, seed in grid[group.rank :: group.size]:
        config = make_config(
            {
                "loss": {"name": loss, "temperature": temperature},
                "epochs": options.epochs,
                "evaluation": {"folds": 5, "inner_folds": 2},
            }
        )
        result = Trial(make_task(config, dataset), seed, device).run(rows=("untrained", "trained"))
        before, after = result.scores["svm"]["untrained"], result.scores["svm"]["trained"]
        mine[loss, temperature, seed] = before, after
        line = f"{loss}, temperature {temperature}, seed {seed}: {before.mean:.1f} to {after.mean:.1f} %"
        print(f"[{group.rank}] {line}", file=sys.stderr)
    scores = {key: value for part in group.all_gather_object(mine) for key, value in part.items()}
    for loss, temperature in dict.fromkeys(key[:2] for key in grid):
        before, after = zip(*(scores[loss, temperature, seed] for seed in range(options.seeds)), strict=True)
        gain = paired_gain(after, before).mean
        print(f"{loss:8} {temperature:4} {summarise(after)} ({gain:+.1f})")  # on rank 0; launch() silences the others
