"""Write the tables of a sweep as Markdown, LaTeX and tidy CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import LOWER, METRICS, FoldScores, PairedTest
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Entry, Table, scores_of
from graphcl.system.files import write_text

_LATEX = {character: "\\" + character for character in "_&%#${}"}
# [ and * need braces: at the start of a row, LaTeX would read them as an argument of the preceding line break
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "[": "{[}", "*": "{*}"}


def write_tables(
    folder: Path, plan: Plan, records: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Table]
) -> None:
    """Write `table.md`, `table.tex` and `cells.csv` into a folder."""
    write_text(folder / "table.md", "\n\n".join(map(to_markdown, tables.values())) + "\n")
    write_text(folder / "table.tex", "\n\n".join(map(to_latex, tables.values())) + "\n")
    write_text(folder / "cells.csv", to_csv(plan, records))


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: scores, gains over the reference rows and over the baseline, and a legend."""
    head = _head(table)
    lines = [f"### {table.evaluator}: {metric_names(table)}, mean ± deviation between seeds", ""]
    lines += _markdown(head, _score_rows(table, "**{}**".format, "±"))
    gains = {"the best reference row, on the same seeds and folds": table.gains_over_best}
    gains["the untrained encoder"] = table.gains
    if table.baseline is not None:
        labels = ", ".join(f"{axis} {label}" for axis, label in table.baseline.items())
        gains[f"the baseline, {labels}"] = table.gains_over_baseline
    unit = "the metric's unit, a lower error is a gain" if LOWER & {*table.metrics} else "percentage points"
    for over, found in gains.items():
        rows = []
        for row in table.rows:
            texts = [_gain(found.get((row, column))) for column in table.columns]
            rows += [[*(row or ("trained",)), *texts]] if any(texts) else []
        lines += ["", f"Gain over {over}, in {unit} (p):", "", *_markdown(head, rows)]
    return "\n".join([*lines, "", _legend(table)])


def to_latex(table: Table) -> str:
    """Return the scores as a LaTeX table (`booktabs`): bold is best, a star is a significant gain over the baseline."""
    rows = _score_rows(table, lambda text: rf"\textbf{{{text}}}", r"$\pm$", r"\rlap{$^{*}$}")
    head = _head(table)
    left = len(head) - len(table.columns)
    body = [" & ".join([*map(_escape, row[:left]), *row[left:]]) + r" \\" for row in rows]
    body.insert(len(table.reference_rows()), r"\midrule")
    lines = [rf"\begin{{tabular}}{{{'l' * left}{'c' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(map(_escape, head)) + r" \\", r"\midrule", *body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def to_csv(plan: Plan, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return CSV with a line for each cell and evaluator: coordinates, scores, times, metrics of the last epoch."""
    lines: list[dict[str, Any]] = []
    for cell in plan.cells:
        record, before = records.get(cell.key, {}), records.get(cell.reference, {})
        common = {**cell.coordinates, "status": record.get("status", "open")}
        tail = {**record.get("metrics", {}), "error": record.get("error", ""), "key": cell.key}
        for evaluator in record["scores"] if common["status"] == "done" else ():
            scores = scores_of(record, evaluator)
            values = {"evaluator": evaluator, "accuracy": scores.mean, "std_folds": float(np.std(scores.accuracy))}
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


def metric_names(table: Table) -> str:
    """Return the display names of a table's metrics, such as `accuracy in %`."""
    return ", ".join(METRICS[each].replace(" %", " in %") for each in table.metrics)


def gain_text(mean: float, p: float) -> str:
    """Return a gain and its p-value in parentheses, such as `+1.20 (0.041)`."""
    return f"{mean:+.2f} ({'< 0.001' if p < 0.001 else f'{p:.3f}'})"


def _gain(test: PairedTest | None) -> str:
    text = gain_text(test.mean, test.p) if test else ""
    return f"**{text}**" if test and test.significant else text


def _head(table: Table) -> list[str]:
    return [*(table.header or ("",)), *table.columns]


def _score_rows(table: Table, bold: Callable[[str], str], plus_minus: str, star: str = "") -> list[list[str]]:
    """Return the texts of the table's rows: first the reference rows, then the trained rows."""
    out = []
    references = table.reference_rows()
    for name, rows, entries in references:
        labels = [each[0] if len(set(each)) == 1 else "" for each in zip(*rows, strict=True)]  # that all rows share
        if sum(other == name for other, *_ in references) == 1:
            labels = [""] * max(1, len(table.header))
        texts = [_text(entries.get(column), plus_minus) for column in table.columns]
        out.append([f"{name} {labels[0]}".strip(), *labels[1:], *texts])
    for row in table.rows:
        texts = []
        for column in table.columns:
            text, gain = _text(table.entries[row, column], plus_minus), table.gains_over_baseline.get((row, column))
            text = bold(text) if table.is_best(row, column) else text
            texts.append(text + star if gain and gain.significant and gain.mean > 0 else text)
        out.append([*(row or ("trained",)), *texts])
    return out


def _text(entry: Entry | None, plus_minus: str) -> str:
    if entry is None:
        return ""
    if not entry.scores:
        return "failed" if entry.failed else "-"
    missing = f" ({len(entry.scores)}/{entry.expected})" if len(entry.scores) < entry.expected else ""
    spread = f" {plus_minus} {entry.std:.2f}" if len(entry.scores) > 1 else ""
    return f"{entry.mean:.2f}{spread}{missing}"


def _legend(table: Table) -> str:
    entries = [entry for entry in table.entries.values() if entry.scores]
    if not entries:
        return "No cell is finished yet."
    seeds = " or ".join(map(str, sorted({entry.expected for entry in entries})))
    folds = " or ".join(map(str, sorted({score.folds for entry in entries for score in entry.scores})))
    how = f"folds: {folds}", "corrected t-test of repeated cross-validation"
    one = "the split by group" if table.metrics == ["mrr"] else "the benchmark's split"
    splits, test = (one, "paired t-test over seeds") if folds == "1" else how
    return (
        f"Seeds: {seeds}; {splits}. In bold: the best trained encoder of a column, where it beats every row without "
        f"training. p: two-sided {test}, adjusted (Holm) for all comparisons of a table; bold below 0.05."
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    texts = [[" ".join(each.split()).replace("|", r"\|") for each in line] for line in (head, *rows)]
    widths = [max(3, *(len(line[i]) for line in texts)) for i in range(len(head))]
    lines = [" | ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)) for line in texts]
    rule = "|".join("-" * (width + 2) for width in widths)
    return [f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
