"""A run killed again and again, resumed each time, against one that was left alone. docs/long_runs.md tells.

python benchmarks/kills.py --mirror ../shared/tu [--kills 50] [--seed 0]

SIGKILL at random moments: a fifth of them at any time from the start of the process on, two fifths while it is at work,
two fifths as soon as a file is half-written. The exit code is 1 if a resumed run fails or the outcome differs.
"""

import argparse
import collections
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from graphcl.models.saved import read_saved

TIMES = ("seconds", "epoch_seconds", "data_share", "finished", "command")
SETTINGS = ["--config", "graphcl/PROTEINS", "--epochs", "40", "--seeds", "0", "1", "--eval", "knn"]
SETTINGS += ["--checkpoint.epochs", "1"]
LONGEST = 4.0
"""Seconds at work before a kill."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mirror", required=True, help="folder that holds PROTEINS.zip")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        words = [sys.executable, "-u", "-m", "graphcl", "run", *SETTINGS, "--mirror", given.mirror]
        words += ["--data-root", str(place / "data")]
        subprocess.run([*words, "--out", str(place / "unbroken")], check=True, stdout=subprocess.DEVNULL)
        hit, finished_early = collections.Counter(), 0
        killed = 0
        while killed < given.kills:
            where = kill([*words, "--resume", str(place / "broken")], place / "broken", chance)
            if where is None:  # it was over before: a run anew
                finished_early += 1
                check(place)
                (place / "broken").rename(place / f"broken-{finished_early}")
                continue
            hit[where] += 1
            killed += 1
            print(f"{killed}: {where}", flush=True)
        subprocess.run([*words, "--resume", str(place / "broken")], check=True, stdout=subprocess.DEVNULL)
        check(place)
    print("\n| killed | times |\n|---|---|")
    print("\n".join(f"| {where} | {count} |" for where, count in sorted(hit.items())))
    print(f"\n{killed} kills over {finished_early + 1} runs; every one ended as the unbroken run.")


def kill(words, folder, chance):
    """Start the run and kill it; where that was, or None if it ended first."""
    before = progress(folder)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    kind = chance.choices(["any", "work", "write"], [1, 2, 2])[0]
    if kind == "any":
        time.sleep(chance.uniform(0, LONGEST))
    else:
        process.stdout.readline()
        deadline = time.monotonic() + chance.uniform(0, LONGEST)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.001)
        while kind == "write" and process.poll() is None and not half_written(folder):
            pass
    process.send_signal(signal.SIGKILL)
    said = process.stdout.read()
    if process.wait() == 0:
        return None
    if process.returncode != -signal.SIGKILL:
        sys.exit(f"the resumed run failed by itself ({process.returncode}): {said}")
    if found := half_written(folder):
        return f"with {found} half-written"
    if not folder.exists() or progress(folder) == before:
        return "before anything new was kept"
    return "elsewhere at work"


def half_written(folder):
    """What kind of file is half-written, if one is."""
    for path in [*folder.glob(".*.partial"), *folder.glob("checkpoints/*/.*.partial")]:
        return "a checkpoint" if path.name.startswith(".step") else path.name[1:].removesuffix(".partial")
    return None


def progress(folder):
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file())


def check(place):
    """Weights, embeddings and results as those of the unbroken run, or the end."""
    one, other = place / "broken", place / "unbroken"
    results = []
    for folder in (one, other):
        result = json.loads((folder / "result.json").read_text())
        del result["config"]["out"]
        results.append({key: value for key, value in result.items() if key not in TIMES})
    weights, others = read_saved(one)[1], read_saved(other)[1]
    same = results[0] == results[1] and list(weights) == list(others)
    same = same and all(torch.equal(each, others[seed][key]) for seed in weights for key, each in weights[seed].items())
    for name in ("embeddings.npz", "report.npz"):
        with np.load(one / name) as found, np.load(other / name) as wanted:
            same = same and all(np.array_equal(found[key], wanted[key]) for key in wanted)
    rows = [
        [line.partition('"seconds"')[0] for line in (f / "metrics.jsonl").read_text().splitlines()]
        for f in (one, other)
    ]
    if not same or rows[0] != rows[1]:
        keys = [key for key in results[1] if results[0].get(key) != results[1][key]]
        sys.exit(f"the outcome differs from the unbroken run's; in result.json: {', '.join(keys) or 'nothing'}")


if __name__ == "__main__":
    main()
