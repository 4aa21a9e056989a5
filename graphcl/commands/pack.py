"""`graphcl pack`: write a data set to disk, for memory-mapping."""

from __future__ import annotations

from contextlib import nullcontext

from pydantic import Field

from graphcl.cli.command_line import Command
from graphcl.config.settings import DatasetName, Place
from graphcl.datasets.settings import Features, Table
from graphcl.system.processes import Workers, executing


class Pack(Workers, Features, Place, Table):
    """Write a data set into a folder, which `graphcl run --dataset ./FOLDER` memory-maps.
    Several workers parse a table; after a kill, the same command parses the rest.
    """

    dataset: DatasetName
    out: str = Field(title="FOLDER", description="new folder")
    categories: bool = Field(False, description="keep whole numbers in `x` as categories, as some encoders take them")


COMMAND = Command("graphcl pack --dataset NAME --out FOLDER [--KEY VALUE ...]", Pack)


def pack(settings: Pack) -> str:
    """Write a data set to a new folder and return a status line."""
    from graphcl.datasets import write_on_disk  # imported here, as help texts need no torch

    print(f"loading {settings.dataset} ...", flush=True)
    keywords = settings.model_dump(exclude={"dataset", "out", *Workers.model_fields})
    with executing(settings.executor, settings.workers) if settings.many else nullcontext() as executor:
        dataset = write_on_disk(settings.dataset, settings.out, executor=executor, **keywords)
    size = sum(file.stat().st_size for file in dataset.folder.iterdir())
    return f"{dataset}, features: {dataset.features}; {size / 1e6:.1f} MB in {settings.out}"


main = COMMAND.main(pack)
