"""Write the tables of a sweep as Markdown, LaTeX and tidy CSV."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import FoldScores, PairedTest, metric_name
from graphcl.evaluate.scores import sample_deviation
from graphcl.sweep.across import across
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Entry, Labels, Place, Table, scores_of
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
        # coordinates come first for the column order, and again last so that no metric overwrites them
        common = {**cell.coordinates, "status": record.get("status", "open")}
        tail = {**record.get("metrics", {}), "error": record.get("error", ""), "key": cell.key, **common}
        if common["status"] != "done":
            lines.append({**common, **tail})
            continue
        for evaluator in record["scores"]:
            scores = scores_of(record, evaluator)
            values = {"evaluator": evaluator, "accuracy": scores.mean, "std_folds": sample_deviation(scores.accuracy)}
            values["inner"] = float(np.mean(scores.inner))
            references = before.get("references", {}).get(evaluator, {})
            values |= {name: FoldScores.of(score).mean for name, score in references.items()}
            if "untrained" in values:
                values["gain"] = values["accuracy"] - values["untrained"]
            values |= {f"{stage}_seconds": round(value, 3) for stage, value in record["seconds"].items()}
            lines.append({**common, **values, **tail})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def metric_names(table: Table) -> str:
    """Return the display names of a table's metrics, such as `accuracy in %`."""
    return ", ".join(metric_name(metric).replace(" %", " in %") for metric in table.metrics)


def gain_text(mean: float, p: float) -> str:
    """Return a gain and its p-value in parentheses, such as `+1.20 (0.041)`."""
    return f"{mean:+.2f} ({p_text(p)})"


def p_text(p: float) -> str:
    """Return a p-value as text."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _caption(table: Table) -> str:
    """Return evaluator, metrics, and what ± is, if an entry has several seeds."""
    several = any(entry.std is not None for entry in table.entries.values())
    spread = ", mean ± sample standard deviation over seeds (n - 1)" if several else ""
    return f"{table.evaluator}: {metric_names(table)}{spread}"


def _head(table: Table) -> list[str]:
    return [*(table.header or ("",)), *table.columns]


def _score_rows(table: Table, bold: Callable[[str], str]) -> list[list[str]]:
    """Return the labels and scores of each row: first the rows without training, then the trained rows."""
    lines = []
    references = table.reference_rows()
    names = [name for name, *_ in references]
    for name, rows, entries in references:
        labels = [labels[0] if len(set(labels)) == 1 else "" for labels in zip(*rows, strict=True)]  # that all share
        if names.count(name) == 1:
            labels = [""] * max(1, len(table.header))
        texts = [_score_text(entries[column]) if column in entries else "" for column in table.columns]
        lines.append([f"{name} {labels[0]}".strip(), *labels[1:], *texts])
    for row in table.rows:
        texts = []
        for column in table.columns:
            text, gain = _score_text(table.entries[row, column]), table.gains_over_baseline.get((row, column))
            text = bold(text) if table.is_gain(row, column) else text
            text += "†" if len(table.rows) > 1 and table.is_best(row, column) else ""
            texts.append(text + ("‡" if gain and gain.significant and gain.mean > 0 else ""))
        lines += [[*(row or ("trained",)), *texts], *_published_rows(table, row)]
    return lines


def _published_rows(table: Table, row: Labels) -> list[list[str]]:
    """Return the published values of a row and the differences of its means to them; nothing without any."""
    published = table.layout.published.get(row[0], {}) if row else {}
    if not published:
        return []
    lines = [["published"], ["difference"]]
    for column in table.columns:
        text, mean = published.get(column), table.entries[row, column].mean
        lines[0].append(text or "-")
        lines[1].append("-" if text is None or mean is None else f"{mean - float(text.split(' ± ')[0]):+.2f}")
    return lines


def _score_text(entry: Entry) -> str:
    """Return mean, deviation and number of missing seeds of an entry as text."""
    if not entry.scores:
        return "failed" if entry.failed else "-"
    missing = f" ({len(entry.scores)}/{entry.expected})" if len(entry.scores) < entry.expected else ""
    spread = "" if entry.std is None else f" ± {entry.std:.2f}"
    return f"{entry.mean:.2f}{spread}{missing}"


def _gain_rows(table: Table) -> list[tuple[str, Mapping[Place, PairedTest], list[list[str]]]]:
    """Return what gains are over, these gains, and the labels and gains of each row that has any."""
    kinds = {"the best row without training, on the same seeds and folds": table.gains_over_best}
    kinds["the untrained encoder"] = table.gains
    if table.layout.baseline is not None:
        labels = ", ".join(f"{axis} {label}" for axis, label in table.layout.baseline.items())
        kinds[f"the baseline, {labels}"] = table.gains_over_baseline
    parts = []
    for over, gains in kinds.items():
        rows = []
        for row in table.rows:
            tests = [gains.get((row, column)) for column in table.columns]
            if any(tests):
                rows.append([*(row or ("trained",)), *(gain_text(test.mean, test.p) if test else "" for test in tests)])
        parts.append((over, gains, rows))
    return parts


def _legend(table: Table) -> str:
    """Return the note under a table: seeds, folds, tests and the meaning of every mark."""
    entries = [entry for entry in table.entries.values() if entry.scores]
    layout = table.layout
    if not entries:
        shared = layout.jointly and "No seed is finished on all data sets, which a joint selection needs."
        return shared or "No cell is finished yet."
    seeds = " or ".join(map(str, sorted({entry.expected for entry in entries})))
    folds = " or ".join(map(str, sorted({score.folds for entry in entries for score in entry.scores})))
    splits, test = f"folds: {folds}", "corrected t-test of repeated cross-validation"
    if folds == "1":
        splits = "the split by group" if table.metrics == ["mrr"] else "the benchmark's split"
        test = "paired t-test over seeds"
    marks = ["Bold: better than the best row without training, p < 0.05."]
    if len(table.rows) > 1:
        marks.append("†: best trained mean on a data set.")
    if layout.baseline is not None:
        marks.append("‡: better than the baseline, p < 0.05.")
    if layout.select:
        where = "one value for all data sets" if layout.jointly else "on each data set"
        marks.append(f"{', '.join(layout.select)}: selected by the inner folds of each test fold, {where}.")
    holm = "adjusted (Holm) for all gains of one kind in a table"
    return f"Seeds: {seeds}; {splits}. {' '.join(marks)} p: two-sided {test}, {holm}."


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: scores, gains, selected labels, rows over data sets, and a legend."""
    head = _head(table)
    left = len(head) - len(table.columns)
    lines = [f"### {_caption(table)}", "", *_markdown(head, _score_rows(table, "**{}**".format), left)]
    unit = "the metric's unit, a lower error is a gain" if table.has_errors else "percentage points"
    for over, gains, rows in _gain_rows(table):
        if gains is table.gains_over_best and rows:
            least = [[table.least.get((row, column), math.inf) for row in table.rows] for column in table.columns]
            texts = [f"{value:.2f}" if math.isfinite(value) else "-" for value in map(statistics.median, least)]
            rows.append(["least gain", *[""] * (left - 1), *texts])
        lines += ["", f"Gain over {_escape(over)}, in {unit} (p):", "", *_markdown(head, rows, left)]
    if table.layout.select:
        rows = [
            [*(row or ("trained",)), *(_chosen(table.entries[row, c]) for c in table.columns)] for row in table.rows
        ]
        what = f"Selected {', '.join(table.layout.select)} (number of test folds), by inner folds:"
        lines += ["", what, "", *_markdown(head, rows, len(head))]
    lines += [*_over_datasets(table), "", _legend(table)]
    if any(map(math.isfinite, table.least.values())):
        what = "what this test finds in four of five repetitions, without the adjustment; median of the rows"
        lines.append(f"Least gain: {what}.")
    return "\n".join(lines)


