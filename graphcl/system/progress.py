"""Show progress with rate and time left: a bar on a terminal, else a line every 30 seconds; in libraries, nothing."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Update = Callable[[int], object]
"""Function that is called with the number of items that were done since its last call."""
INTERVAL = 30.0
"""Seconds between two lines."""
_BAR = "{desc}: {n_fmt}/{total_fmt} {bar} {rate_fmt}, {remaining} left{postfix}"
_LINE = "{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {remaining} left{postfix}"
_shows = False


@contextmanager
def showing() -> Iterator[None]:
    """Within the block, show progress on stderr, on rank 0 only."""
    global _shows
    before, _shows = _shows, os.environ.get("RANK", "0") == "0"
    try:
        yield
    finally:
        _shows = before


@contextmanager
def progress(title: str, total: int | None, unit: str = "graph") -> Iterator[Update]:
    """Yield a function that counts items, and show how many are done, the rate and the time left; see `showing`.

    Args:
        title: what is done; a bar within another replaces it.
        total: number of items; None if unknown.
        unit: name of an item; thousands of graphs and of bytes (B) are shown as k.
    """
    if not _shows:
        yield lambda count: None
        return
    with make_bar(title, total, unit, unit in ("graph", "B")) as bar:
        yield bar.update


def make_bar(title: str, total: int | None, unit: str, scale: bool | int = False, **more: Any) -> Any:
    """Return the bar, or the lines, of `progress`, a `tqdm.tqdm`; `scale` is the number of units of an item."""
    from tqdm import tqdm  # imported here, as most commands end before there is anything to show

    settings: dict[str, Any] = {"desc": title, "total": total, "unit": f" {unit}s" if unit != "B" else unit}
    settings |= {"unit_scale": scale, "leave": False, "file": sys.stderr, "disable": not _shows, **more}
    if sys.stderr.isatty():
        return tqdm(**{"bar_format": _BAR if total else None, **settings})

    class Lines(tqdm):
        """Progress in lines."""

        monitor_interval = 0  # the thread of tqdm's monitor belongs to this class, and would never end

        @staticmethod
        def status_printer(file: Any) -> Callable[[str], None]:
            return lambda text: print(text, file=file, flush=True) if text else None

        def close(self) -> None:
            self.delay = math.inf  # nothing to erase
            super().close()

    lines = {"mininterval": INTERVAL, "maxinterval": INTERVAL, "delay": INTERVAL}
    return Lines(**{**settings, **lines, "bar_format": _LINE if total else None})
