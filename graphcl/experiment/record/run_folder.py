"""Manage the folder of a run or another command: the files it writes, and how an unfinished one continues."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from graphcl.config import RUNTIME_SETTINGS, Config, make_config, read_config, to_yaml
from graphcl.config.recipes import differences
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError, reason
from graphcl.experiment.record.seed_files import EMBEDDINGS, add_encoder, add_rows
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.saved import EncoderDescription, read_saved
from graphcl.system.arrays import read_arrays
from graphcl.system.files import (
    MAX_METRICS,
    append_text,
    claimed,
    parse_json,
    read_json,
    read_text,
    refuse_links,
    remove_partial,
    write_text,
    write_whole,
)
from graphcl.training.epoch import Epoch

FILE = "metrics.jsonl"
_TIMES = ("seconds", "data_seconds")
MARK = "unfinished"
"""Folder within the folder of a command, until the command is finished; `settings.json` in it holds its settings."""


class RunFolder:
    """Folder of a run, locked until the `with` block of this object ends.

    The folder contains `config.yaml`, `data.json` (the fingerprint of the data), `metrics.jsonl`, `encoder.pt`,
    `embeddings.npz`, `result.json`, on a split `predictions.csv`, and `report.npz`, the input of `report.html`. Rows
    are appended to the metrics; all other files are written atomically. The checkpoints of an unfinished seed are in
    `checkpoints/`.

    Args:
        config: settings of the run, written to a new folder; with `config.resume`, the folder may hold the same run.
        data: fingerprint of the data, see `graphcl.experiment.fingerprint`; None if unknown.

    Raises:
        InputError: the folder exists, cannot be created, or is in use; or, when resuming, it holds a run with other
            settings, on other data or with a damaged file.

    Attributes:
        path: path of the folder.
        is_new: whether the folder did not exist before.
        epochs: log of the metrics.
        result: content of `result.json` for the finished seeds; empty if no seed is finished.
    """

    def __init__(self, config: Config, data: Mapping[str, Any] | None = None) -> None:
        self.result: dict[str, Any] = {}
        self.is_new = not (config.resume and config.out is not None and Path(config.out).is_dir())
        self.path = new_folder(config.out, name_of(config)) if self.is_new else Path(str(config.out))
        self.epochs = EpochLog(self.path)
        refuse_links(self.path, ".lock", "checkpoints", FILE)
        self._lock = FileLock(self.path / ".lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another run uses {self.path}; wait for it, or stop it.") from None
        try:
            self._open(config, data)
        except BaseException:  # a notebook would keep the traceback, and with it this object and its lock
            self._lock.release()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        checkpoints = self.path / "checkpoints"
        if checkpoints.is_dir() and not any(checkpoints.iterdir()):
            checkpoints.rmdir()
        self._lock.release()

    @property
    def finished(self) -> list[int]:
        """Finished seeds."""
        return list(self.result.get("seeds", []))

    def add_seed(
        self, seed: int, model: ContrastiveModel, description: EncoderDescription, h: Any, y: Any, dataset: GraphDataset
    ) -> None:
        """Add a seed to `encoder.pt`, see `graphcl.load_encoder`, and to `h`, `seeds`, `y`, ids and classes on disk."""
        target = model.role("target")
        encoders = [model.encoder] if target is model else [model.encoder, target.encoder]
        add_encoder(self.path, seed, self.finished, description, encoders)
        add_rows(self.path, seed, self.finished, h, y, dataset)

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Write `result` to `result.json`, replacing a former one."""
        self.epochs.flush()
        self.result = dict(result)
        write_text(self.path / "result.json", json.dumps(self.result, indent=2))

    def _open(self, config: Config, data: Mapping[str, Any] | None) -> None:
        """Write the settings into a new folder; in an existing folder, compare settings and data and read the files."""
        file = self.path / "config.yaml"
        if not file.exists():
            if foreign := sorted(file.name for file in self.path.iterdir() if not file.name.startswith(".")):
                raise InputError(f"{self.path} is not a run folder, it contains {foreign[0]}; pass another folder.")
            remove_partial(self.path)
            write_text(file, to_yaml(config.model_copy(update={"resume": False})))
            self._check_data(data)
            return
        remove_partial(self.path)
        try:
            self._read()
        except Exception as error:  # a damaged file can raise any exception
            raise InputError(f"{self.path} cannot be resumed, a file is damaged: {reason(error)}") from None
        # the settings of the finished seeds, as `config.yaml` may have been edited since
        before = make_config(self.result.get("config") or read_config(file), own=())
        kept, wanted = before.model_dump(), config.model_dump()
        more = set(kept["seeds"]) < set(wanted["seeds"])
        longer = bool(self.finished) and kept["epochs"] < wanted["epochs"]
        if longer and (wanted["steps"] is not None or wanted["schedule"] != "constant" or wanted["warmup"]):
            why = "`steps`, `schedule` or `warmup` fix the length of its training; start a new run with --init"
            raise InputError(f"{self.path} cannot train on, as {why}.")
        may_change = {*RUNTIME_SETTINGS} | ({"seeds"} if more else set()) | ({"epochs"} if longer else set())
        if changed := differences(kept, wanted, may_change):
            seeds = " ".join(map(str, sorted({*kept["seeds"], *wanted["seeds"]})))
            raise InputError(
                f"{self.path} holds a run with other settings: {'; '.join(changed)}. Resume it with its own settings, "
                f"pass another folder, or, to add seeds only, pass all of them: --seeds {seeds}, or to train on, more "
                "--epochs."
            )
        self._check_data(data)
        if longer:
            self._extend(kept["epochs"])
        if more or longer:
            write_text(file, to_yaml(config.model_copy(update={"resume": False})))

    def _extend(self, epochs: int) -> None:
        """Let the finished seeds train on from their last checkpoints; keep the former result and encoder."""
        for seed in self.finished:
            if not any((self.path / "checkpoints" / f"seed-{seed}").glob("step-*.pt")):
                raise InputError(f"{self.path} has no checkpoint of seed {seed} to train on from; start with --init.")
        former = (self.path / "encoder.pt").read_bytes()
        write_whole(self.path / f"encoder-{epochs}-epochs.pt", lambda file: file.write(former))
        (self.path / "result.json").rename(self.path / f"result-{epochs}-epochs.json")
        self.result = {}

    def _read(self) -> None:
        """Read the results of the finished seeds, and all metrics; an unfinished seed resumes from its checkpoints."""
        self.epochs.read()
        if (file := self.path / "result.json").exists():
            self.result = read_json(file)
        if not self.finished:
            return
        weights, seeds = read_saved(self.path)[1], read_arrays(self.path / EMBEDDINGS)["seeds"]
        for seed in self.finished:
            if seed not in weights or seed not in seeds:
                raise InputError(f"encoder.pt or embeddings.npz lacks the finished seed {seed}")

    def _check_data(self, data: Mapping[str, Any] | None) -> None:
        """Raise InputError if the run in the folder used other data than `data`; in a new folder, record `data`."""
        if data is None:
            return
        if (file := self.path / "data.json").exists():
            kept = read_json(file)
            paths = {digest: path for path, digest in data["files"].items()}  # a file that has moved is the same file
            kept["files"] = {paths.get(digest, path): digest for path, digest in kept["files"].items()}
            if changed := differences(kept, data):
                raise InputError(
                    f"{self.path} holds a run on other data or files: {'; '.join(changed)}. Restore them, or pass "
                    "another folder."
                )
            return
        write_text(file, json.dumps(data, indent=2))


