"""Jobs of two ranks as torchrun starts them, forked from one process: python tests/distributed/jobs.py DATASET FOLDER

Prints as JSON what each rank of each job wrote to stderr and stdout, its exit code, and which process was killed.
"""

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from graphcl.run import main

WORDS = ["--seeds", "0", "--batch-size", "16", "--evaluation.folds", "3", "--encoder.hidden", "8", "--report", "false"]
WORDS += ["--evaluation.inner-folds", "2", "--eval", "knn", "--checkpoint.epochs", "1", "--rank-timeout", "30"]


def rank_of_job(rank, port, words, said):
    torch.set_num_threads(1)
    with said.open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({key: str(value) for key, value in place.items()})
        code = main(words)
    os._exit(code)


def job(folder, name, words, kill_when=None):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    said = [folder / f"{name}-{rank}.txt" for rank in (0, 1)]
    ranks = [context.Process(target=rank_of_job, args=(rank, port, words, said[rank])) for rank in (0, 1)]
    for each in ranks:
        each.start()
    if kill_when is not None:
        while not kill_when() and all(each.is_alive() for each in ranks):
            time.sleep(0.01)
        os.kill(ranks[1].pid, signal.SIGKILL)
    for each in ranks:
        each.join(90)
        each.kill()
    return {
        "said": [each.read_text() for each in said],
        "codes": [each.exitcode for each in ranks],
        "pid": ranks[1].pid,
    }


if __name__ == "__main__":
    dataset, folder = sys.argv[1], Path(sys.argv[2])
    common, run = ["--dataset", dataset, *WORDS], folder / "run"
    found = {
        "mistake": job(folder, "mistake", [*common, "--batch-size", "3", "--out", str(folder / "mistake")]),
        "whole": job(folder, "whole", [*common, "--epochs", "2", "--out", str(folder / "whole")]),
        "killed": job(
            folder,
            "killed",
            [*common, "--epochs", "100000", "--resume", str(run)],
            lambda: list(run.glob("checkpoints/seed-0/step-*.pt")),
        ),
    }
    print(json.dumps(found))
