"""Pretrain an encoder of molecules on SMILES of the MOSES benchmark and save it.

    pip download molsets --no-deps -d moses
    python benchmarks/pretrain_molecules.py moses/molsets-*.whl --molecules 100000 --out build/moses

The wheel of `molsets` holds 1,584,663 molecules of ZINC (Polykovskiy et al., "Molecular Sets (MOSES)", 2020). The
script draws some of them, packs them into OUT/graphs, and starts `graphcl run` on these; further options are passed on
to it, such as `--config graphcl --epochs 5`. The encoder is OUT/run/encoder.pt.
"""

import argparse
import gzip
import random
import zipfile
from pathlib import Path

from graphcl import write_on_disk
from graphcl.run import main as run

TRAIN = "moses/dataset/data/train.csv.gz"


def draw(wheel: Path, count: int, seed: int) -> list[str]:
    """Return `count` different rows of the training part of MOSES, in a random order."""
    with zipfile.ZipFile(wheel) as files:
        rows = [row.split(",")[0] for row in gzip.decompress(files.read(TRAIN)).decode().splitlines()[1:]]
    return random.Random(seed).sample(rows, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--molecules", type=int, default=100_000)
    parser.add_argument("--out", type=Path, required=True)
    given, options = parser.parse_known_args()
    graphs = given.out / "graphs"
    if not graphs.is_dir():
        write_on_disk(draw(given.wheel, given.molecules, seed=0), graphs, name="moses")
    fixed = ["--dataset", str(graphs), "--encoder", "molecule_gine", "--seeds", "0", "--resume", str(given.out / "run")]
    return run([*fixed, *options])


if __name__ == "__main__":
    raise SystemExit(main())
