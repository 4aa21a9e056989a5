"""Write the tables of a sweep as Markdown, LaTeX and tidy CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.evaluate import FoldScores
from graphcl.sweep.latex import to_latex
from graphcl.sweep.markdown import to_markdown
from graphcl.sweep.plan import Plan
from graphcl.sweep.table import Table, scores_of
from graphcl.system.files import write_text


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
