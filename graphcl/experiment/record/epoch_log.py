"""Log the metrics of every epoch of a run in `metrics.jsonl`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from graphcl.errors import InputError
from graphcl.system.files import MAX_METRICS, append_text, digest, parse_json, read_text, write_text
from graphcl.training.epoch import Epoch

FILE = "metrics.jsonl"
_TIMES = ("seconds", "data_seconds")


class EpochLog:
    """Log of a run's metrics in the run folder, with one row per seed and epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = folder / FILE
        self._rows: dict[tuple[int, int], dict[str, Any]] = {}

    def read(self) -> None:
        """Read the rows that an earlier process wrote; drop damaged lines, such as the last one of a killed process."""
        for line in read_text(self._lines, MAX_METRICS).splitlines() if self._lines.exists() else []:
            try:
                row = parse_json(line, str(self._lines))
                seed, epoch = int(row["seed"]), _epoch(row).epoch
            except (InputError, LookupError, TypeError, ValueError):
                continue
            self._rows[seed, epoch] = row
        if self._rows:
            self._rewrite()

    def digest(self, seed: int) -> str:
        """Return a digest of the rows of `seed`, to notice on resume that rows are missing or damaged."""
        return digest([row for (other, _), row in self._rows.items() if other == seed])

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
