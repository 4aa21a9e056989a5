"""Print the progress of a sweep: the scores of each cell that ends, and the time left."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from graphcl.report.summary import unit
from graphcl.sweep.folder import Records
from graphcl.sweep.plan import Cell
from graphcl.sweep.run_cells import OnCell
from graphcl.sweep.table import scores_of


def progress(cells: Sequence[Cell], total: int, workers: int) -> OnCell:
    """Return a callback for `sweep` that prints a line for each cell that ends.

    The time left is estimated from the time that finished cells of the same configuration and data set took; before
    there is one, from those of the same data set, then from all. Cells that run are taken as half finished.

    Args:
        cells: cells that are not finished.
        total: number of cells, with those that were finished before the sweep started.
        workers: number of cells that run at a time.
    """
    waiting = {cell.key: cell for cell in cells}
    spent: dict[tuple[str, ...], list[float]] = {}

    def kinds(coordinates: Mapping[str, str]) -> list[tuple[str, ...]]:
        of_cell = tuple(f"{axis} {label}" for axis, label in coordinates.items() if axis != "seed")
        return [of_cell, (coordinates["dataset"],), ()]

    def expected(cell: Cell) -> float:
        return float(np.mean(next((spent[kind] for kind in kinds(cell.coordinates) if kind in spent), [0.0])))

    def show(cell: Cell, records: Records) -> None:
        for record in [records[cell.key]] if spent else records.values():
            for kind in kinds(record["coordinates"]) if "seconds" in record else ():  # not if the worker died
                spent.setdefault(kind, []).append(sum(record["seconds"].values()))
        waiting.pop(cell.key, None)
        times = [expected(each) for each in waiting.values()]
        running = times[:workers]
        seconds = max((sum(times) - sum(running) / 2) / max(1, len(running)), max(times, default=0.0) / 2)
        left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        if any((each.coordinates["dataset"],) not in spent for each in waiting.values()):
            left = f"at least {left}"  # no cell of a data set has finished yet
        record = records[cell.key]
        outcome = f"failed: {record.get('error')}"
        if record["status"] == "done":
            scores = {name: scores_of(record, name) for name in record["scores"]}
            means = ", ".join(f"{name} {each.mean:.2f} {unit(each.metric)}" for name, each in scores.items())
            outcome = f"{means} in {sum(record['seconds'].values()):.1f} s"
        print(f"[{total - len(waiting)}/{total}, {left} left] {cell}: {outcome}", file=sys.stderr, flush=True)

    return show
