"""`graphcl pack`: write a data set into a folder, from which it is memory-mapped later."""

from __future__ import annotations

from collections.abc import Sequence

from graphcl.config.commands import PACK
from graphcl.datasets import write_on_disk
from graphcl.system.entry_point import entry_point


@entry_point("nothing was written")
def main(arguments: Sequence[str]) -> None:
    """Parse the arguments of `graphcl pack` and run the command."""
    given = PACK.parse(arguments)
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
