"""`python -m graphcl embed`: a trained encoder's embeddings of any graphs, written batch by batch."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, InMemoryDataset

from graphcl.config.command_line import command, one_value, read_value, split_options
from graphcl.config.files import parse_value
from graphcl.config.settings import Config, make_config
from graphcl.datasets import GraphDataset, MappedDataset, load_dataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import InputError
from graphcl.experiment.seed import edge_columns, pick_device
from graphcl.models.contrastive import takes_categories
from graphcl.models.saved import EncoderDescription, load_encoder
from graphcl.system.files import new_file, write_whole
from graphcl.training.loop import embed_batches

HELP = """\
usage: python -m graphcl embed ENCODER --dataset NAME --out FILE [--KEY VALUE] ...

Embed graphs with a trained encoder. Labels are not needed; node features are made as they were for its training.

  ENCODER               encoder.pt, or the folder of the run that wrote it
  --dataset NAME        TU or OGB name, `synthetic`, a .pt file, a folder in TU layout or on disk
  --out FILE            a new file, written batch by batch: .npz holds h [n, H], id [n] and y where the graphs have
                        labels; .parquet the columns id, y, h0, h1, ... (pip install "graphcl[parquet]")
  --seed SEED           whose weights, where the file holds several [the first]
  --mirror PLACE        folder, file:// or http(s) URL holding NAME.zip
  --data-root FOLDER    where downloaded and processed data sets lie [datasets]
  --batch-size N        graphs embedded at a time [1024]
  --device NAME         auto, cpu, cuda or cuda:N [auto]
  --threads N           CPU threads [1]
  --help                print this, and stop

A graph's id is its own, where each graph has a number or a text `id`; else its position in the data set.
"""
_SHARED = ("dataset", "data_root", "mirror", "device", "threads")
"""Options that are settings of a run, too."""
_OWN = ("out", "seed", "batch_size")
_ROWS = 16_384
"""Rows of a Parquet file's row group."""


