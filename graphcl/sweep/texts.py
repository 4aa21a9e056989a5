"""Write the parts of a table as texts, which Markdown and LaTeX share: scores, gains, and the legend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphcl.evaluate import PairedTest, metric_name
from graphcl.sweep.table import Entry, Place, Table


def gains_of(table: Table) -> dict[str, Mapping[Place, PairedTest]]:
    """Return a name of what gains are over -> the gains."""
    found = {"the best row without training, on the same seeds and folds": table.gains_over_best}
    found["the untrained encoder"] = table.gains
    if table.layout.baseline is not None:
        labels = ", ".join(f"{axis} {label}" for axis, label in table.layout.baseline.items())
        found[f"the baseline, {labels}"] = table.gains_over_baseline
    return found


def gain_rows(table: Table, found: Mapping[Place, PairedTest]) -> list[list[str]]:
    """Return the labels and gains of each row that has any."""
    rows = []
    for row in table.rows:
        tests = [found.get((row, column)) for column in table.columns]
        if any(tests):
            rows.append([*(row or ("trained",)), *(gain_text(test.mean, test.p) if test else "" for test in tests)])
    return rows


def metric_names(table: Table) -> str:
    """Return the display names of a table's metrics, such as `accuracy in %`."""
    return ", ".join(metric_name(each).replace(" %", " in %") for each in table.metrics)


def caption(table: Table) -> str:
    """Return the caption of a table or a figure: evaluator, metrics, and what ± is, if an entry has several seeds."""
    several = any(entry.std is not None for entry in table.entries.values())
    spread = ", mean ± sample standard deviation over seeds (n - 1)" if several else ""
    return f"{table.evaluator}: {metric_names(table)}{spread}"


def gain_text(mean: float, p: float) -> str:
    """Return a gain and its p-value in parentheses, such as `+1.20 (0.041)`."""
    return f"{mean:+.2f} ({p_text(p)})"


def p_text(p: float) -> str:
    """Return a p-value as text."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def head_of(table: Table) -> list[str]:
    """Return the head of the table: axes of the rows, then the columns."""
    return [*(table.header or ("",)), *table.columns]


def score_rows(table: Table, bold: Callable[[str], str]) -> list[list[str]]:
    """Return the labels and scores of each row: first the rows without training, then the trained rows."""
    out = []
    references = table.reference_rows()
    for name, rows, entries in references:
        labels = [each[0] if len(set(each)) == 1 else "" for each in zip(*rows, strict=True)]  # that all rows share
        if sum(other == name for other, *_ in references) == 1:
            labels = [""] * max(1, len(table.header))
        texts = [score_text(entries.get(column)) for column in table.columns]
        out.append([f"{name} {labels[0]}".strip(), *labels[1:], *texts])
    for row in table.rows:
        texts = []
        for column in table.columns:
            text, gain = score_text(table.entries[row, column]), table.gains_over_baseline.get((row, column))
            text = bold(text) if table.is_gain(row, column) else text
            text += "†" * (len(table.rows) > 1 and table.is_best(row, column))
            texts.append(text + "‡" * bool(gain and gain.significant and gain.mean > 0))
        out.append([*(row or ("trained",)), *texts])
    return out


def score_text(entry: Entry | None) -> str:
    """Return mean, deviation and number of missing seeds of an entry as text."""
    if entry is None:
        return ""
    if not entry.scores:
        return "failed" if entry.failed else "-"
    missing = f" ({len(entry.scores)}/{entry.expected})" if len(entry.scores) < entry.expected else ""
    spread = "" if entry.std is None else f" ± {entry.std:.2f}"
    return f"{entry.mean:.2f}{spread}{missing}"


def legend(table: Table) -> str:
    """Return the note under a table: seeds, folds, tests and the meaning of every mark."""
    entries = [entry for entry in table.entries.values() if entry.scores]
    if not entries:
        shared = table.layout.jointly and "No seed is finished on all data sets, which a joint selection needs."
        return shared or "No cell is finished yet."
    seeds = " or ".join(map(str, sorted({entry.expected for entry in entries})))
    folds = " or ".join(map(str, sorted({score.folds for entry in entries for score in entry.scores})))
    how = f"folds: {folds}", "corrected t-test of repeated cross-validation"
    one = "the split by group" if table.metrics == ["mrr"] else "the benchmark's split"
    splits, test = (one, "paired t-test over seeds") if folds == "1" else how
    marks = ["Bold: better than the best row without training, p < 0.05."]
    marks += ["†: best trained mean on a data set."] * (len(table.rows) > 1)
    marks += ["‡: better than the baseline, p < 0.05."] * (table.layout.baseline is not None)
    if table.layout.select:
        each = "one value for all data sets" if table.layout.jointly else "on each data set"
        marks.append(f"{', '.join(table.layout.select)}: selected by the inner folds of each test fold, {each}.")
    holm = "adjusted (Holm) for all gains of one kind in a table"
    return f"Seeds: {seeds}; {splits}. {' '.join(marks)} p: two-sided {test}, {holm}."
