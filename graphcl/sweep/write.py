"""Write the tables of a sweep as Markdown, LaTeX and tidy CSV."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import FoldScores
from graphcl.evaluate.scores import sample_deviation
from graphcl.sweep.across import Across, across
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Entry, Table, scores_of
from graphcl.sweep.texts import caption, gain_rows, gains_of, head_of, legend, p_text, score_rows
from graphcl.system.files import write_text

_SIGNS = {"±": r"$\pm$", "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", "<": "$<$"}
_LATEX = _SIGNS | {character: "\\" + character for character in "_&%#${}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
# [ and * need braces: at the start of a row, LaTeX would read them as an argument of the preceding line break
_LATEX |= {"[": "{[}", "*": "{*}"}


def write_tables(
    folder: Path, plan: Plan, records: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Table]
) -> None:
    """Write `table.md`, `table.tex` and `cells.csv` into a folder."""
    write_text(folder / "table.md", "\n\n".join(map(to_markdown, tables.values())) + "\n")
    write_text(folder / "table.tex", "\n\n".join(map(to_latex, tables.values())) + "\n")
    write_text(folder / "cells.csv", to_csv(plan, records))


def to_csv(plan: Plan, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return CSV with a line for each cell and evaluator: coordinates, scores, times, metrics of the last epoch."""
    lines: list[dict[str, Any]] = []
    for cell in plan.cells:
        record, before = records.get(cell.key, {}), records.get(cell.reference, {})
        common = {**cell.coordinates, "status": record.get("status", "open")}
        tail = {**record.get("metrics", {}), "error": record.get("error", ""), "key": cell.key}
        for evaluator in record["scores"] if common["status"] == "done" else ():
            scores = scores_of(record, evaluator)
            values = {"evaluator": evaluator, "accuracy": scores.mean, "std_folds": sample_deviation(scores.accuracy)}
            values["inner"] = float(np.mean(scores.inner))
            references = before.get("references", {}).get(evaluator, {})
            values |= {name: FoldScores.of(kept).mean for name, kept in references.items()}
            if "untrained" in values:
                values["gain"] = values["accuracy"] - values["untrained"]
            values |= {f"{stage}_seconds": round(value, 3) for stage, value in record["seconds"].items()}
            # coordinates come first for the column order, and again last so that no metric overwrites them
            lines.append({**common, **values, **tail, **common})
        if common["status"] != "done":
            lines.append({**common, **tail, **common})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: scores, gains, selected labels, rows over data sets, and a legend."""
    head = head_of(table)
    lines = [f"### {caption(table)}", ""]
    left = len(head) - len(table.columns)
    lines += _markdown(head, score_rows(table, "**{}**".format), left)
    unit = "the metric's unit, a lower error is a gain" if table.has_errors else "percentage points"
    for over, found in gains_of(table).items():
        rows = gain_rows(table, found)
        if found is table.gains_over_best and rows:
            rows.append(["least gain", *[""] * (left - 1), *_least(table)])
        lines += ["", f"Gain over {_escape(over)}, in {unit} (p):", "", *_markdown(head, rows, left)]
    if table.layout.select:
        what = ", ".join(table.layout.select)
        rows = [[*(r or ("trained",)), *(_chosen(table.entries[r, c]) for c in table.columns)] for r in table.rows]
        lines += ["", f"Selected {what} (number of test folds), by inner folds:", "", *_markdown(head, rows, len(head))]
    if (over_datasets := across(table)) is not None:
        lines += ["", *_over_datasets(over_datasets)]
    least = "Least gain: what this test finds in four of five repetitions, without the adjustment; median of the rows."
    return "\n".join([*lines, "", legend(table), *[least] * any(map(math.isfinite, table.least.values()))])


def _least(table: Table) -> list[str]:
    """Return for each column the median of the gains that its tests could have shown."""
    found = [[table.least.get((row, column), math.inf) for row in table.rows] for column in table.columns]
    return [f"{value:.2f}" if math.isfinite(value := statistics.median(each)) else "-" for each in found]


def _chosen(entry: Entry) -> str:
    counts = sorted(entry.chosen.items(), key=lambda item: -item[1])
    return ", ".join(f"{label} ({count})" for label, count in counts if count)


def _over_datasets(found: Across) -> list[str]:
    rows = []
    for row, rank in sorted(found.ranks.items(), key=lambda item: item[1]):
        duels = [own.get(row) for own in found.duels.values()]
        texts = [f"{duel.wins}/{duel.ties}/{duel.losses} ({p_text(duel.p)})" if duel else "" for duel in duels]
        rows.append([row, f"{rank:.2f}", *texts])
    n = len(found.datasets)
    few = " With fewer than six data sets, p cannot fall below 0.05." * (n < 6)
    return [
        f"Over {n} data sets: mean rank (1 is best); wins/ties/losses (p of Wilcoxon's signed-rank test over the data "
        f"sets, two-sided, Holm).{few} By Nemenyi's test, ranks differ from {found.critical_difference:.2f} on.",
        "",
        *_markdown(["row", "rank", *(f"against the {name}" for name in found.duels)], rows, 1),
    ]


def _escape(text: str) -> str:
    """Return a label on one line, with the characters escaped that Markdown would read as markup."""
    return re.sub(r"[\\`*<>\[\]&~|]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", " ".join(text.split()))


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return the lines of a table; the head and the first `left` texts of each row are labels, which are escaped."""
    texts = [list(map(_escape, head)), *([*map(_escape, row[:left]), *row[left:]] for row in rows)]
    widths = [max(3, *(len(line[i]) for line in texts)) for i in range(len(head))]
    lines = [" | ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)) for line in texts]
    rule = "|".join("-" * (width + 2) for width in widths)
    return [f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]


def to_latex(table: Table) -> str:
    """Return scores and gains as a LaTeX `table` with caption and notes, which needs the package booktabs."""
    head = head_of(table)
    left = len(head) - len(table.columns)
    body = [_latex_row(row, left) for row in score_rows(table, r"\textbf{{{}}}".format)]
    body.insert(len(table.reference_rows()), r"\midrule")
    for over, found in gains_of(table).items():
        if found is not table.gains and (rows := gain_rows(table, found)):
            body += [r"\midrule", rf"\multicolumn{{{len(head)}}}{{l}}{{Gain over {_escape_latex(over)} ($p$)}} \\"]
            body += [_latex_row(row, left) for row in rows]
    top = [
        r"\begin{table} % \usepackage{booktabs}",
        r"\centering",
        rf"\caption{{{_escape_latex(caption(table))}.}}",
        rf"\label{{tab:{table.evaluator}}}",
        rf"\begin{{tabular}}{{{'l' * left}{'c' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(_escape_latex, head)) + r" \\",
        r"\midrule",
    ]
    notes = rf"\parbox{{\linewidth}}{{\footnotesize {_escape_latex(legend(table))}}}"
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}\par\smallskip", notes, r"\end{table}"])


def _latex_row(row: Sequence[str], left: int) -> str:
    """Return a row; its labels are escaped, its other texts hold LaTeX."""
    values = ["".join(_SIGNS.get(character, character) for character in text) for text in row[left:]]
    values = [re.sub(r"-(?=\d)", "$-$", text) for text in values]
    return " & ".join([*map(_escape_latex, row[:left]), *values]) + r" \\"


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
