"""`graphcl embed`: embed graphs with a trained encoder and write the embeddings to a file."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from graphcl.arguments import Count
from graphcl.cli.command_line import Command
from graphcl.commands.options import EncoderFile, EncoderSeed, Force, Workers
from graphcl.config.settings import TABLE, DatasetName, Hardware, Imports, Place
from graphcl.datasets.invalid import invalid_csv, write_invalid
from graphcl.datasets.settings import Table
from graphcl.errors import InputError, warn
from graphcl.system.arrays import id_arrays, write_array
from graphcl.system.files import claimed, new_file, remove_partial, write_whole
from graphcl.system.optional import optional

if TYPE_CHECKING:
    import pyarrow
    import torch
    from torch_geometric.data import Batch

    from graphcl.datasets.dataset import GraphDataset
    from graphcl.models.contrastive import ContrastiveModel


class Embed(Workers, Hardware, Place, Table, Imports):
    """Embed graphs with a trained encoder. Labels are not needed; node features are built as in its training.
    The id of a graph is its own `id`, a number or a string, or that of its row in a table of molecules; if they have
    none, its index in the data set.
    """

    encoder: EncoderFile
    dataset: DatasetName
    out: Annotated[str, Field(title="FILE")]
    """new file: .npz with h [n, H], id [n] and y if the graphs have labels; or .csv, or .parquet, with the columns id,
    y, h0, h1, ... (pip install "graphcl[parquet]"). Sparse rows: .npz for scipy.sparse.load_npz, or .parquet with
    indices and values. Without a suffix: a folder of shards, by `workers` or torchrun; the
    same command continues it"""
    shards: Annotated[Literal["parquet", "npy"], Field(title="parquet|npy")] = "parquet"
    """files in a folder of shards: part-00000.parquet, ...; or part-00000/h.npy, id.npy, ..."""
    shard_size: Count | None = Field(None, description="graphs in a shard; default: a 64th, of 1,024 to 65,536")
    force: Force = False
    seed: EncoderSeed = None
    role: Literal["query", "target"] = "query"
    """of two towers, the encoder to use"""
    batch_size: Count = Field(1024, description="graphs embedded at a time")


COMMAND = Command("graphcl embed ENCODER --dataset NAME --out FILE [--KEY VALUE ...]", Embed, positional="encoder")

Block = dict[str, Any]
"""Rows of a batch of B graphs: `id [B]`, embeddings `h [B, H]`, and if given, `y [B]` or `[B, T]` and `group [B]`.
Of a sparse encoder, h is a `SparseRows`."""
_GROUP_ROWS = 16_384
"""Minimum number of rows in each row group of a Parquet file, except the last."""


def embed(settings: Embed) -> str:
    """Write the embeddings of a data set to a new file and return a status line.

    Raises:
        InputError: the file exists or cannot be written, or the encoder or the graphs cannot be used.
    """
    from graphcl.models.saved import read_saved  # imported here, as help texts need no torch

    if settings.role == "target" and read_saved(settings.encoder)[0].target is None:
        warn(f"`role` target has no effect, as {settings.encoder} has one encoder for queries and targets")
    suffix = Path(settings.out).suffix
    if not suffix:
        from graphcl.commands.shards import embed_shards

        return embed_shards(settings)
    if suffix not in WRITERS:
        shards = "without a suffix, it is a folder of shards"
        raise InputError(f"`out` must end in .npz, .parquet or .csv, got {settings.out!r}; {shards}.")
    if settings.many:
        raise InputError(f"`workers` and `executor` write shards; give `out` no suffix, got {settings.out!r}.")
    out = new_file(settings.out, settings.force, settings.dataset)
    if suffix == ".parquet":
        optional("pyarrow", ".parquet files, unlike .npz, need pyarrow", "parquet")
    with claimed(out):
        opened = open_inputs(settings)
        dataset, names = opened.dataset, out.with_name(f"{out.name}.invalid.csv")
        remove_partial(names.parent, names.name)
        # a killed process may have written the same list
        if dataset.invalid and not (names.is_file() and names.read_bytes() == invalid_csv(dataset.invalid).encode()):
            new_file(names, settings.force, settings.dataset)
        blocks, writers = opened.blocks(), SPARSE_WRITERS if opened.model.sparse else WRITERS
        if suffix not in writers:
            raise InputError(f"`out` must end in .npz or .parquet for sparse rows, got {settings.out!r}.")
        if not dataset.invalid and settings.force:  # the list of another data set
            names.unlink(missing_ok=True)
        status = write_invalid(dataset.invalid, names)
        write_whole(out, lambda file: writers[suffix](file, blocks, dataset.num_rows, opened.width))
    return f"{opened} in {out}{status}"


main = COMMAND.main(embed)


class Opened(NamedTuple):
    """An encoder and the data set that it embeds.

    Attributes:
        model: the encoder on its device.
        dataset: the graphs, of n rows.
        width: width H of an embedding.
        batch_size: number of graphs in a batch.
        device: device of the model.
    """

    model: ContrastiveModel
    dataset: GraphDataset
    width: int
    batch_size: int
    device: torch.device

    def __str__(self) -> str:
        dataset = self.dataset
        rows = "sparse rows" if self.model.sparse else f"{self.width} numbers per {dataset.rows[:-1]}"
        return f"{dataset}, features: {dataset.features}; {rows}"

    def blocks(self, graphs: range | None = None) -> Iterator[Block]:
        """Yield ids, labels, groups and embeddings of each batch in the order of the data set; default: of all graphs.

        A range that starts at a multiple of `batch_size` has the batches, and thus the bits, of all graphs.
        """
        import torch
        from torch import Tensor

        from graphcl.datasets.disk.on_disk import MappedDataset
        from graphcl.experiment.build import restricted
        from graphcl.loaders.loader import make_loader
        from graphcl.training.loop import embed_batches

        dataset, done = self.dataset, 0
        loader: Iterable[Batch]
        if graphs is not None and isinstance(dataset, MappedDataset):  # a part costs nothing that grows with all graphs
            part = dataset[graphs.start : graphs.stop]
            loader = make_loader(part, self.batch_size, device=self.device)
            ids = part.ids if "id" in dataset._data else np.arange(graphs.start, graphs.stop)
        else:
            loader, ids = make_loader(dataset, self.batch_size, device=self.device), dataset.ids
            if graphs is not None:
                loader, done = restricted(loader, torch.arange(graphs.start, graphs.stop)), graphs.start
        classes = None if dataset.classes is None else np.array(dataset.classes.tolist())  # an .npz holds no objects
        for h, batch in embed_batches(self.model, loader, 0 if graphs is None else graphs.start):
            n, y = len(h), batch.get("y")
            block = {"id": ids[done : done + n]}
            if isinstance(y, Tensor) and y.dim() > 0 and y.size(0) == n:  # else not one row per graph, thus no labels
                y = y.cpu().numpy()
                block["y"] = y if classes is None else classes[y]
            if isinstance(group := batch.get("group"), Tensor) and len(group) == n:
                block["group"] = group.cpu().numpy()
            yield block | {"h": h.cpu() if self.model.sparse else h.cpu().numpy()}
            done += n


def open_inputs(settings: Embed, source: object = None, device: str | None = None) -> Opened:
    """Return the encoder of the settings and a data set, by default theirs, on a device, likewise."""
    import torch

    from graphcl.experiment.build import pick_device
    from graphcl.experiment.encoder_input import load_for
    from graphcl.models.saved import read_encoder
    from graphcl.models.sparse import model_of

    place = pick_device(device or settings.device)
    torch.set_num_threads(settings.threads)
    encoder, description = read_encoder(settings.encoder, settings.seed, role=settings.role)
    given: dict[str, Any] = settings.model_dump(include=TABLE)
    source = settings.dataset if source is None else source
    dataset = load_for(description, source, settings.data_root, settings.mirror, **given)
    model = model_of(encoder.to(place), dataset.rows, projector="none")
    return Opened(model, dataset, description.out_channels, settings.batch_size, place)


def write_npz(file: IO[bytes], blocks: Iterator[Block], num_graphs: int, width: int) -> None:
    """Write an .npz file with `h [n, H]`, ids (see `id_arrays`) and, if the graphs have them, `y` and `group`.

    `h` is written block by block, so it need not fit into memory; n is `num_graphs`, and H is `width`.
    """
    rest = []
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("h.npy", "w", force_zip64=True) as member:
            header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (num_graphs, width)}
            np.lib.format.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.pop("h").tobytes())
                rest.append(block)
        found = joined(rest)
        for name, values in (id_arrays(found.pop("id")) | found).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def write_parquet(file: IO[bytes], blocks: Iterator[Block], num_graphs: int, width: int) -> None:
    """Write a Parquet file with the columns id, y (or y0, y1, ...), h0, h1, ...; arguments as for `write_npz`.

    Sparse rows are lists: `indices`, the 64-bit numbers of the columns, and `values`.
    """
    from pyarrow.parquet import ParquetWriter

    writer = None
    for group in _groups(blocks):
        table = arrow_table(group)
        writer = writer or ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def arrow_table(block: Block) -> pyarrow.Table:
    """Return a PyArrow table with the columns of a block, see `write_parquet`."""
    import pyarrow

    h = block.get("h")  # predictions have none
    columns = {name: pyarrow.array(values) for name, values in _columns(block).items()}
    if h is not None and not isinstance(h, np.ndarray):
        for name, values in (("indices", h.column), ("values", h.value)):
            columns[name] = pyarrow.LargeListArray.from_arrays(h.ptr.numpy(), values.numpy())
    return pyarrow.table(columns)


def write_npy(folder: Path, blocks: Iterator[Block]) -> None:
    """Write `h.npy`, `id.npy` (see `id_arrays`) and, if the graphs have them, `y.npy` and `group.npy` into a folder."""
    block = joined(list(blocks))
    for name, values in (id_arrays(block.pop("id")) | block).items():
        write_array(folder / f"{name}.npy", values)


def write_csv(file: IO[bytes], blocks: Iterator[Block], num_graphs: int, width: int) -> None:
    """Write a CSV file with the columns of `write_parquet`; arguments as for `write_npz`."""
    lines = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(lines)
    for number, block in enumerate(blocks):
        columns = _columns(block)
        if number == 0:
            writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    lines.detach()


def write_sparse_npz(file: IO[bytes], blocks: Iterator[Block], num_graphs: int, width: int) -> None:
    """Write an .npz file for `scipy.sparse.load_npz` that also holds the number `column` of each column, ids and `y`.

    All rows are kept in memory; the other arguments are not used.
    """
    block = joined(list(blocks))
    rows = block.pop("h")
    matrix, column = rows.scipy()
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    parts |= {"format": b"csr", "column": column, "encoder": rows.encoder or "", **id_arrays(block.pop("id")), **block}
    np.savez(file, **parts)


WRITERS = {".npz": write_npz, ".parquet": write_parquet, ".csv": write_csv}
"""File name suffix -> function that writes the format."""
SPARSE_WRITERS = {".npz": write_sparse_npz, ".parquet": write_parquet}
"""The same for sparse rows."""


def _columns(block: Block) -> Block:
    """Return the columns of a block, with one column for each column of a matrix."""
    columns: Block = {}
    for name, values in ((name, values) for name, values in block.items() if isinstance(values, np.ndarray)):
        columns |= {name: values} if values.ndim == 1 else {f"{name}{i}": each for i, each in enumerate(values.T)}
    return columns


def _groups(blocks: Iterator[Block]) -> Iterator[Block]:
    """Merge blocks into row groups of at least `_GROUP_ROWS` rows, and yield them; the last group may be smaller."""
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(each["id"]) for each in waiting) >= _GROUP_ROWS:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def joined(blocks: list[Block]) -> Block:
    """Return one block with the rows of several."""
    names = [name for name in blocks[0] if all(name in block for block in blocks)]
    return {name: _cat([block[name] for block in blocks]) for name in names}


def _cat(parts: list[Any]) -> Any:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else type(parts[0]).cat(parts)
