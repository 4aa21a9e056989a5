"""Measure the private and the mapped memory of the commands: python benchmarks/private_memory.py --graphs 200000

Writes generated molecules without labels into a folder, then starts each command on it and reads its /proc/PID/status
every 20 ms: the peaks of RssAnon, private memory, and of RssFile and RssShmem, mapped pages, which the system drops or
writes back when it needs memory. PyTorch's own is the private memory of a process that only imports it. Prints JSON
lines: MB, seconds, graphs. (Linux only.)
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from on_disk import molecules

WRITE = "import sys; sys.path.insert(0, {here!r}); from private_memory import write; write({graphs}, {folder!r})"


def write(graphs, folder):
    """Write generated molecules without labels, 10,000 at a time."""
    import torch
    from on_disk import Shard

    from graphcl import write_on_disk

    def shards():
        generator = torch.Generator().manual_seed(0)
        for start in range(0, graphs, 10_000):
            data, slices = molecules(min(10_000, graphs - start), generator)
            del data.y, slices["y"]
            yield Shard(data, slices)

    write_on_disk(shards(), folder, name="molecules")


def watched(command):
    """Run a command, and return the peaks of its private and its mapped memory in MB, and its seconds."""
    start, private, mapped = time.perf_counter(), 0, 0
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:
            break
        values = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
        private = max(private, values.get("RssAnon", 0))
        mapped = max(mapped, values.get("RssFile", 0) + values.get("RssShmem", 0))
        time.sleep(0.02)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors)
    return round(private * 1024 / 1e6), round(mapped * 1024 / 1e6), round(time.perf_counter() - start, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200_000)
    parser.add_argument("--steps", default="200", help="training steps of each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        here, packed = str(Path(__file__).parent), f"{place}/packed"
        run = ["-m", "graphcl", "run", "--dataset", packed, "--steps", options.steps, "--threads", "1", "--out"]
        embed = ["-m", "graphcl", "embed", f"{place}/none", "--dataset", packed, "--out"]
        commands = {
            "import PyTorch and PyG": ["-c", "import graphcl.api, torch_geometric"],
            "write": ["-c", WRITE.format(here=here, graphs=options.graphs, folder=packed)],
            "open": ["-c", f"import graphcl; print(graphcl.open_on_disk({packed!r})[0])"],
            "train and embed": [*run, f"{place}/none", "--eval", "none", "--report", "false"],
            "train, embed, score, report": [*run, f"{place}/scored"],
            "embed to h.npz": [*embed, f"{place}/h.npz"],
            "embed to shards": [*embed, f"{place}/h", "--shards", "npy"],
        }
        own = 0
        for name, command in commands.items():
            private, mapped, seconds = watched(command)
            own = own or private
            found = {
                "graphs": options.graphs,
                "command": name,
                "private_mb": private,
                "beside_pytorch_mb": private - own,
            }
            print(json.dumps({**found, "mapped_mb": mapped, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
