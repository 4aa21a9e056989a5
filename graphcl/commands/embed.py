"""`graphcl embed`: embed graphs with a trained encoder and write the embeddings to a file, or to a folder of shards.

FOLDER/_manifest.json        settings, encoder, data set and the files of all shards
FOLDER/part-00000.parquet    shard 0, see `write_parquet`; or part-00000/h.npy, id.npy, ...

Shards are written by many processes, Dask workers or the ranks of torchrun.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from graphcl.arguments import Count
from graphcl.cli import warnings_as_lines
from graphcl.cli.command_line import Command
from graphcl.commands.blocks import FORM_WRITERS, WRITERS, Block, write_npy, write_parquet
from graphcl.config.recipes import differences
from graphcl.config.settings import (
    TABLE,
    DatasetName,
    EncoderFile,
    EncoderSeed,
    Force,
    Hardware,
    Imports,
    Place,
)
from graphcl.datasets.settings import Table
from graphcl.datasets.tables import invalid_csv, write_invalid
from graphcl.errors import InputError, warn
from graphcl.registry import import_files
from graphcl.system.files import claimed, new_file, read_json, remove_partial, whole_folder, write_text, write_whole
from graphcl.system.optional import optional
from graphcl.system.processes import Workers, completed, executing, worker_device
from graphcl.system.progress import progress

if TYPE_CHECKING:
    import torch

    from graphcl.datasets.dataset import GraphDataset
    from graphcl.models.contrastive import ContrastiveModel

MANIFEST = "_manifest.json"
"""Readers of Parquet sets skip names with an underscore."""
_SHARDS, _LARGEST = 64, 65_536
_ONE_SHARD = threading.Lock()


class Embed(Workers, Hardware, Place, Table, Imports):
    """Embed graphs with a trained encoder. Labels are not needed; node features are built as in its training.
    The id of a graph is its own `id`, a number or a string, or that of its row in a table; if they have
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
    precision: Literal["float32", "int8", "binary"] = "float32"
    """int8: a byte a number, of the cosines of float32; binary: a bit, for Hamming distances; docs: vector_index"""
    batch_size: Count = Field(1024, description="graphs embedded at a time")


COMMAND = Command("graphcl embed ENCODER --dataset NAME --out FILE [--KEY VALUE ...]", Embed, positional="encoder")


