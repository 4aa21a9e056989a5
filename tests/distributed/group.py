"""Run checks on groups of processes: python tests/distributed/group.py 2,4 losses methods training whole

A check is a function without arguments in a module's dict `CHECKS`, which all ranks of a gloo group call; `ON_FOUR`
names those to call on four ranks. One process imports all modules and forks the ranks, as importing takes most of the
time. The errors are printed as JSON by group size, module and name; null means passed.
"""

import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from datetime import timedelta
from itertools import product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))  # for helpers of other tests
TIME_LIMIT = timedelta(seconds=60)
BROKEN = "not run, as an earlier check broke the group"


def run(checks, rank, size, folder):
    """Run all checks on one rank and write the errors to a file."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store-{size}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=TIME_LIMIT)
    found = {}
    for name, check in checks.items():
        try:
            check()
            found[name] = None
        except Exception as error:
            found[name] = "".join(traceback.format_exception(error)[-4:])
        (folder / f"{size}-{rank}.json").write_text(json.dumps(found))
        # If only some ranks failed, other ranks may still wait in a collective: run no further checks.
        passed = [None] * size
        dist.all_gather_object(passed, found[name] is None)
        if len(set(passed)) > 1:
            break
    dist.destroy_process_group()


def outcomes(checks, size):
    """Run `checks` on `size` processes and return the error of each by name; None if it passed."""
    context, found = multiprocessing.get_context("fork"), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [context.Process(target=run, args=(checks, rank, size, folder)) for rank in range(size)]
        for each in processes:
            each.start()
        for rank, each in enumerate(processes):
            each.join()
            file = folder / f"{size}-{rank}.json"
            found.append(json.loads(file.read_text()) if file.is_file() else {})
    lines = {name: [f"rank {rank}: {each.get(name, BROKEN)}" for rank, each in enumerate(found)] for name in checks}
    return {name: lines[name] if any(each.get(name, BROKEN) for each in found) else None for name in checks}


def main(sizes, *stems):
    modules = {stem: importlib.import_module(f"tests.distributed.{stem}") for stem in stems}
    found = {size: {} for size in sizes.split(",")}
    for size, (stem, module) in product(found, modules.items()):
        names = module.ON_FOUR if size == "4" else module.CHECKS
        found[size][stem] = outcomes({name: module.CHECKS[name] for name in names}, int(size))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
