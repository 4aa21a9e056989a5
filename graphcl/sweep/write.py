"""Write the tables of a sweep as Markdown, LaTeX and tidy CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import LOWER, METRICS, FoldScores
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Difference, Entry, Labels, Table, scores_of
from graphcl.system.files import write_text

Lines = list[str]
_LATEX = {character: "\\" + character for character in "_&%#${}"}
# [ and * need braces: at the start of a row, LaTeX would read them as an argument of the preceding line break
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "[": "{[}", "*": "{*}"}


def write_tables(
    folder: Path, plan: Plan, records: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Table]
) -> None:
    """Write `table.md`, `table.tex` and `cells.csv` into a folder."""
    texts = {
        "table.md": "\n\n".join(to_markdown(table) for table in tables.values()) + "\n",
        "table.tex": "\n\n".join(to_latex(table) for table in tables.values()) + "\n",
        "cells.csv": to_csv(plan, records),
    }
    for name, text in texts.items():
        write_text(folder / name, text)


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: scores, gains over the reference rows and over the baseline, and a legend."""
    metrics = ", ".join(METRICS[each].replace(" %", " in %") for each in table.metrics)
    lines = [f"### {table.evaluator}: {metrics}, mean ± deviation between seeds", ""]
    lines += accuracy_lines(table)
    unit = "the metric's unit, a lower error is a gain" if LOWER & {*table.metrics} else "percentage points"
    lines += ["", f"Gain over the best reference row, on the same seeds and folds, in {unit} (p):", ""]
    lines += _markdown(_head(table), _difference_rows(table, table.gains_over_best))
    lines += ["", f"Gain over the untrained encoder, in {unit} (p):", ""]
    lines += _markdown(_head(table), _difference_rows(table, table.gains))
    if table.baseline is not None:
        named = ", ".join(f"{axis} {label}" for axis, label in table.baseline.items())
        lines += ["", f"Gain over the baseline, {named}, in {unit} (p):", ""]
        lines += _markdown(_head(table), _difference_rows(table, table.gains_over_baseline))
    lines += ["", _legend(table)]
    return "\n".join(lines)


def accuracy_lines(table: Table) -> Lines:
    """Return the scores of a table as the lines of a Markdown table."""
    return _markdown(_head(table), _accuracy_rows(table, "**{}**".format, "±"))