def name_of(config: Config) -> str:
    """Return the default name of the run folder: `DATASET-NAME`, or `DATASET-LOSS` if the run has no name."""
    return f"{Path(config.dataset).stem}-{config.name or config.loss['name']}"


def new_folder(out: str | None, name: str, create: bool = True) -> Path:
    """Create the folder `out`, by default the first free `runs/NAME-N`, and return its path; or only return the path.

    Raises:
        InputError: the folder exists, or cannot be created.
    """
    number = 1
    while True:
        path = Path("runs") / f"{name}-{number}" if out is None else Path(out)
        if not os.path.lexists(path):
            try:
                if create:
                    path.mkdir(parents=True)
                return path
            except OSError as error:
                if not os.path.lexists(path):  # else another run has just created it
                    why = f"{error.strerror}; pass another with --out."
                    raise InputError(f"cannot create the folder {path}: {why}") from None
        if out is not None:
            resume = f"resume its run by --resume {path}, or " if (path / "data.json").is_file() else ""
            raise InputError(f"{path} exists already and is never overwritten; {resume}pass another folder with --out.")
        number += 1


class EpochLog:
    """Log of a run's metrics in the run folder, with one row per seed and epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = folder / FILE
        self._rows: dict[tuple[int, int], dict[str, Any]] = {}

    def read(self) -> None:
        """Read the rows that an earlier process wrote; drop damaged lines, such as the last one of a killed process."""
        text = read_text(self._lines, MAX_METRICS) if self._lines.exists() else ""
        for line in text.splitlines():
            try:
                row = parse_json(line, str(self._lines))
                seed, epoch = int(row["seed"]), _epoch(row).epoch
            except (InputError, LookupError, TypeError, ValueError):
                continue
            self._rows[seed, epoch] = row
        if self._rows:
            self._rewrite()

    def flush(self) -> None:
        """Flush the file to disk, so that no row is lost in a power failure."""
        if self._lines.exists():
            with self._lines.open("ab") as file:
                os.fsync(file.fileno())

    def history(self, seeds: Collection[int]) -> list[Epoch]:
        """Return the logged epochs of the given seeds."""
        return [_epoch(row) for (seed, _), row in self._rows.items() if seed in seeds]

    def add(self, seed: int, epoch: Epoch) -> None:
        """Append the metrics of an epoch.

        A resumed run repeats the epochs since its checkpoint. If a row differs only in the times, the log keeps the old
        one. Otherwise the new row replaces it and the seed's later rows, for example with another number of ranks.
        """
        row = {"seed": seed, "epoch": epoch.epoch, **epoch.metrics()}
        before = self._rows.get((seed, epoch.epoch))
        if before is not None:
            if all(value == before.get(key) for key, value in row.items() if key not in _TIMES):
                return
            self._rows = {at: row for at, row in self._rows.items() if at[0] != seed or at[1] < epoch.epoch}
        follows = before is None and bool(self._rows)
        self._rows[seed, epoch.epoch] = row
        if not follows:
            self._rewrite()
            return
        append_text(self._lines, json.dumps(row) + "\n")

    def _rewrite(self) -> None:
        write_text(self._lines, "".join(json.dumps(row) + "\n" for row in self._rows.values()))


def _epoch(row: Mapping[str, Any]) -> Epoch:
    values = {key: float(value) for key, value in row.items() if key not in ("seed", "epoch")}
    main = {key: values.pop(key) for key in ("loss", "alignment", "uniformity", *_TIMES)}
    return Epoch(int(row["epoch"]), **main, diagnostics=values)


class Unfinished:
    """The folder of a command, which is new or continues; no other process writes it.

    Attributes:
        path: path of the folder; None before `start` in a new one.
    """

    def __init__(self, out: str | None, name: str, held: ExitStack) -> None:
        self._out, self._name, self._held = out, name, held
        self.path = Path(out) if out is not None and _continues(Path(out)) else None
        if self.path is None:
            new_folder(out, name, create=False)
        else:
            held.enter_context(claimed(self.path))

    def start(self, settings: Mapping[str, Any]) -> Path:
        """Create the folder, or compare the settings of an unfinished command with `settings`, and return its path."""
        if self.path is None:
            self.path = new_folder(self._out, self._name)
            self._held.enter_context(claimed(self.path))
        file = self.path / MARK / "settings.json"
        settings = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        if file.exists() and (changed := differences(read_json(file), settings, RUNTIME_SETTINGS)):
            what = f"{self.path} holds unfinished results of other settings: {'; '.join(changed)}"
            raise InputError(f"{what}. Continue it with its own settings, or pass another folder with --out.")
        file.parent.mkdir(exist_ok=True)
        write_text(file, json.dumps(settings))
        return self.path

    def finish(self) -> None:
        """Mark the command as finished."""
        assert self.path is not None
        shutil.rmtree(self.path / MARK)


@contextmanager
def unfinished(out: str | None, name: str) -> Iterator[Unfinished]:
    """Yield the folder `out`, by default a new `runs/NAME-N`, of a command that can be continued.

    Raises:
        InputError: the folder is in use, or holds something else than an unfinished command.
    """
    with ExitStack() as held:
        place = Unfinished(out, name, held)
        try:
            yield place
        except KeyboardInterrupt as interrupt:
            if place.path is None:
                raise
            line = f"finished results are kept; the same command with --out {place.path} continues"
            raise type(interrupt)(line) from None


def _continues(folder: Path) -> bool:
    """Return whether `folder` is that of an unfinished command, or is empty, as one that was killed at once leaves."""
    names = {file.name for file in folder.iterdir() if not file.name.startswith(".")} if folder.is_dir() else {""}
    return not names or MARK in names