def _chosen(entry: Entry) -> str:
    counts = sorted(entry.chosen.items(), key=lambda item: -item[1])
    return ", ".join(f"{label} ({count})" for label, count in counts if count)


def _over_datasets(table: Table) -> list[str]:
    """Return the lines on ranks and duels over data sets; none if the table has no such comparison."""
    compared = across(table)
    if compared is None:
        return []
    rows = []
    for row, rank in sorted(compared.ranks.items(), key=lambda item: item[1]):
        duels = [of_rival.get(row) for of_rival in compared.duels.values()]
        texts = [f"{duel.wins}/{duel.ties}/{duel.losses} ({p_text(duel.p)})" if duel else "" for duel in duels]
        rows.append([row, f"{rank:.2f}", *texts])
    n = len(compared.datasets)
    few = " With fewer than six data sets, p cannot fall below 0.05." if n < 6 else ""
    how = (
        f"Over {n} data sets: mean rank (1 is best); wins/ties/losses (p of Wilcoxon's signed-rank test over the data "
        f"sets, two-sided, Holm).{few} By Nemenyi's test, ranks differ from {compared.critical_difference:.2f} on."
    )
    return ["", how, "", *_markdown(["row", "rank", *(f"against the {name}" for name in compared.duels)], rows, 1)]


def _escape(text: str) -> str:
    """Return a label on one line, with the characters escaped that Markdown would read as markup."""
    return re.sub(r"[\\`*<>\[\]&~|]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", " ".join(text.split()))


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return the lines of a table; the head and the first `left` texts of each row are labels, which are escaped."""
    texts = [list(map(_escape, head)), *([*map(_escape, row[:left]), *row[left:]] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*texts, strict=True)]
    lines = [" | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in texts]
    rule = "|".join("-" * (width + 2) for width in widths)
    return [f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]


def to_latex(table: Table) -> str:
    """Return scores and gains as a LaTeX `table` with caption and notes, which needs the package booktabs."""
    head = _head(table)
    left = len(head) - len(table.columns)
    body = [_latex_row(row, left) for row in _score_rows(table, r"\textbf{{{}}}".format)]
    body.insert(len(table.reference_rows()), r"\midrule")
    for over, gains, rows in _gain_rows(table):
        if gains is not table.gains and rows:
            body += [r"\midrule", rf"\multicolumn{{{len(head)}}}{{l}}{{Gain over {_escape_latex(over)} ($p$)}} \\"]
            body += [_latex_row(row, left) for row in rows]
    top = [
        r"\begin{table} % \usepackage{booktabs}",
        r"\centering",
        rf"\caption{{{_escape_latex(_caption(table))}.}}",
        rf"\label{{tab:{table.evaluator}}}",
        rf"\begin{{tabular}}{{{'l' * left}{'c' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(_escape_latex, head)) + r" \\",
        r"\midrule",
    ]
    notes = rf"\parbox{{\linewidth}}{{\footnotesize {_escape_latex(_legend(table))}}}"
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}\par\smallskip", notes, r"\end{table}"])


def _latex_row(row: Sequence[str], left: int) -> str:
    """Return a row; its labels are escaped, its other texts hold LaTeX."""
    values = ["".join(_SIGNS.get(character, character) for character in text) for text in row[left:]]
    values = [re.sub(r"-(?=\d)", "$-$", text) for text in values]
    return " & ".join([*map(_escape_latex, row[:left]), *values]) + r" \\"


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
