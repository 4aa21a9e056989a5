"""Figures as SVG: files of their own, or parts of a page that take its colours."""

from __future__ import annotations

import html
import io
import re
from typing import Any

from graphcl.experiment.viz.style import GRID, INK, MUTED, PAPER, picture

_NAMED = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}


@picture
def to_svg(figure: Any) -> str:
    """The figure as the text of an SVG file; the same figure gives the same text."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


@picture
def to_png(figure: Any) -> bytes:
    """The figure as a PNG file, at twice the usual resolution."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def inline(figure: Any, name: str, label: str) -> str:
    """The figure as an element of a page, as wide as its place, in the page's ink, muted ink, grid and paper.

    Args:
        figure: matplotlib's.
        name: put before all ids, which must be different from those of the page's other figures.
        label: what a screen reader says.
    """
    figure.patch.set_visible(False)
    name = re.sub(r"[^\w-]", "", name)  # it may be a name out of a file, and ends up within quotes
    text = to_svg(figure)
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(url\(|xlink:href=")#', lambda found: f"{found[1].replace('xlink:', '')}#{name}-", body)
    body = re.sub(r"(font: [^;\"]*?px) '[^;\"]*", r"\1 var(--font)", body)
    for colour, variable in _NAMED.items():
        body = body.replace(colour, f"var({variable})")
    return f'<svg {box[0]} role="img" aria-label="{html.escape(label)}">{body}'
