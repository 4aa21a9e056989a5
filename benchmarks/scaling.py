"""Model the cost of a training step over many devices, and check the model here (docs/several_machines.md).

python benchmarks/scaling.py           # the table for H200s, from published figures of the hardware
python benchmarks/scaling.py --check   # the same model on this machine: one process, and two over gloo

A step of a rank with n graphs, R ranks, N = R n: the encoder on two views; gathering the other ranks' projections
[N, D] of both; own anchors against all N rows, both directions; the backward of all that; averaging the gradients.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FLOAT = 4
COLUMNS, HIDDEN, LAYERS, PARAMETERS = 96, 32, 3, 32_000
NODES, EDGES = 30, 65
"""Averages of a graph of NCI1; edges in both directions."""
PASSES = 26
"""Reads and writes of a layer's activations [nodes, HIDDEN], forward and backward: sums of neighbours, two linear
layers, BatchNorm, ReLU, readout."""
LAUNCHES = 420
"""Kernels of a step outside the loss's tiles: two views in one pass, forward, backward, Adam, augmentation."""


@dataclass(frozen=True)
class Machine:
    """Rates of a device, and of the links between ranks."""

    name: str
    flops: float  # float32, multiply-adds as two
    bandwidth: float  # bytes of memory
    efficiency: float  # share of both that real kernels reach
    launch: float  # seconds that starting a kernel takes the host
    near: float  # bytes a second, each direction, to ranks of the same machine
    far: float  # and to those of others
    latency: float  # seconds of a collective, near
    far_latency: float
    per_machine: int


H200 = Machine("H200", 67e12, 4.8e12, 0.5, 4e-6, 450e9, 50e9, 15e-6, 40e-6, 8)


@dataclass(frozen=True)
class Step:
    """Seconds of the parts of a step."""

    encoder: float
    gather: float
    loss: float
    gradients: float

    @property
    def total(self) -> float:
        return self.encoder + self.gather + self.loss + self.gradients


def loss_flops(n: int, ranks: int, columns: int = COLUMNS) -> float:
    """Return the flops of the similarities, forward and again backward, and of two products for the gradients.

    Those of the rank's own two views serve both directions; those with other ranks' rows one each.
    """
    return 4 * (n * n + 2 * n * n * (ranks - 1)) * 2 * columns


def gather_bytes(n: int, ranks: int, columns: int = COLUMNS) -> int:
    """Return the bytes a rank receives: others' rows of both views; in backward, the gradients of its own rows."""
    return 2 * 2 * (ranks - 1) * n * columns * FLOAT


def gradient_bytes(ranks: int, parameters: int = PARAMETERS) -> float:
    """Return the bytes of a ring all-reduce."""
    return 2 * (ranks - 1) / ranks * parameters * FLOAT


def encoder_bytes(n: int) -> float:
    """Return the bytes of all layers' activations, of two views."""
    return 2 * n * (NODES * PASSES + EDGES * 3) * HIDDEN * FLOAT * LAYERS


def step(machine: Machine, n: int, ranks: int) -> Step:
    """Return the modelled seconds; parts run one after another, each at the rate of its bottleneck."""
    far = ranks > machine.per_machine
    link, latency = (machine.far, machine.far_latency) if far else (machine.near, machine.latency)
    alone = ranks == 1
    encoder = max(encoder_bytes(n) / (machine.bandwidth * machine.efficiency), LAUNCHES * machine.launch)
    gather = 0.0 if alone else gather_bytes(n, ranks) / link + 4 * latency
    gradients = 0.0 if alone else gradient_bytes(ranks) / link + latency
    return Step(encoder, gather, loss_flops(n, ranks) / (machine.flops * machine.efficiency), gradients)


def table() -> None:
    """Print the table: batches of fixed size over more and more ranks."""
    head = "batch", "ranks", "encoder ms", "gather ms", "loss ms", "gradients ms", "step ms", "graphs/s", "speed-up"
    print("| " + " | ".join([*head, "all similarities, GB", "gathered rows, MB"]) + " |\n" + "|---" * 11 + "|")
    for batch in (4096, 32768, 262144):
        one = step(H200, batch, 1).total
        for ranks in (1, 8, 64):
            n = batch // ranks
            each = step(H200, n, ranks)
            dense, rows = 2 * n * batch * FLOAT / 1e9, 2 * batch * COLUMNS * FLOAT / 1e6 if ranks > 1 else 0
            cells = [batch, ranks, *(f"{1000 * part:.2f}" for part in vars(each).values()), f"{1000 * each.total:.2f}"]
            cells += [f"{batch / each.total:,.0f}", f"{one / each.total:.1f}", f"{dense:.1f}", f"{rows:.0f}"]
            print("| " + " | ".join(map(str, cells)) + " |")


CHECKED = (1024, 1536, 2048, 3072)
"""Graphs per rank, enough for a tiled loss with gathered keys."""


def check() -> None:
    """Measure parts with one process and with two, and print the model's prediction from the first of each.

    The rate of the loss is that of one process with the fewest graphs, the link's that of the fewest and most rows.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FOLDER": folder}
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*torchrun, __file__, "--rank"], env=environment, check=True)
        found = json.loads((Path(folder) / "found.json").read_text())
    one = [each for each in found if each["ranks"] == 1]
    two = [each for each in found if each["ranks"] == 2]
    rate = loss_flops(one[0]["n"], 1) / one[0]["loss"]
    small, large = two[0]["gather"], two[-1]["gather"]
    link = (gather_bytes(two[-1]["n"], 2) - gather_bytes(two[0]["n"], 2)) / max(large - small, 1e-9)
    latency = small - gather_bytes(two[0]["n"], 2) / link
    print(f"loss of the smallest on one process: {rate / 1e9:.1f} Gflop/s; gloo: {link / 1e6:.0f} MB/s and "
          f"{1e6 * latency:.0f} us a step\n")  # fmt: skip
    print("| graphs a rank | ranks | loss, model ms | measured | gather, model ms | measured |\n" + "|---" * 6 + "|")
    for each in [*one, *two]:
        loss = loss_flops(each["n"], each["ranks"]) / rate
        gather = 0.0 if each["ranks"] == 1 else gather_bytes(each["n"], 2) / link + latency
        figures = (f"{1000 * value:.2f}" for value in (loss, each["loss"], gather, each["gather"]))
        cells = [each["n"], each["ranks"], *figures]
        print("| " + " | ".join(map(str, cells)) + " |")


def rank() -> None:
    """Run one of the processes that `check` starts."""
    import torch
    import torch.distributed as dist

    from graphcl.distributed import ranks
    from graphcl.losses import dcl

    def moves(z1: torch.Tensor, z2: torch.Tensor) -> None:
        (ranks.gather(z1).sum() + ranks.gather(z2).sum()).backward()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = []
    for size, group in ((1, None), (2, dist.group.WORLD)):
        for n in CHECKED:
            z1, z2 = (torch.randn(n, COLUMNS, requires_grad=True) for _ in range(2))

            with ranks.across(group):
                whole = timed(lambda a=z1, b=z2: dcl(a, b).backward(), dist)
                moved = timed(lambda a=z1, b=z2: moves(a, b), dist) if group else 0.0
            found.append({"n": n, "ranks": size, "loss": whole - moved, "gather": moved})
    if dist.get_rank() == 0:
        (Path(os.environ["FOLDER"]) / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def timed(work, dist) -> float:
    """Return the median seconds of several calls."""
    found = []
    for number in range(9):
        dist.barrier()
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
        if number < 2:
            found.clear()
    return statistics.median(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="measure on this machine")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    rank() if given.rank else check() if given.check else table()