def to_latex(table: Table) -> str:
    """Return the scores as a LaTeX table (`booktabs`): bold is best, a star is a significant gain over the baseline."""
    rows = _accuracy_rows(table, lambda text: rf"\textbf{{{text}}}", r"$\pm$", r"\rlap{$^{*}$}")
    head = _head(table)
    left = len(head) - len(table.columns)
    lines = [rf"\begin{{tabular}}{{{'l' * left}{'c' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(map(_escape, head)) + r" \\", r"\midrule"]
    body = [" & ".join([*map(_escape, row[:left]), *row[left:]]) + r" \\" for row in rows]
    references = len(table.reference_rows())  # they come first, and a rule follows
    lines += [*body[:references], r"\midrule", *body[references:]]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def to_csv(plan: Plan, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return CSV with a line for each cell and evaluator: coordinates, scores, times, metrics of the last epoch."""
    lines: list[dict[str, Any]] = []
    for cell in plan.cells:
        record, before = records.get(cell.key, {}), records.get(cell.reference, {})
        common = {**cell.coordinates, "status": record.get("status", "open")}
        tail = {**record.get("metrics", {}), "error": record.get("error", ""), "key": cell.key}
        if record.get("status") != "done":
            lines.append({**common, **tail, **common})
            continue
        for evaluator in record["scores"]:
            scores = scores_of(record, evaluator)
            values = {"evaluator": evaluator, "accuracy": scores.mean, "std_folds": float(np.std(scores.accuracy))}
            values["inner"] = float(np.mean(scores.inner))
            for name, kept in before.get("references", {}).get(evaluator, {}).items():
                values[name] = FoldScores.of(kept).mean
            if "untrained" in values:
                values["gain"] = values["accuracy"] - values["untrained"]
            seconds = {f"{stage}_seconds": round(value, 3) for stage, value in record["seconds"].items()}
            # coordinates come first for the column order, and again last so that no metric overwrites them
            lines.append({**common, **values, **seconds, **tail, **common})
    names = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _head(table: Table) -> Lines:
    return [*(table.header or ("",)), *table.columns]


def _accuracy_rows(table: Table, bold: Callable[[str], str], plus_minus: str, star: str = "") -> list[Lines]:
    """Return the texts of the table's rows: first the reference rows, then the trained rows."""
    best = {column: _mean(table, table.best(column), column) for column in table.columns}
    out = []
    references = table.reference_rows()
    for name, rows, entries in references:
        texts = [_text(entries.get(column), plus_minus) for column in table.columns]
        alone = sum(each == name for each, *_ in references) == 1
        out.append([*_reference_labels(table, name, rows, alone), *texts])
    for row in table.rows:
        texts = []
        for column in table.columns:
            text = _text(table.entries.get((row, column)), plus_minus)
            if best[column] and _mean(table, row, column) == best[column] and table.beats_references(row, column):
                text = bold(text)
            gain = table.gains_over_baseline.get((row, column))
            texts.append(text + star if gain is not None and gain.significant and gain.mean > 0 else text)
        out.append([*(row or ("trained",)), *texts])
    return out


def _mean(table: Table, row: Labels | None, column: str) -> str:
    """Return the mean of an entry as printed, or "" if it has none; used to compare means as they are printed."""
    entry = table.entries.get((row, column)) if row is not None else None
    return f"{entry.mean:.2f}" if entry is not None and entry.mean is not None else ""


def _reference_labels(table: Table, name: str, rows: Sequence[Labels], alone: bool) -> Lines:
    """Return the labels of a reference row: its name and, unless `alone`, the labels that all of `rows` share."""
    if alone:
        return [name] + [""] * (max(1, len(table.header)) - 1)
    common = [labels[0] if len(set(labels)) == 1 else "" for labels in zip(*rows, strict=True)]
    return [f"{name} {common[0]}".strip(), *common[1:]]


def _difference_rows(table: Table, differences: Mapping[tuple[Labels, str], Difference]) -> list[Lines]:
    out = []
    for row in table.rows:
        found = [differences.get((row, column)) for column in table.columns]
        if any(each is not None for each in found):
            out.append([*(row or ("trained",)), *(_difference(each) for each in found)])
    return out


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return ""
    text = gain_text(difference.mean, difference.p)
    return f"**{text}**" if difference.significant else text


def gain_text(mean: float, p: float) -> str:
    """Return a gain and its p-value in parentheses, such as `+1.20 (0.041)`."""
    return f"{mean:+.2f} ({'< 0.001' if p < 0.001 else f'{p:.3f}'})"


def _text(entry: Entry | None, plus_minus: str) -> str:
    if entry is None:
        return ""
    missing = f" ({len(entry.scores)}/{entry.expected})" if len(entry.scores) < entry.expected else ""
    if not entry.scores:
        return "failed" if entry.failed else "-"
    spread = f" {plus_minus} {entry.std:.2f}" if len(entry.scores) > 1 else ""
    return f"{entry.mean:.2f}{spread}{missing}"


def _legend(table: Table) -> str:
    entries = [entry for entry in table.entries.values() if entry.scores]
    if not entries:
        return "No cell is finished yet."
    seeds = sorted({entry.expected for entry in entries})
    folds = sorted({score.folds for entry in entries for score in entry.scores})
    fixed = folds == [1]
    splits = "the benchmark's split" if fixed else f"folds: {' or '.join(map(str, folds))}"
    test = "paired t-test over seeds" if fixed else "corrected t-test of repeated cross-validation"
    return (
        f"Seeds: {' or '.join(map(str, seeds))}; {splits}. In bold: the best trained encoder of a column, "
        f"where it beats every row without training. "
        f"p: two-sided {test}, adjusted (Holm) for all comparisons of a table; bold below 0.05."
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    texts = [[" ".join(each.split()).replace("|", r"\|") for each in line] for line in (head, *rows)]
    widths = [max(3, *(len(line[i]) for line in texts)) for i in range(len(head))]
    lines = [
        "| " + " | ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)) + " |" for line in texts
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
