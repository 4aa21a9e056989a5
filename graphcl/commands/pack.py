"""`graphcl pack`: write a data set into a folder, from which it is memory-mapped later."""

from __future__ import annotations

from graphcl.cli.commands import PACK, Pack
from graphcl.datasets import write_on_disk


def pack(settings: Pack) -> str:
    """Write a data set to a new folder and return a status line."""
    from tqdm import tqdm

    print(f"loading {settings.dataset} ...", flush=True)
    keywords = settings.model_dump(exclude={"dataset", "out"})
    with tqdm(desc="writing", unit="B", unit_scale=True, leave=False, disable=None) as bar:  # None: only on a terminal
        dataset = write_on_disk(settings.dataset, settings.out, on_write=bar.update, **keywords)
    size = sum(file.stat().st_size for file in dataset.folder.iterdir())
    return f"{dataset}, features: {dataset.features}; {size / 1e6:.1f} MB in {settings.out}"


main = PACK.main(pack)