@command("nothing was written")
def main(words: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    if not words or "--help" in words or "-h" in words:
        print(HELP, end="")
        return 0 if words else 2
    _run(parse(words))
    return 0


@dataclass(frozen=True)
class Command:
    """What a command line asks for."""

    encoder: str
    out: str
    seed: int | None
    batch_size: int
    config: Config


def parse(words: Sequence[str]) -> Command:
    """The embedding that a command line describes.

    Raises:
        InputError: it cannot be understood.
    """
    if words[0].startswith("--"):
        raise InputError("the first word must be the encoder: a run's folder or its encoder.pt; see --help.")
    given = {key: one_value(key, values) for key, values in split_options(words[1:], [*_SHARED, *_OWN])}
    for key in ("dataset", "out"):
        if key not in given:
            raise InputError(f"`--{key}` is missing; see --help.")
    if Path(given["out"]).suffix not in _WRITERS:
        raise InputError(f"`--out` must end in {' or '.join(_WRITERS)}, got {given['out']!r}.")
    return Command(
        encoder=words[0],
        out=given["out"],
        seed=_whole("seed", given["seed"], 0) if "seed" in given else None,
        batch_size=_whole("batch_size", given.get("batch_size", "1024"), 1),
        config=make_config({key: read_value(key, [given[key]]) for key in _SHARED if key in given}),
    )


def _run(command: Command) -> None:
    config, write, out = command.config, _WRITERS[Path(command.out).suffix], new_file(command.out)
    if write is _write_parquet and importlib.util.find_spec("pyarrow") is None:
        raise InputError('.parquet files need pyarrow: pip install "graphcl[parquet]", or take .npz.')
    device = pick_device(config.device)
    torch.set_num_threads(config.threads)
    encoder, description = load_encoder(command.encoder, command.seed)
    dataset = load_for(description, config.dataset, config.data_root, config.mirror)
    blocks = _blocks(encoder.to(device), make_loader(dataset, command.batch_size, device=device), dataset.classes)
    write_whole(out, lambda file: write(file, blocks, len(dataset), description.out_channels))
    print(f"{dataset}, features: {dataset.features}; {description.out_channels} numbers a graph in {out}")


def load_for(
    description: EncoderDescription, source: object, root: str = "datasets", mirror: str | None = None
) -> GraphDataset:
    """Graphs with the node features that an encoder takes: made as they were for its training.

    Degrees get just as many columns as it was trained with, larger ones share the last. Graphs that have all columns
    already, labels and degrees, are taken as they are.

    Args:
        description: of the encoder.
        source: whatever `load_dataset` takes; one graph in a list is enough here.
        root: see `load_dataset`.
        mirror: see `load_dataset`.

    Raises:
        InputError: the graphs have other columns than the encoder takes, or see `load_dataset`.
    """
    if isinstance(source, list | tuple | InMemoryDataset) and len(source) == 1:
        # A data set to be contrasted has two graphs or more.
        return load_for(description, [source[0], source[0]], root, mirror)[:1]
    given = dataset = load_dataset(source, root, mirror, categories=takes_categories(description.encoder.name))
    features, takes = description.features, f"the encoder was trained on {description.dataset} with"
    if "labels" in features and given.features == "constant" and not isinstance(source, GraphDataset):
        raise InputError(f"{given.name} has no node labels (no `x`); {takes} {description.columns()}.")
    complete = "labels" in features and given.num_features == description.in_channels
    if not isinstance(given, MappedDataset) and features != "labels" and not complete:
        dataset = load_dataset(given, features=features, degree_columns=description.degree_columns or None)
        dataset.classes = given.classes  # the values before they were counted from 0
    if dataset.num_features != description.in_channels:
        raise InputError(
            f"{given.name} has {given.num_features} columns of `x` ({given.features}); {takes} {description.columns()}."
        )
    name, whole = description.encoder, not dataset[0].x.is_floating_point()
    if name.arguments is not None and whole != takes_categories(name.name):
        kinds = ["numbers", "categories as whole numbers"]
        raise InputError(f"`x` of {given.name} holds {kinds[whole]}; {takes} {kinds[not whole]}.")
    if description.edge_dim is not None and description.edge_dim != (has := edge_columns(dataset)):
        raise InputError(
            f"{given.name} has {has or 'no'} columns of `edge_attr`; {takes} {description.edge_dim}, which it needs."
        )
    return dataset


@dataclass(frozen=True)
class _Block:
    """A batch's rows: h `[B, H]`, ids `[B]` and, where there are labels, y `[B]` or `[B, T]`."""

    h: np.ndarray
    ids: np.ndarray
    y: np.ndarray | None


def _blocks(encoder: nn.Module, loader: Iterable[Batch], classes: Tensor | None) -> Iterator[_Block]:
    done = 0
    for h, batch in embed_batches(encoder, loader):
        n = batch.num_graphs
        ids, y = batch.get("id"), batch.get("y")
        ids = ids.tolist() if isinstance(ids, Tensor) else ids
        own = isinstance(ids, list) and len(ids) == n and all(isinstance(each, int | str) for each in ids)
        if isinstance(y, Tensor) and y.dim() > 0 and y.size(0) == n:
            y = (y if classes is None else classes[y.cpu()]).cpu().numpy()
        else:
            y = None  # not of the graphs
        yield _Block(h.cpu().numpy(), np.asarray(ids if own else range(done, done + n)), y)
        done += n


def _write_npz(file: IO[bytes], blocks: Iterator[_Block], num_graphs: int, width: int) -> None:
    ids, y = [], []
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("h.npy", "w", force_zip64=True) as member:
            header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (num_graphs, width)}
            np.lib.format.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.h.tobytes())
                ids.append(block.ids)
                y += [] if block.y is None else [block.y]
        for name, parts in (("id", ids), ("y", y)):
            if parts:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.concatenate(parts), allow_pickle=False)


def _write_parquet(file: IO[bytes], blocks: Iterator[_Block], num_graphs: int, width: int) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    writer = None
    for group in _groups(blocks):
        y = group.y
        labels = {} if y is None else {"y": y} if y.ndim == 1 else {f"y{i}": y[:, i] for i in range(y.shape[1])}
        columns = {"id": group.ids, **labels, **{f"h{i}": group.h[:, i] for i in range(width)}}
        table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
        writer = writer or ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _groups(blocks: Iterator[_Block]) -> Iterator[_Block]:
    """Blocks put together until they have the rows of a row group."""
    waiting: list[_Block] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(each.ids) for each in waiting) >= _ROWS:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[_Block]) -> _Block:
    y = [block.y for block in blocks if block.y is not None]
    h, ids = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("h", "ids"))
    return _Block(h, ids, np.concatenate(y) if y else None)


_WRITERS = {".npz": _write_npz, ".parquet": _write_parquet}


def _whole(key: str, text: str, least: int) -> int:
    value: Any = parse_value(text)
    if type(value) is not int or value < least:
        flag = key.replace("_", "-")
        raise InputError(f"`--{flag}` must be a whole number of at least {least}, got {text!r}.")
    return value


if __name__ == "__main__":
    sys.exit(main())
