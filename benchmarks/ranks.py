"""Compare gathered keys with the ring on processes of this machine: python benchmarks/ranks.py --ranks 2 4 8

InfoNCE, both directions, forward and backward, on a global batch that R gloo ranks share, one thread each: time of a
step, processor time of a rank, and its peak memory beyond the projections (by torch's profiler, in a separate step).
`alone` is the loss of a rank's own shard: N / R graphs.

With fewer cores than ranks, wall times are not meaningful; memory and processor time are.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from contextlib import nullcontext
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist

from graphcl.distributed import ranks
from graphcl.losses import infonce
from graphcl.losses.engine import compare as module

FORMS = {"alone": "tiled", "gathered, dense": "dense", "gathered, tiled": "auto", "ring": "tiled"}


def peak(step):
    """Return the peak number of bytes of the tensors that a step creates."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def work(rank, size, options, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    generator = torch.Generator().manual_seed(rank)
    views = [torch.randn(options.graphs // size, options.width, generator=generator) for _ in range(2)]
    views = [each.requires_grad_() for each in views]
    found = {}
    for form in options.forms:

        def step(engine=FORMS[form]):
            infonce(*views, engine=engine).backward()

        group = None if form == "alone" else dist.group.WORLD
        # `auto` between its limits: too many similarities to keep, few enough keys.
        tiles = mock.patch.object(module, "DENSE_LIMIT", 0) if FORMS[form] == "auto" else nullcontext()
        with tiles, ranks.across(group):
            step()
            dist.barrier()
            start, cpu = time.perf_counter(), time.process_time()
            for _ in range(options.steps):
                step()
            cpu = time.process_time() - cpu
            dist.barrier()
            found[form] = (time.perf_counter() - start) / options.steps, cpu / options.steps, peak(step)
    if rank == 0:
        for form, (seconds, cpu, most) in found.items():
            row = f"{size:5} {options.graphs // size:9} {form:16}"
            print(f"{row} {1e3 * seconds:10.1f} {1e3 * cpu:10.1f} {most / 2**20:10.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--graphs", type=int, default=2048, help="in the global batch, N")
    parser.add_argument("--width", type=int, default=128, help="of a projection, D")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    options = parser.parse_args()
    keys = 2 * options.graphs * options.width * 4 / 2**20
    print(f"N = {options.graphs}, D = {options.width}; both views' keys of all ranks are {keys:.2f} MB")
    print("ranks    graphs form                ms/step cpu ms/rank    peak MB")
    context = multiprocessing.get_context("fork")
    for size in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                context.Process(target=work, args=(rank, size, options, f"{folder}/store")) for rank in range(size)
            ]
            for each in processes:
                each.start()
            for each in processes:
                each.join()


if __name__ == "__main__":
    main()