def embed(settings: Embed) -> str:
    """Write the embeddings of a data set to a new file, or to a folder of shards, and return a status line.

    Raises:
        InputError: the output exists or cannot be written, or the encoder or the graphs cannot be used.
    """
    from graphcl.models.saved import read_saved  # imported here, as help texts need no torch

    if settings.role == "target" and read_saved(settings.encoder)[0].target is None:
        warn(f"`role` target has no effect, as {settings.encoder} has one encoder for queries and targets")
    suffix = Path(settings.out).suffix
    if not suffix:
        return _embed_shards(settings)
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
        dataset, writers = opened.dataset, WRITERS if opened.model.form == "dense" else FORM_WRITERS
        if suffix not in writers:
            raise InputError(f"`out` must end in .npz or .parquet for {opened.model.form} rows, got {settings.out!r}.")
        invalid = out.with_name(f"{out.name}.invalid.csv")
        remove_partial(invalid.parent, invalid.name)
        # a killed process may have written the same list
        if dataset.invalid and not (
            invalid.is_file() and invalid.read_bytes() == invalid_csv(dataset.invalid).encode()
        ):
            new_file(invalid, settings.force, settings.dataset)
        if not dataset.invalid and settings.force:  # the list of another data set
            invalid.unlink(missing_ok=True)
        status = write_invalid(dataset.invalid, invalid)
        write_whole(out, lambda file: writers[suffix](file, opened.blocks(), dataset.num_rows, opened.width))
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
        precision: how embeddings are stored, see `graphcl.models.quantized.quantize`.
    """

    model: ContrastiveModel
    dataset: GraphDataset
    width: int
    batch_size: int
    device: torch.device
    precision: Literal["float32", "int8", "binary"]

    def __str__(self) -> str:
        dataset = self.dataset
        form = self.model.form
        numbers = "numbers" if self.precision == "float32" else f"numbers ({self.precision})"
        rows = f"{self.width} {numbers} per {dataset.rows[:-1]}" if form == "dense" else f"{form} rows"
        return f"{dataset}, features: {dataset.features}; {rows}"

    def blocks(self, graphs: range | None = None) -> Iterator[Block]:
        """Yield ids, labels, groups and embeddings of each batch in the order of the data set; default: of all graphs.

        A range that starts at a multiple of `batch_size` has the batches, and thus the bits, of all graphs.
        """
        from torch import Tensor

        from graphcl.loaders.loader import make_loader
        from graphcl.models.quantized import quantize
        from graphcl.training.loop import embed_batches

        dataset = self.dataset if graphs is None else self.dataset[graphs.start : graphs.stop]
        loader, ids, done = make_loader(dataset, self.batch_size, device=self.device), dataset.ids, 0
        classes = None if dataset.classes is None else np.array(dataset.classes.tolist())  # an .npz holds no objects
        for h, batch in embed_batches(self.model, loader, 0 if graphs is None else graphs.start):
            n, y = len(h), batch.get("y")
            block = {"id": ids[done : done + n]}
            if isinstance(y, Tensor) and y.dim() > 0 and y.size(0) == n:  # else not one row per graph, thus no labels
                y = y.cpu().numpy()
                block["y"] = y if classes is None else classes[y]
            if isinstance(group := batch.get("group"), Tensor) and len(group) == n:
                block["group"] = group.cpu().numpy()
            yield block | {"h": quantize(h.cpu().numpy(), self.precision) if isinstance(h, Tensor) else h.cpu()}
            done += n


def open_inputs(settings: Embed, source: object = None, device: str | None = None) -> Opened:
    """Return the encoder of the settings and a data set, by default theirs, on a device, likewise."""
    import torch

    from graphcl.experiment.encoder_input import load_for
    from graphcl.experiment.runtime import pick_device
    from graphcl.models.saved import read_encoder
    from graphcl.tasks.task import model_for

    place = pick_device(device or settings.device)
    torch.set_num_threads(settings.threads)
    encoder, description = read_encoder(settings.encoder, settings.seed, role=settings.role)
    table: dict[str, Any] = settings.model_dump(include=TABLE)
    source = settings.dataset if source is None else source
    dataset = load_for(description, source, settings.data_root, settings.mirror, role=settings.role, **table)
    model = model_for(encoder.to(place), dataset)
    if model.form != "dense" and settings.precision != "float32":
        raise InputError(f"`precision` {settings.precision} does not fit {model.form} rows; leave it out.")
    return Opened(model, dataset, description.out_channels, settings.batch_size, place, settings.precision)


class Shard(NamedTuple):
    """The rows from `start` to `stop`, in a file or folder in the settings' folder; paths are relative to `place`."""

    settings: Embed
    file: str
    start: int
    stop: int
    place: str

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def write(self, opened: Opened) -> None:
        """Embed the rows and write them, whole or not at all."""
        path, blocks = Path(self.settings.out).expanduser() / self.file, opened.blocks(range(self.start, self.stop))
        if path.suffix:
            write_whole(path, lambda file: write_parquet(file, blocks))
        else:
            with whole_folder(path) as folder:
                write_npy(folder, blocks)


def _embed_shards(settings: Embed) -> str:
    """Write the embeddings of a data set as a folder of shards, except those it has already; return a status line.

    Raises:
        InputError: the folder holds something else, or see `embed`.
    """
    import torch

    from graphcl.distributed.launch import launch
    from graphcl.experiment.fingerprint import check_ranks

    if settings.shards == "parquet":
        optional("pyarrow", "shards of parquet, unlike npy, need pyarrow", "parquet")
    with launch() as ranks, contextlib.ExitStack() as held:
        several = ranks.size > 1 and settings.device == "auto" and torch.cuda.is_available()
        opened = opened_once(settings.model_dump_json(), f"cuda:{ranks.local_rank}" if several else None)
        if opened.dataset.rows != "graphs":
            raise InputError("shards hold whole graphs; give `out` a suffix to embed nodes, such as .npz.")
        if opened.model.form != "dense" and settings.shards == "npy":
            raise InputError(f"`shards` must be parquet for {opened.model.form} rows, got npy.")
        folder = Path(settings.out).expanduser()
        if ranks.size > 1:
            check_ranks(ranks, _manifest(settings, opened, settings.shard_size) | {"shards": []})
        if ranks.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(claimed(folder))
        shards, missing = ranks.broadcast_object(_prepared(folder, settings, opened) if ranks.is_main else None)
        place, wanted = os.getcwd(), missing[ranks.rank :: ranks.size]
        mine = [Shard(settings, file, start, stop, place) for file, start, stop in wanted]
        try:
            if settings.many and ranks.size == 1:
                workers, total = min(settings.workers, max(1, len(mine))), sum(shard.size for shard in mine)
                with executing(settings.executor, workers) as executor, progress("embedding", total) as update:
                    for shard, _ in completed(write_shard, mine, executor):
                        update(shard.size)
            else:
                with progress("shards", len(mine), "shard") as update:
                    for shard in mine:
                        shard.write(opened)
                        update(1)
        except KeyboardInterrupt as interrupt:
            line = f"finished shards are kept in {folder}; the same command makes the others"
            raise type(interrupt)(line) from None
        ranks.barrier()
        if not ranks.is_main:
            return ""
        invalid = write_invalid(opened.dataset.invalid, folder / "_invalid.csv")
    before = f", {shards - len(missing)} of them from before" if len(missing) < shards else ""
    return f"{opened} in {folder}/, {shards} shards{before}{invalid}"


