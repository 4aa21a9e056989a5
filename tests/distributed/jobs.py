"""Run jobs of two ranks like torchrun: python tests/distributed/jobs.py DATASET FOLDER

FOLDER holds values.pt and fewer.pt, which differ from DATASET.

The ranks are forked from one process. As under torchrun, the store outlives the ranks. The outputs and exit codes of
the ranks are printed as JSON.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import sklearn.neighbors  # noqa: F401, imported here so that the ranks need not
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
import graphcl.experiment.run_config  # noqa: F401
from graphcl.commands import embed
from graphcl.run import main
from tests.conftest import overriding

WORDS = "--seeds 0 --batch-size 16 --encoder.hidden_channels 8 --report false --eval knn --evaluation.folds 3"
WORDS += " --evaluation.inner-folds 2 --checkpoint.epochs 1 --rank-timeout 30"


def run_rank(rank, port, words, output, command):
    torch.set_num_threads(1)
    with output.open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank}
        place |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
        os.environ.update({key: str(value) for key, value in place.items()})
        code = command(words)
    os._exit(code)


def job(folder, name, words, kill_when=None, command=main, more=((), ())):
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("fork")
    outputs = [folder / f"{name}-{rank}.txt" for rank in (0, 1)]
    ranks = [
        context.Process(target=run_rank, args=(rank, store.port, [*words, *more[rank]], outputs[rank], command))
        for rank in (0, 1)
    ]
    for each in ranks:
        each.start()
    if kill_when is not None:
        while not kill_when() and all(each.is_alive() for each in ranks):
            time.sleep(0.01)
        os.kill(ranks[1].pid, signal.SIGKILL)
    for each in ranks:
        each.join(90)
        each.kill()
    return {"output": [each.read_text() for each in outputs], "codes": [each.exitcode for each in ranks]}


if __name__ == "__main__":
    dataset, folder = sys.argv[1], Path(sys.argv[2])
    common, run = ["--dataset", dataset, *WORDS.split()], folder / "run"
    words = {"mistake": ["--dataset", "sbm-400", "--method", "dgi"], "whole": ["--epochs", "2"]}
    found = {
        name: job(folder, name, overriding(common, *more, "--out", str(folder / name))) for name, more in words.items()
    }
    given = [str(folder / "whole"), "--dataset", dataset, "--batch-size", "5", "--shard-size", "5", "--shards", "npy"]
    found["embed"] = job(folder, "embed", [*given, "--out", str(folder / "shards")], command=embed.main)
    for name in ("values", "fewer"):
        other = [["--dataset", each] for each in (dataset, str(folder / f"{name}.pt"))]
        found[name] = job(folder, name, [*WORDS.split(), "--epochs", "1", "--out", str(folder / name)], more=other)
    endless, saved = [*common, "--epochs", "100000", "--resume", str(run)], "checkpoints/seed-0/step-*.pt"
    found["killed"] = job(folder, "killed", endless, lambda: list(run.glob(saved)))
    print(json.dumps(found))
