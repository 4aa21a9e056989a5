"""Print the progress of a sweep: one line for each cell that ends."""

from __future__ import annotations

import time
from typing import IO, Any

from graphcl.report.summary import unit
from graphcl.sweep.folder import Records
from graphcl.sweep.plan import Cell
from graphcl.sweep.table import scores_of


class Progress:
    """Callback for `sweep` that prints a line for each cell that ends.

    Args:
        total: number of cells.
        done: number of cells that were finished before the sweep started.
        stream: stream to print to.
    """

    def __init__(self, total: int, done: int, stream: IO[str]) -> None:
        self.total, self.done, self.stream = total, done, stream
        self._before, self._start = done, time.monotonic()

    def __call__(self, cell: Cell, records: Records) -> None:
        """Print the outcome of `cell` and the estimated time left."""
        self.done += 1
        pace = (time.monotonic() - self._start) / (self.done - self._before)
        left = _duration(pace * (self.total - self.done))
        line = f"[{self.done}/{self.total}, {left} left] {cell}: {_outcome(records[cell.key])}"
        print(line, file=self.stream, flush=True)


def _outcome(record: dict[str, Any]) -> str:
    if record["status"] == "failed":
        return f"failed: {record['error']}"
    scores = {name: scores_of(record, name) for name in record["scores"]}
    texts = ", ".join(f"{name} {each.mean:.2f} {unit(each.metric)}" for name, each in scores.items())
    return f"{texts} in {sum(record['seconds'].values()):.1f} s"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
