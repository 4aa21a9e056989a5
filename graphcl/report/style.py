"""Define the common style of all figures, palette, fonts and sizes, and write figures as SVG."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK, MUTED, GRID, PAPER = "#1b1b1b", "#707070", "#e4e4e4", "#ffffff"
"""Colours of text and lines, minor parts, grid and background."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
"""Okabe-Ito palette, distinguishable by colour-blind readers."""
MARKERS = ("o", "^", "s", "D", "v")
"""Markers of scatter plots; combined with the seven colours, they distinguish 35 classes."""
UNTRAINED, TRAINED, BEST = COLOURS[1], COLOURS[0], COLOURS[2]
"""Colours of the untrained encoder, the trained one, and the best row without training beside both."""

_STYLE: Any = {
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
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "svg.fonttype": "none",  # write text as text, so that it can be searched
    "svg.hashsalt": "graphcl",  # fixed salt for ids, so that equal figures give equal files
}


@contextmanager
def style() -> Iterator[None]:
    """Use the common style in a `with` block or a decorated function; keep the user's matplotlib settings outside."""
    import matplotlib  # imported here, as the import takes half a second

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def panel(title: str = "", width: float = 3.3, height: float = 2.4) -> Any:
    """Return a new figure of `width` x `height` inches with one plot, and the axes of the plot."""
    from matplotlib.figure import Figure  # not pyplot, which keeps all figures in memory and needs a display backend

    figure = Figure(figsize=(width, height))
    axis = figure.add_subplot()
    # fixed margins that fit all labels, as a layout engine would double the drawing time
    figure.subplots_adjust(left=0.6 / width, right=1 - 0.1 / width, bottom=0.46 / height, top=1 - 0.26 / height)
    axis.set_title(title)
    return figure, axis


def panels(count: int, width: float = 3.3, height: float = 2.4, columns: int = 3) -> tuple[Any, list[Any]]:
    """Return a new figure with `count` plots of `width` x `height` inches, at most `columns` per row, and all axes."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes[count:]:
        axis.remove()
    return figure, list(axes[:count])


@style()
def to_svg(figure: Any) -> str:
    """Return `figure` as the text of an SVG file; equal figures give equal texts."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def inline(figure: Any, prefix: str, label: str) -> str:
    """Return `figure` as an `<svg>` element that uses the page's font and fills its container's width.

    All ids in the element begin with `prefix`, unique on the page; `label` is for screen readers.
    """
    figure.patch.set_visible(False)
    text = to_svg(figure)
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    body = text[text.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(url\(|xlink:href=")#', lambda match: f"{match[1].replace('xlink:', '')}#{prefix}-", body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", body)  # the first of matplotlib's list of families
    return f'<svg {box[0]} role="img" aria-label="{html.escape(label)}">{body}'
