"""How all pictures look: one palette, one set of sizes; and matplotlib, asked for only here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from graphcl.system.optional import import_matplotlib

INK, MUTED, GRID, PAPER = "#1b1b1b", "#707070", "#e4e4e4", "#ffffff"
"""Text and lines, muted, grid and background colours; a page replaces them by its own (see `svg.py`)."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
"""Okabe and Ito's palette, which colour-blind readers tell apart, on a light and on a dark ground."""
MARKERS = ("o", "^", "s", "D", "v")
"""Five shapes and seven colours, so that 35 classes differ, and neighbours in both."""
UNTRAINED, TRAINED = COLOURS[1], COLOURS[0]
"""The encoder as it is initialised, and what training made of it; the same in all pictures."""

_STYLE: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 8.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "lines.linewidth": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "svg.fonttype": "none",  # text stays text: to be searched, copied and tested
    "svg.hashsalt": "graphcl",  # the same picture is the same file
}
_Picture = TypeVar("_Picture", bound=Callable[..., Any])


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of all pictures, whatever the user's matplotlib is set to, which is left as it was.

    Raises:
        InputError: matplotlib is not installed.
    """
    matplotlib = import_matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def picture(function: _Picture) -> _Picture:
    """`function`, which draws, in that style."""

    @functools.wraps(function)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        with style():
            return function(*args, **kwargs)

    return drawn  # type: ignore[return-value]


def panel(title: str = "", width: float = 3.3, height: float = 2.4) -> Any:
    """A figure of one plot, in inches: small, so that several stand beside each other or, on a phone, below."""
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and looks for a screen

    figure = Figure(figsize=(width, height))
    axis = figure.add_subplot()
    # Margins that hold the labels of all pictures; to find the least ones would take as long as to draw.
    figure.subplots_adjust(left=0.6 / width, right=1 - 0.1 / width, bottom=0.46 / height, top=1 - 0.26 / height)
    axis.set_title(title)
    return figure, axis


def panels(count: int, width: float = 3.3, height: float = 2.4, columns: int = 3) -> tuple[Any, list[Any]]:
    """A figure of several plots, at most `columns` in a row, each of a size in inches with its labels."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes[count:]:
        axis.remove()
    return figure, list(axes[:count])