def write_shard(shard: Shard) -> None:
    """Embed the rows of a shard and write them, in a worker."""
    with _ONE_SHARD, warnings_as_lines():  # a Dask worker may have several threads
        with contextlib.suppress(OSError):  # on another machine the folder may not exist
            os.chdir(shard.place)
        import_files(shard.settings.imports)
        device = worker_device() if shard.settings.device == "auto" else None
        shard.write(opened_once(shard.settings.model_dump_json(), device))


@functools.lru_cache(maxsize=1)
def opened_once(settings: str, device: str | None) -> Opened:
    """Open the inputs of settings in JSON, with a cache for the next shards of this process."""
    return open_inputs(Embed.model_validate_json(settings), device=device)


def _prepared(folder: Path, settings: Embed, opened: Opened) -> tuple[int, list[tuple[str, int, int]]]:
    """Make or check the folder and its manifest; return the number of shards, and file, start and stop of missing ones.

    Raises:
        InputError: the folder holds something else, or shards of other settings, graphs or weights.
    """
    file = folder / MANIFEST
    if settings.force and file.is_file():
        for path in folder.glob("part-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        file.unlink()
    elif not file.is_file() and any(path.name != ".lock" for path in folder.iterdir()):
        raise InputError(f"{folder} exists already and holds no shards; give another folder with --out.")
    old = read_json(file) if file.is_file() else {}
    if not isinstance(old, dict):
        raise InputError(f"{file} is not a manifest of shards; give another --out, or --force to replace it.")
    manifest = _manifest(settings, opened, settings.shard_size or old.get("shard_size"))
    if old and old != manifest:
        changed = "; ".join(differences(old, manifest, ["shards"])) or "its list of shards differs"
        raise InputError(f"{folder} holds other shards: {changed}; give another --out, or --force to replace them.")
    if not old:
        write_text(file, json.dumps(manifest, indent=1) + "\n")
    shards = [(row["file"], row["start"], row["start"] + row["graphs"]) for row in manifest["shards"]]
    return len(shards), [shard for shard in shards if not (folder / shard[0]).exists()]


def _manifest(settings: Embed, opened: Opened, size: int | None) -> dict[str, Any]:
    """Return the content of the manifest; `size` is the number of graphs in a shard, None for the default."""
    n, batch = len(opened.dataset), opened.batch_size
    size = size or min(max(-(-n // _SHARDS), 1024), _LARGEST)
    size = -(-size // batch) * batch  # whole batches, for the bits of one process
    starts = list(range(0, n, size))
    if len(starts) > 1 and n - starts[-1] == 1:  # batches of one graph are merged into the one before
        del starts[-1]
    suffix = ".parquet" if settings.shards == "parquet" else ""
    weights = hashlib.sha256()
    for name, value in sorted(opened.model.state_dict().items()):
        weights.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return {
        "encoder": weights.hexdigest()[:16],
        "dataset": {"name": opened.dataset.name, **opened.dataset.fingerprint()},
        "columns": opened.width,
        "role": settings.role,
        **({} if settings.precision == "float32" else {"precision": settings.precision}),
        "batch_size": batch,
        "shard_size": size,
        "shards": [
            {"file": f"part-{number:05d}{suffix}", "start": start, "graphs": stop - start}
            for number, (start, stop) in enumerate(zip(starts, [*starts[1:], n], strict=True))
        ],
    }
