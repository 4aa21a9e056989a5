"""`graphcl pack`: write a data set into a folder, from which it is memory-mapped later."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from graphcl.config.command_line import Command
from graphcl.config.settings import (
    DataRoot,
    DatasetName,
    Features,
    Invalid,
    MaxDegree,
    Mirror,
    Settings,
    Smiles,
    Target,
)
from graphcl.datasets import write_on_disk
from graphcl.system.entry_point import entry_point


class Pack(Settings):
    """The settings of `graphcl pack`."""

    dataset: DatasetName
    smiles: Smiles = None
    target: Target = Field([])
    invalid: Invalid = "skip"
    out: str = Field(title="FOLDER", description="new folder")
    data_root: DataRoot = "datasets"
    mirror: Mirror = None
    features: Features = "auto"
    max_degree: MaxDegree = 64
    categories: bool = Field(False, description="keep whole numbers in `x` as categories, as molecule_gine takes them")


COMMAND = Command(
    "graphcl pack --dataset NAME --out FOLDER [--KEY VALUE ...]",
    "Write a data set into a folder, which `graphcl run --dataset ./FOLDER` maps into memory.",
    Pack,
)


@entry_point("nothing was written")
def main(arguments: Sequence[str]) -> None:
    """Parse the arguments of `graphcl pack` and run the command."""
    given = COMMAND.parse(arguments)
    if given is None:
        return
    from tqdm import tqdm

    print(f"loading {given.dataset} ...", flush=True)
    with tqdm(desc="writing", unit="B", unit_scale=True, leave=False, disable=None) as bar:  # None: only on a terminal
        dataset = write_on_disk(
            given.dataset, given.out, given.data_root, given.mirror, given.features, given.max_degree,
            categories=given.categories, smiles=given.smiles, target=given.target,
            invalid=given.invalid, on_write=bar.update,
        )  # fmt: skip
    size = sum(file.stat().st_size for file in dataset.folder.iterdir())
    print(f"{dataset}, features: {dataset.features}; {size / 1e6:.1f} MB in {given.out}")
