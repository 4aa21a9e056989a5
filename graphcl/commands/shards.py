"""Embed graphs in shards, by many processes, Dask workers or the ranks of torchrun.

FOLDER/_manifest.json        settings, encoder, data set and the files of all shards
FOLDER/part-00000.parquet    shard 0, see `write_parquet`; or part-00000/h.npy, id.npy, ...
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from graphcl.arguments import shown
from graphcl.cli.entry_point import warnings_as_lines
from graphcl.commands.embed import Embed, Opened, open_inputs, write_npy, write_parquet
from graphcl.config.nested import differences
from graphcl.datasets.invalid import write_invalid
from graphcl.errors import InputError
from graphcl.registry import import_files
from graphcl.system.files import claimed, read_json, whole_folder, write_text, write_whole
from graphcl.system.optional import optional
from graphcl.system.processes import completed, executing, worker_device
from graphcl.system.progress import progress

MANIFEST = "_manifest.json"
"""Readers of Parquet sets skip names with an underscore."""
_SHARDS, _LARGEST = 64, 65_536
_ONE_SHARD = threading.Lock()


class Shard(NamedTuple):
    """The rows from `start` to `stop`, in a file or folder in `folder`; relative paths refer to `place`."""

    settings: Embed
    file: str
    start: int
    stop: int
    place: str


def embed_shards(settings: Embed) -> str:
    """Write the embeddings of a data set as a folder of shards, except those it has already; return a status line.

    Raises:
        InputError: the folder holds something else, or see `graphcl.commands.embed.embed`.
    """
    import torch

    from graphcl.distributed.launch import launch
    from graphcl.experiment.fingerprint import check_ranks

    if settings.shards == "parquet":
        optional("pyarrow", "shards of parquet, unlike npy, need pyarrow", "parquet")
    with launch() as ranks, contextlib.ExitStack() as held:
        several = ranks.size > 1 and settings.device == "auto" and torch.cuda.is_available()
        device = f"cuda:{ranks.local_rank}" if several else None
        opened = opened_once(settings.model_dump_json(), device)
        if opened.dataset.rows != "graphs":
            raise InputError("shards hold whole graphs; give `out` a suffix to embed nodes, such as .npz.")
        if opened.model.sparse and settings.shards == "npy":
            raise InputError("`shards` must be parquet for sparse rows, got npy.")
        folder = Path(settings.out).expanduser()
        if ranks.size > 1:
            check_ranks(ranks, _manifest(settings, opened, settings.shard_size or 0) | {"shards": []})
        if ranks.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(claimed(folder))
        files = ranks.broadcast_object(_prepared(folder, settings, opened) if ranks.is_main else None)
        missing = [
            Shard(settings, each["file"], each["start"], each["start"] + each["graphs"], os.getcwd())
            for each in files
            if not each.pop("done")
        ]
        try:
            _write_all(missing[ranks.rank :: ranks.size], settings, opened, ranks.size == 1)
        except KeyboardInterrupt as interrupt:
            line = f"finished shards are kept in {folder}; the same command makes the others"
            raise type(interrupt)(line) from None
        ranks.barrier()
        if not ranks.is_main:
            return ""
        invalid = write_invalid(opened.dataset.invalid, folder / "_invalid.csv")
    kept = f", {len(files) - len(missing)} of them from before" if len(missing) < len(files) else ""
    return f"{opened} in {folder}/, {len(files)} shards{kept}{invalid}"


def _write_all(shards: list[Shard], settings: Embed, opened: Opened, alone: bool) -> None:
    """Write shards, by workers if the settings ask for them and this process is `alone`."""
    if settings.many and alone:
        workers = min(settings.workers, max(1, len(shards)))
        total = sum(each.stop - each.start for each in shards)
        with executing(settings.executor, workers) as executor, progress("embedding", total) as update:
            for shard, _ in completed(write_shard, shards, executor):
                update(shard.stop - shard.start)
    else:
        with progress("shards", len(shards), "shard") as update:
            for each in shards:
                _write(each, opened)
                update(1)


def write_shard(shard: Shard) -> None:
    """Embed the rows of a shard and write them, in a worker."""
    with _ONE_SHARD, warnings_as_lines():  # a Dask worker may have several threads
        with contextlib.suppress(OSError):  # on another machine the folder may not exist
            os.chdir(shard.place)
        import_files(shard.settings.imports)
        device = worker_device() if shard.settings.device == "auto" else None
        _write(shard, opened_once(shard.settings.model_dump_json(), device))


@functools.lru_cache(maxsize=1)
def opened_once(settings: str, device: str | None) -> Opened:
    """Open the inputs of settings in JSON, with a cache for the next shards of this process."""
    return open_inputs(Embed.model_validate_json(settings), device=device)


def _prepared(folder: Path, settings: Embed, opened: Opened) -> list[dict[str, Any]]:
    """Make or check the folder and its manifest; return the shards, with whether each is done.

    Raises:
        InputError: the folder holds something else, or shards of other settings, graphs or weights.
    """
    file = folder / MANIFEST
    if settings.force and file.is_file():
        for each in folder.glob("part-*"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        file.unlink()
    elif not file.is_file() and any(each.name != ".lock" for each in folder.iterdir()):
        raise InputError(f"{folder} exists already and holds no shards; give another folder with --out.")
    kept = read_json(file) if file.is_file() else {}
    if not isinstance(kept, dict):
        raise InputError(f"{file} is not a manifest of shards; give another --out, or --force to replace it.")
    size = settings.shard_size or kept.get("shard_size") or 0
    if type(size) is not int or size < 0:
        raise InputError(f"{file} is damaged, its `shard_size` is {shown(size)}; give another --out, or --force.")
    manifest = _manifest(settings, opened, size)
    if kept and kept != manifest:
        changed = "; ".join(differences(kept, manifest, ["shards"])) or "its list of shards differs"
        raise InputError(f"{folder} holds other shards: {changed}; give another --out, or --force to replace them.")
    if not kept:
        write_text(file, json.dumps(manifest, indent=1) + "\n")
    return [{**each, "done": (folder / each["file"]).exists()} for each in manifest["shards"]]


def _manifest(settings: Embed, opened: Opened, size: int) -> dict[str, Any]:
    """Return the content of the manifest; `size` is the number of graphs in a shard, 0 for the default."""
    n, batch = len(opened.dataset), opened.batch_size
    size = size or min(max(-(-n // _SHARDS), 1024), _LARGEST)
    size = -(-size // batch) * batch  # whole batches, for the bits of one process
    starts = list(range(0, n, size))
    if len(starts) > 1 and n - starts[-1] == 1:  # batches of one graph are merged into the one before
        del starts[-1]
    suffix = ".parquet" if settings.shards == "parquet" else ""
    stops = [*starts[1:], n]
    return {
        "encoder": _digest(opened.model.state_dict()),
        "dataset": {"name": opened.dataset.name, **opened.dataset.fingerprint()},
        "columns": opened.width,
        "role": settings.role,
        "batch_size": batch,
        "shard_size": size,
        "shards": [
            {"file": f"part-{number:05d}{suffix}", "start": start, "graphs": stop - start}
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
        ],
    }


def _digest(state: Mapping[str, Any]) -> str:
    found = hashlib.sha256()
    for name, value in sorted(state.items()):
        found.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def _write(shard: Shard, opened: Opened) -> None:
    """Embed the rows of a shard and write them, whole or not at all."""
    path = Path(shard.settings.out).expanduser() / shard.file
    blocks = opened.blocks(range(shard.start, shard.stop))
    if path.suffix:
        write_whole(path, lambda file: write_parquet(file, blocks, shard.stop - shard.start, opened.width))
        return
    try:
        with whole_folder(path) as folder:
            write_npy(folder, blocks)
    except OSError:
        if not path.exists():  # else a worker that was taken for dead has written it
            raise
