"""One self-contained page: it loads nothing, and is well-formed XML as well as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from graphcl.experiment.viz.style import COLOURS, GRID, INK, MUTED, PAPER
from graphcl.experiment.viz.svg import inline

_CSS = f"""
:root {{ color-scheme: light dark; --ink: {INK}; --muted: {MUTED}; --grid: {GRID}; --paper: {PAPER}; --mark: #fff3cd;
  --font: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8e8e8; --muted: #9a9a9a; --grid: #32363d; --paper: #14161a; --mark: #4a3d10; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 1120px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 var(--font); }}
h1 {{ font-size: 1.5rem; margin: 0.4rem 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.12rem; margin: 2.2rem 0 0.3rem; border-top: 1px solid var(--grid); padding-top: 0.8rem; }}
p {{ margin: 0.4rem 0; max-width: 46rem; }}
.lead {{ font-size: 1.05rem; }}
.note, figcaption, th {{ color: var(--muted); }}
.note {{ font-size: 0.9rem; }}
code {{ font-size: 0.88em; overflow-wrap: anywhere; }}
.panels {{ display: flex; flex-wrap: wrap; gap: 0.6rem 1.2rem; margin: 0.6rem 0; }}
figure {{ flex: 1 1 290px; max-width: 420px; margin: 0; }}
figure svg {{ width: 100%; height: auto; display: block; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 0.1rem 1.1rem; margin: 0.4rem 0; font-size: 0.9rem; }}
.legend i {{ display: inline-block; min-width: 1.1em; margin-right: 0.35em; font-style: normal; text-align: center;
  vertical-align: middle; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.9rem; }}
th, td {{ text-align: left; padding: 0.15rem 1.2rem 0.15rem 0; vertical-align: top;
  border-bottom: 1px solid var(--grid); }}
th {{ font-weight: normal; }}
td {{ overflow-wrap: anywhere; }}
td.changed {{ font-weight: 600; background: var(--mark); padding-left: 0.4rem; }}
summary {{ cursor: pointer; margin: 0.5rem 0; }}
@media print {{ body {{ max-width: none; font-size: 11px; padding: 0; }} section, figure {{ break-inside: avoid; }}
  figure {{ flex: 0 1 31%; }} }}
"""
_GLYPHS = {"o": "●", "^": "▲", "s": "■", "D": "◆", "v": "▼"}
_LINES = {"-": "solid", "--": "dashed"}


def page(title: str, body: Iterable[str]) -> str:
    """The page's text.

    Args:
        title: of the window.
        body: elements, such as `section` gives.
    """
    head = (
        f'<meta charset="utf-8"/>\n<meta name="viewport" content="width=device-width"/>\n<title>{escape(title)}</title>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n<style>{_CSS}</style>\n</head>\n<body>\n'
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A headed part of the page."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; text between backticks is set as code."""
    pieces = escape(text).split("`")
    told = "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
    return f'<p class="{kind}">{told}</p>' if kind else f"<p>{told}</p>"


def pictures(name: str, figures: Sequence[tuple[str, Any]]) -> str:
    """Figures beside each other, as many as fit.

    Args:
        name: different from that of the page's other pictures.
        figures: what each shows, in words, and matplotlib's figure.
    """
    drawn = [inline(figure, f"{name}{number}", label) for number, (label, figure) in enumerate(figures)]
    return '<div class="panels">\n' + "\n".join(f"<figure>{each}</figure>" for each in drawn) + "\n</div>"


def legend(entries: Iterable[tuple[str, str, str]]) -> str:
    """What colours and shapes mean: name, colour, and a marker or a line as matplotlib calls it."""
    items = []
    for name, colour, mark in entries:
        ink = f"var({'--ink' if colour == COLOURS[-1] else '--muted'})" if colour in (INK, MUTED) else colour
        style = f"border-top: 3px {_LINES[mark]} {ink}" if mark in _LINES else f"color: {ink}"
        items.append(f'<span><i style="{style}">{_GLYPHS.get(mark, "")}</i>{escape(name)}</span>')
    return '<div class="legend">' + "".join(items) + "</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], changed: bool = False) -> str:
    """A table; with `changed`, the second column is emphasised."""
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        marks = [' class="changed"' if changed and column == 1 else "" for column in range(len(row))]
        cells = (f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True))
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def folded(summary: str, content: str) -> str:
    """Something that opens at a click."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>"
