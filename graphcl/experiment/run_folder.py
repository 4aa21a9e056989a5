"""The folder of a run: what it keeps, and what a resumed run finds there."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from graphcl.config.files import read_config
from graphcl.config.settings import Config, changed, make_config, to_yaml
from graphcl.errors import InputError, reason
from graphcl.evaluate import FoldScores
from graphcl.models.saved import EncoderDescription, Weights, read_saved, save_encoder
from graphcl.system.files import (
    MOST_METRICS,
    parse_json,
    read_arrays,
    read_json,
    read_text,
    refuse_links,
    remove_partial,
    write_text,
    write_whole,
)
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.loop import Epoch

Row = dict[str, Any]
Rows = dict[tuple[int, int], Row]  # by seed and epoch


class RunFolder:
    """A folder that keeps a run: `config.yaml`, `metrics.jsonl`, `metrics.csv`, `encoder.pt`, `embeddings.npz` and
    `result.json`; and `report.npz`, what `report.html` needs besides those.

    Each file appears whole or not at all, and what a finished seed gave is there before the next one starts. The seed
    under way has its checkpoints in `checkpoints/`, until its scores are kept. The folder is a new one, or with
    `config.resume` that of a run of the same settings, and is locked as long as it is open: the lock is the operating
    system's, so it is free as soon as its holder is gone, however that ended.

    Args:
        config: the settings, written at once.

    Raises:
        InputError: the folder exists already, or cannot be made; or, to be resumed: it is of other settings, another
            run is at work in it, or what it holds is damaged.

    Attributes:
        path: of the folder.
        result: what `result.json` holds of the finished seeds; empty at first.
    """

    def __init__(self, config: Config) -> None:
        self._rows: Rows = {}
        self._weights: Weights = {}
        self._embeddings: dict[int, np.ndarray] = {}
        self.result: dict[str, Any] = {}
        if config.resume and config.out is not None and Path(config.out).is_dir():
            self.path = Path(config.out)
        else:
            self.path = new_folder(config.out, name_of(config))
        refuse_links(self.path, ".lock", "checkpoints", "metrics.jsonl", "metrics.csv")
        self._lock = FileLock(self.path / ".lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another run is at work in {self.path}; wait for it, or stop it.") from None
        try:
            self._open(config)
        except BaseException:  # which may be kept, and this folder with it: a notebook keeps the last traceback
            self._lock.release()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        checkpoints = self.path / "checkpoints"
        if checkpoints.is_dir() and not any(checkpoints.iterdir()):
            checkpoints.rmdir()
        self._lock.release()

    @property
    def finished(self) -> list[int]:
        """The seeds whose outcome is kept."""
        return list(self.result.get("seeds", []))

    def scores(self, evaluator: str) -> dict[str, list[FoldScores]]:
        """Return the scores of the finished seeds by row."""
        kept = self.result.get("scores", {}).get(evaluator, {}).get("per_seed", [])
        return {row: [FoldScores.of(each[row]) for each in kept] for row in (kept[0] if kept else ())}

    def history(self) -> list[Epoch]:
        """The epochs of the finished seeds."""
        return [_epoch(row) for (seed, _), row in self._rows.items() if seed in self.finished]

    def checkpoints(self, config: Config, seed: int, stop: Stop) -> Checkpoints:
        """Those of a seed."""
        rule = config.checkpoint
        return Checkpoints(self.path / "checkpoints" / f"seed-{seed}", rule.epochs, rule.minutes, stop)

    def add_epoch(self, seed: int, epoch: Epoch) -> None:
        """Append a line to `metrics.jsonl` and to `metrics.csv`, whose columns are those of the run's first epoch.

        An epoch that is there already, as after a kill, is left as it is; but one that came out otherwise, as with
        another number of ranks, gives way with all of the lost attempt that follow it.
        """
        row = {"seed": seed, "epoch": epoch.epoch, **epoch.figures()}
        if (before := self._rows.get((seed, epoch.epoch))) is not None:
            if _same(row, before):
                return
            self._keep({at: each for at, each in self._rows.items() if at[0] != seed or at[1] < epoch.epoch})
        if not self._rows:
            write_text(self.path / "metrics.csv", _csv([], list(row), head=True))
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._rows[seed, epoch.epoch] = row
        with (self.path / "metrics.csv").open("a", newline="") as file:
            file.write(_csv([row], _columns(self._rows)))

    def add_seed(
        self,
        seed: int,
        encoder: torch.nn.Module,
        description: EncoderDescription,
        h: torch.Tensor,
        y: torch.Tensor | None,
    ) -> None:
        """Keep a seed's encoder and embeddings.

        `encoder.pt` holds the encoders of all seeds so far, see `graphcl.load_encoder`; `embeddings.npz` holds
        `h [seeds, n, H]`, `seeds` and, where there are labels, `y [n]`.
        """
        self._weights[seed] = {key: value.cpu() for key, value in encoder.state_dict().items()}
        self._embeddings[seed] = h.numpy()
        arrays: dict[str, Any] = {"h": np.stack(list(self._embeddings.values())), "seeds": list(self._embeddings)}
        if y is not None:
            arrays["y"] = y.numpy()
        write_whole(self.path / "encoder.pt", lambda file: save_encoder(file, description, self._weights))
        write_whole(self.path / "embeddings.npz", lambda file: np.savez(file, **arrays))

    def add_moments(self, **moments: Mapping[str, np.ndarray]) -> None:
        """Keep histograms and maps as `MOMENT_NAME` in `report.npz`, see `graphcl.experiment.seed.look`."""
        arrays: dict[str, Any] = {f"{at}_{name}": each for at, found in moments.items() for name, each in found.items()}
        write_whole(self.path / "report.npz", lambda file: np.savez_compressed(file, **arrays))

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`, in place of that of fewer seeds."""
        self.result = dict(result)
        write_text(self.path / "result.json", json.dumps(result, indent=2))

    def _keep(self, rows: Rows) -> None:
        """Let the logs hold these epochs and no others."""
        columns = _columns(rows or self._rows)
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows.values()))
        write_text(self.path / "metrics.csv", _csv(rows.values(), columns, head=True))
        self._rows = rows

    def _open(self, config: Config) -> None:
        """Keep the settings in a new folder; in that of a run, compare them and take up what is there."""
        kept = self.path / "config.yaml"
        if kept.exists():
            self._refuse_changed(config, kept)
            self._read()
        elif foreign := sorted(each.name for each in self.path.iterdir() if not each.name.startswith(".")):
            raise InputError(f"{self.path} is not the folder of a run, and holds {foreign[0]}; pass another folder.")
        else:
            remove_partial(self.path)
            write_text(kept, to_yaml(config.model_copy(update={"resume": False})))

    def _refuse_changed(self, config: Config, kept: Path) -> None:
        if differing := changed(make_config(read_config(kept)).model_dump(), config.model_dump()):
            raise InputError(
                f"{self.path} holds a run of other settings: {'; '.join(differing)}. Resume it with its own, or pass "
                "another folder."
            )

    def _read(self) -> None:
        """Take up what finished seeds have left; what others have begun is made anew, or is in their checkpoints."""
        remove_partial(self.path)
        try:
            if (file := self.path / "result.json").exists():
                self.result = read_json(file)
            if self.finished:
                self._weights = {seed: each for seed, each in read_saved(self.path)[1].items() if seed in self.finished}
                arrays = read_arrays(self.path / "embeddings.npz")
                found = dict(zip(arrays["seeds"].tolist(), arrays["h"], strict=True))
                self._embeddings = {seed: found[seed] for seed in self.finished}
            if rows := _whole_rows(self.path / "metrics.jsonl"):
                self._keep(rows)  # half a line at the end of either file goes
            self.history()
        except Exception as error:  # of whatever kind: somebody else may have written it
            raise InputError(f"{self.path} cannot be resumed, what it holds is damaged: {reason(error)}") from None


