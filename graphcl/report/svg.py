"""Convert matplotlib figures to SVG or PNG files, or to SVG elements that use a page's colours."""

from __future__ import annotations

import html
import io
import re
from typing import Any

from graphcl.report.style import ON_DARK, style

_NAMES = ("ink", "muted", "grid", "paper", *(f"c{number}" for number in range(len(ON_DARK))))
_VARIABLES = {colour: f"--{name}" for colour, name in zip(ON_DARK, _NAMES, strict=False)}


@style()
def to_svg(figure: Any) -> str:
    """Return `figure` as the text of an SVG file; equal figures give equal texts."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


@style()
def to_png(figure: Any) -> bytes:
    """Return `figure` as the bytes of a PNG file with 150 dots per inch."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def css_variables() -> dict[str, tuple[str, str]]:
    """Return CSS variable -> (colour on light pages, colour on dark pages)."""
    return {variable: (colour, ON_DARK[colour]) for colour, variable in _VARIABLES.items()}


def css_colour(colour: str) -> str:
    """Return the CSS variable that stands for `colour` on a page, or `colour` itself if it has no variable."""
    return f"var({_VARIABLES[colour]})" if colour in _VARIABLES else colour


def inline(figure: Any, prefix: str, label: str) -> str:
    """Return `figure` as an `<svg>` element that uses the page's colours and font, and fills its container's width.

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
    body = re.sub(r'(url\(|xlink:href=")#', lambda found: f"{found[1].replace('xlink:', '')}#{prefix}-", body)
    body = re.sub(r"(font: [^;\"]*?px) '[^;\"]*", r"\1 var(--font)", body)
    for colour in _VARIABLES:
        body = body.replace(colour, css_colour(colour))
    return f'<svg {box[0]} role="img" aria-label="{html.escape(label)}">{body}'
