"""Write a table of a sweep as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphcl.sweep.table import Table
from graphcl.sweep.texts import gain_rows, gains_of, head_of, legend, metric_names, score_rows

_SIGNS = {"±": r"$\pm$", "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", "<": "$<$"}
_LATEX = _SIGNS | {character: "\\" + character for character in "_&%#${}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
# [ and * need braces: at the start of a row, LaTeX would read them as an argument of the preceding line break
_LATEX |= {"[": "{[}", "*": "{*}"}


def to_latex(table: Table) -> str:
    """Return scores and gains as a LaTeX `tabular` (`booktabs`), for a `table` with a caption of your own."""
    head = head_of(table)
    left = len(head) - len(table.columns)
    body = [_row(row, left) for row in score_rows(table, r"\textbf{{{}}}".format)]
    body.insert(len(table.reference_rows()), r"\midrule")
    for over, found in gains_of(table).items():
        if found is not table.gains and (rows := gain_rows(table, found)):
            body += [r"\midrule", rf"\multicolumn{{{len(head)}}}{{l}}{{Gain over {_escape(over)} ($p$)}} \\"]
            body += [_row(row, left) for row in rows]
    notes = f"{table.evaluator}: {metric_names(table)}, mean ± deviation of seeds.", legend(table)
    start = rf"\begin{{tabular}}{{{'l' * left}{'c' * len(table.columns)}}}"
    names = " & ".join(map(_escape, head)) + r" \\"
    top = [r"% \usepackage{booktabs}", *(f"% {note}" for note in notes), start, r"\toprule", names, r"\midrule"]
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}"])


def _row(row: Sequence[str], left: int) -> str:
    """Return a row; its labels are escaped, its other texts hold LaTeX."""
    values = ["".join(_SIGNS.get(character, character) for character in text) for text in row[left:]]
    values = [re.sub(r"-(?=\d)", "$-$", text) for text in values]
    return " & ".join([*map(_escape, row[:left]), *values]) + r" \\"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
