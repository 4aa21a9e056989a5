"""What a sweep shows while it runs: a table that fills on a terminal, a line for each cell elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import IO

from graphcl.sweep.folder import Records
from graphcl.sweep.plan import Cell, Plan
from graphcl.sweep.table import make_table, scores_of
from graphcl.sweep.write import accuracy_lines

REDRAW = 0.5  # seconds between drawings, so that thousands of small cells do not wait for the screen


class Progress:
    """To be called with every cell that ends.

    Args:
        plan: of the sweep.
        done: cells that were there before.
        stream: where to; drawn in place if it is a terminal.
    """

    def __init__(self, plan: Plan, done: int, stream: IO[str]) -> None:
        self.plan, self.stream, self.live = plan, stream, stream.isatty()
        self.total = len(plan.tasks)
        self.done = self.before = done
        self.failed = 0
        self.start, self.drawn, self.height = time.monotonic(), 0.0, 0

    def __call__(self, cell: Cell, records: Records) -> None:
        """Show that a cell has ended."""
        self.done += 1
        record = records[cell.key]
        self.failed += record["status"] == "failed"
        if not self.live:
            print(f"{self._head()} {cell}: {_said(record)}", file=self.stream, flush=True)
        elif time.monotonic() - self.drawn > REDRAW or self.done == self.total:
            self._draw(records)

    def _head(self) -> str:
        spent, ran = time.monotonic() - self.start, self.done - self.before
        left = spent / ran * (self.total - self.done)
        return f"[{self.done}/{self.total}, {_minutes(left)} left]"

    def _draw(self, records: Records) -> None:
        table = make_table(self.plan, records, self.plan.evaluators[0])
        body = accuracy_lines(table)
        failed = f", {self.failed} failed" if self.failed else ""
        size = shutil.get_terminal_size()
        # A longer line would wrap, and a taller table scroll: the next drawing would not find its place.
        hidden = len(body) - (size.lines - 2)
        body = [*body[: -hidden - 1], f"... {hidden + 1} more rows"] if hidden > 0 else body
        lines = [line[: size.columns - 1] for line in (*body, f"{self._head()}{failed}")]
        up = f"\x1b[{self.height}F" if self.height else ""
        print(up + "\n".join(f"{line}\x1b[K" for line in lines), end="\n\x1b[J", file=self.stream, flush=True)
        self.drawn, self.height = time.monotonic(), len(lines)


def _said(record: dict) -> str:
    if record["status"] == "failed":
        return f"failed: {record['error']}"
    scores = ", ".join(f"{name} {scores_of(record, name).mean:.2f} %" for name in record["scores"])
    return f"{scores} in {sum(record['seconds'].values()):.1f} s"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
