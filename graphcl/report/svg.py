"""Convert matplotlib figures to SVG files, or to SVG elements of a page."""

from __future__ import annotations

import html
import io
import re
from typing import Any

from graphcl.report.style import style


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
    body = re.sub(r'(url\(|xlink:href=")#', lambda found: f"{found[1].replace('xlink:', '')}#{prefix}-", body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", body)  # the first of matplotlib's list of families
    return f'<svg {box[0]} role="img" aria-label="{html.escape(label)}">{body}'
