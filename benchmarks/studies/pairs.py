"""Run the commands of a page on pairs of graphs: python benchmarks/studies/pairs.py circuits GRAPHS

GRAPHS is the folder that `python_graphs.py`, `circuits.py` or `binary_graphs.py` has written. The rows of a table are
runs of one command on docs/studies/NAME.md with other options (finished seeds are kept), with the bag that is trained
likewise, and the other rows of its first run. The scores go to benchmarks/results/studies; tables are written from
there.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from kept import STUDIES, Kept
from study import DOCS, markdown, write_tables

from graphcl.evaluate import FoldScores, holm, paired_test
from graphcl.references.rows import row_labels, scores_of
from graphcl.run import main as run
from graphcl.sweep.write import gain_text
from graphcl.system.files import read_json

FIGURES = ("mrr_low", "mrr_high", "recall_at_1", "recall_at_10", "mrr_all", "recall_at_1_all")


class Rows(NamedTuple):
    """A table: the number of its command on the page, and label of a run -> options that differ from the command."""

    command: int
    runs: Mapping[str, str]


TABLES = {
    "circuits": {
        "design": Rows(0, {"GIN, trained": ""}),
        "flow": Rows(0, {"GIN, trained": "--targets mixed.pt"}),
    },
    "python_functions": {
        "releases": Rows(
            0,
            {
                "GIN, plain batches": "",
                "GIN, batches of one package": "--batch-by project",
                "GIN, and hard negatives": "--batch-by project --hard-negatives 1",
            },
        ),
        "bytecode": Rows(1, {"GIN, 30 epochs": "", "GIN, 10 epochs": "--epochs 10"}),
    },
    "binary_functions": {
        "two encoders": Rows(
            0,
            {
                "GIN, plain batches": "",
                "GIN, half of a batch of one project": "--batch-by project --batch-share 0.5",
                "GIN, hard negatives": "--batch-by project --batch-share 0.5 --hard-negatives 2 --mine-every 2",
            },
        ),
    },
}
"""Page -> mark of a table -> its rows."""


def options_of(text: str) -> dict[str, list[str]]:
    """Return option -> values of the words of a command line."""
    options: dict[str, list[str]] = {}
    for word in shlex.split(text):
        if word.startswith("--"):
            options[word] = []
        else:
            [*options.values()][-1].append(word)
    return options


def words_of(command: str, changes: str, graphs: Path) -> list[str]:
    """Return the words of a command with other options, on files in the folder `graphs`."""
    words = []
    for name, values in {**options_of(command), **options_of(changes)}.items():
        words += [name, *(str(graphs / value) if value.endswith((".pt", ".csv")) else value for value in values)]
    return words


def keep(kept: Kept, name: str, mark: str, results: Mapping[str, Mapping]) -> None:
    """Put the scores of the runs of a table among the kept ones: `results` is label -> content of `result.json`.

    Rows that do not depend on the options of a run are those of the first run.
    """
    labels, rows = row_labels(), {}
    for label, result in results.items():
        own = {"trained": label, "bag_trained": label.replace("GIN", "bag")}
        for row, scores in scores_of(result)["retrieval"].items():
            if row in own or label == next(iter(results)):
                rows[own.get(row, labels[row])] = [(score, result) for score in scores]
    kept.add(name, mark, rows, figures=FIGURES)


def table(kept: Kept, name: str, mark: str, runs: Sequence[str]) -> str:
    """Return a table from the kept scores, best row last; differences are to the first run."""
    rows = {each["row"]: kept.scores(name, mark, each["row"]) for each in kept.lines[name][mark]}
    base = next(iter(runs))
    tests = {row: paired_test(scores, rows[base]) for row, scores in rows.items() if row != base}
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    figures = [each for each in FIGURES if each in kept.lines[name][mark][0]]
    lines = []
    for row, scores in sorted(rows.items(), key=lambda item: mean(item[1]).mean()):
        values = {each: kept.metric(name, mark, row, each) for each in figures}
        cells = [text(mean(scores)), f"{values['mrr_low'].mean():.1f} to {values['mrr_high'].mean():.1f}"]
        cells += [text(values[each]) for each in figures if each not in ("mrr_low", "mrr_high")]
        lines.append([row, *cells, gain_text(tests[row].mean, adjusted[row]) if row in tests else ""])
    heads = {"recall_at_1": "recall@1", "recall_at_10": "recall@10", "mrr_all": "MRR, all"}
    heads["recall_at_1_all"] = "recall@1, all"
    shown = [heads[each] for each in figures if each in heads]
    return markdown(["row", "MRR", "95 % over queries", *shown, f"MRR - {base} (p)"], lines)


def mean(scores: Sequence[FoldScores]) -> np.ndarray:
    """Return the score of each seed."""
    return np.array([score.mean for score in scores])


def text(values: np.ndarray) -> str:
    """Return mean ± sample deviation over seeds; only the mean if all seeds have the same value."""
    return f"{values.mean():.1f}" + (f" ± {values.std(ddof=1):.1f}" if np.ptp(values) > 0 else "")


def tables(kept: Kept, name: str) -> dict[str, str]:
    """Return the tables of a page that have kept scores, by the name of their marks."""
    return {
        mark: table(kept, name, mark, [*rows.runs])
        for mark, rows in TABLES[name].items()
        if mark in kept.lines.get(name, {})
    }


def main() -> None:
    """Run the commands of a page; keep the scores; write the tables."""
    parser = argparse.ArgumentParser(prog="python benchmarks/studies/pairs.py")
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("graphs", type=Path, nargs="?", help="folder of the graphs; default: run nothing")
    parser.add_argument("--tables", nargs="+", help="only these tables; default: all of the page")
    parser.add_argument("--out", default="sweeps", type=Path, help="folder of the runs; finished seeds are kept")
    given = parser.parse_args()
    kept, page = Kept(STUDIES), DOCS / f"{given.name}.md"
    commands = re.findall(r"^graphcl run (.*)$", page.read_text(), re.MULTILINE)
    for mark, rows in TABLES[given.name].items():
        if given.graphs is None or mark not in (given.tables or TABLES[given.name]):
            continue
        results = {}
        for number, (label, changes) in enumerate(rows.runs.items()):
            folder = given.out / f"{given.name}-{mark.replace(' ', '_')}-{number}"
            changes = f"{changes} --seeds 0 1 2 --threads 1 --resume {shlex.quote(str(folder))}"
            if code := run(words_of(commands[rows.command], changes, given.graphs.resolve())):
                sys.exit(code)
            results[label] = read_json(folder / "result.json")
        keep(kept, given.name, mark, results)
    write_tables(page, **tables(kept, given.name))


if __name__ == "__main__":
    main()
