"""Parse the chunks of a table of molecules by many processes; each parsed chunk is a file, so that a kill loses few."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import torch
from torch_geometric.data import Data

from graphcl.datasets.molecules.smiles import Chunk, Parsed, parse
from graphcl.system.arrays import write_torch_file
from graphcl.system.files import remove_partial
from graphcl.system.processes import completed
from graphcl.system.progress import progress


def parse_by(executor: Executor, folder: Path, chunks: list[Chunk]) -> Iterator[Parsed]:
    """Yield the parsed chunks in order; those that have a file in `folder` already are not parsed again."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial(folder)
    missing = [each for each in chunks if not _file(folder, each).exists()]
    with progress("parsing", sum(len(each.molecules) for each in missing)) as update:
        for chunk, _ in completed(functools.partial(_parse_into, folder), missing, executor):
            update(len(chunk.molecules))
    for each in chunks:
        graphs, *rest = torch.load(_file(folder, each), weights_only=True)
        yield Parsed((Data.from_dict(graphs[0]), graphs[1]), *rest)


def _parse_into(folder: Path, chunk: Chunk) -> None:
    (data, slices), *rest = parse(chunk)
    content = [(data.to_dict(), slices), *rest]
    write_torch_file(_file(folder, chunk), content)


def _file(folder: Path, chunk: Chunk) -> Path:
    """Return the file of a parsed chunk, named by the rows that it holds."""
    name = hashlib.sha256(repr(chunk).encode()).hexdigest()[:16]
    return Path(os.path.abspath(folder)) / f"{chunk.start}-{name}.pt"