def _whole_rows(file: Path) -> Rows:
    rows: Rows = {}
    for line in read_text(file, MOST_METRICS).splitlines() if file.exists() else []:
        try:
            row = parse_json(line, str(file))
        except InputError:  # cut off by a kill
            break
        seed, epoch = int(row["seed"]), int(row["epoch"])
        rows[seed, epoch] = {**row, "seed": seed, "epoch": epoch}
    return rows


def _columns(rows: Rows) -> list[str]:
    """Those of the first epoch."""
    return list(next(iter(rows.values())))


def _same(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two epochs are one, but for the time they took."""
    return all(value == other.get(key) for key, value in row.items() if key not in ("seconds", "data_seconds"))


def _csv(rows: Iterable[Row], columns: Sequence[str], head: bool = False) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    if head:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _epoch(row: Mapping[str, Any]) -> Epoch:
    main = {key: row[key] for key in ("epoch", "loss", "alignment", "uniformity", "seconds", "data_seconds")}
    return Epoch(**main, diagnostics={key: value for key, value in row.items() if key not in (*main, "seed")})


def name_of(config: Config) -> str:
    """What the folder of a run is called where no name is given."""
    return f"{Path(config.dataset).stem}-{config.loss['name']}"


def free_folder(out: str | None, name: str) -> Path:
    """The folder `out`, or the next free `runs/NAME-N`; not made yet.

    Raises:
        InputError: `out` exists already.
    """
    if out is not None:
        path = Path(out)
        if os.path.lexists(path):
            raise InputError(f"{path} exists already, and nothing is ever overwritten; pass another folder with --out.")
        return path
    number = 1
    while os.path.lexists(path := Path("runs") / f"{name}-{number}"):
        number += 1
    return path


def new_folder(out: str | None, name: str) -> Path:
    """`free_folder`, made.

    Raises:
        InputError: it exists already, or cannot be made.
    """
    while True:
        path = free_folder(out, name)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            if os.path.lexists(path):  # another run was faster
                continue
            raise InputError(f"cannot make the folder {path}: {error.strerror}; pass another with --out.") from None
        return path


def check_folder(config: Config) -> None:
    """Refuse an output folder that exists, unless it is to be resumed, before any work is done."""
    if not config.resume:
        free_folder(config.out, name_of(config))
