"""Shared code of the studies: a sweep from the command line, scores by label, figures and tables of a page."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from graphcl.config.recipes import read_yaml, shipped_configs
from graphcl.errors import InputError
from graphcl.report.style import COLOURS as COLOURS  # for the studies
from graphcl.report.style import panels, style, to_svg
from graphcl.report.summary import environment
from graphcl.sweep import sweep
from graphcl.sweep.folder import extended, read_records, unfinished
from graphcl.sweep.run_cells import default_workers, progress
from graphcl.sweep.table import scores_of

DOCS = Path(__file__).parents[2] / "docs" / "studies"
SETS = (
    "MUTAG", "PTC_MR", "BZR", "PROTEINS", "DD", "NCI1", "NCI109", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY",
)  # fmt: skip
TEN_SEEDS = ("MUTAG", "PTC_MR", "BZR", "IMDB-BINARY")
"""Small sets, whose scores scatter most."""


def num_seeds(dataset: str) -> int:
    """Return the number of seeds of a published row: ten on small sets, five on the others."""
    return 10 if dataset in TEN_SEEDS else 5


def protocol(dataset: str) -> dict:
    """Return the folds of the SVM: the default 10 and 5; on NCI1, whose SVM costs ten times its training, 5 and 3."""
    return {"evaluation.folds": 5, "evaluation.inner_folds": 3} if dataset == "NCI1" else {}


def options(name: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all studies have."""
    parser = argparse.ArgumentParser(prog=f"python benchmarks/studies/{name}.py")
    parser.add_argument("--mirror", help="folder or URL holding NAME.zip, as for graphcl.run")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the figure and the page")
    parser.add_argument("--finished", action="store_true", help="run nothing: write the page from finished results")
    return parser


def folders(name: str) -> tuple[Path, Path]:
    """Parse the command line of a script that makes data sets: return the cache, and a folder to write them into."""
    parser = argparse.ArgumentParser(prog=f"python benchmarks/studies/{name}_graphs.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / f".cache/graphcl/{name}_functions")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    return given.cache, given.folder


def write_pairs(path: Path, pairs) -> None:
    """Write a table of pairs of ids."""
    path.write_text("query,target\n" + "".join(f"{query},{target}\n" for query, target in pairs))


class Study:
    """A study: parses the command line, runs sweeps in one folder each, and writes a page.

    Args:
        name: name of the study; its sweeps are in `OUT/NAME-...`.
        seeds: number of seeds.
    """

    def __init__(self, name: str, seeds: int = 5) -> None:
        parser = options(name)
        parser.add_argument("--out", default="sweeps", type=Path, help="folder of the sweeps; finished cells are kept")
        parser.add_argument("--workers", type=int)
        parser.add_argument("--seeds", type=int, default=seeds)
        parser.add_argument("--epochs", type=int, default=20, help="for sweeps without recipes, which give their own")
        parser.add_argument("--sets", nargs="+", help="only these data sets")
        parser.add_argument("--recipes", nargs="+", help="only these recipes, of a study that compares recipes")
        self.name, self.given = name, parser.parse_args()

    def sets(self, *names: str) -> list[str]:
        """Return the data sets of the study, or those of `--sets`."""
        return [name for name in names if self.given.sets is None or name in self.given.sets]

    def seeds(self, dataset: str, most: int | None = None) -> list[int]:
        """Return the seeds of a data set: `most`, by default those of a published row, or fewer with `--seeds`."""
        return list(range(min(self.given.seeds, most or num_seeds(dataset))))

    def run(self, part: str, axes: dict, **settings) -> Cells:
        """Run what is missing of a sweep of the study and return its cells."""
        if "recipe" not in axes:  # a recipe gives its own number of epochs
            settings = {"epochs": self.given.epochs, **settings}
        return self._run(self.given.out / f"{self.name}-{part}", {"axes": axes, "settings": settings})

    def shipped(self, name: str, **settings) -> Cells:
        """Run what is missing of the shipped sweep `name`, with other settings if given, and return its cells."""
        spec = read_yaml(shipped_configs("sweeps")[name])
        settings = {**spec["settings"], "seeds": list(range(self.given.seeds)), **settings}
        return self._run(self.given.out / name, {**spec, "settings": settings})

    def _run(self, folder: Path, spec: dict) -> Cells:
        given = self.given
        common = {"seeds": list(range(given.seeds)), "data_root": given.data_root, "mirror": given.mirror}
        spec = {**spec, "settings": {**common, **spec["settings"]}}
        try:
            plan = extended(folder, spec, whole=True)
            if given.finished:
                return Cells(plan, read_records(folder, plan))
            left = unfinished(plan, read_records(folder, plan))
            workers = given.workers or default_workers(len(left))
            outcome = sweep(plan, folder, workers, progress(left, len(plan.tasks), workers))
        except InputError as error:
            sys.exit(f"{self.name}: {error}")
        if outcome.failed:
            print("\n".join(f"failed: {cell}: {error}" for cell, error in outcome.failed.items()), file=sys.stderr)
        return Cells(plan, outcome.records)

    def keep(self, figure=None, page: Path | None = None, **tables: str) -> None:
        """Write the figure, and each table between the marks of its name on the study's page."""
        self.given.docs.mkdir(parents=True, exist_ok=True)
        if figure is not None:
            write_svg(figure, self.given.docs / f"{self.name}.svg")
        write_tables(page or self.given.docs / f"{self.name}.md", **tables)


class Cells:
    """The finished cells of a sweep."""

    def __init__(self, plan, records) -> None:
        self.plan, self.records = plan, records
        done = [(cell, self.records.get(cell.key, {})) for cell in plan.cells]
        self.done = [(cell, record) for cell, record in done if record.get("status") == "done"]

    def pick(self, **where: str):
        """Yield the cells and records at the given labels."""
        wanted = {axis.replace("__", "."): str(label) for axis, label in where.items()}
        for cell, record in self.done:
            if all(cell.coordinates[axis] == label for axis, label in wanted.items()):
                yield cell, record

    def scored(self, **where: str):
        """Return the fold scores at the given labels, by seed, each with the record of its run."""
        name = self.plan.evaluators[0]
        found = [(scores_of(record, name), record) for _, record in self.pick(**where)]
        return sorted(found, key=lambda each: each[0].seed)

    def scores(self, **where: str):
        """Return the fold scores at the given labels, by seed."""
        return [score for score, _ in self.scored(**where)]

    def accuracy(self, **where: str) -> np.ndarray:
        """Return the mean accuracy of each seed, in percent."""
        return means(self.scores(**where))

    def scored_untrained(self, **where: str):
        """Return `scored` of the untrained encoders of the cells at the given labels."""
        name = self.plan.evaluators[0]
        records = [self.records[key] for key in dict.fromkeys(cell.reference for cell, _ in self.pick(**where))]
        return sorted(((scores_of(each, name), each) for each in records), key=lambda each: each[0].seed)

    def untrained(self, **where: str):
        """Return the fold scores of the untrained encoders of the cells at the given labels, by seed."""
        return [score for score, _ in self.scored_untrained(**where)]


def write_svg(figure, path: Path) -> None:
    """Write a figure as a small SVG file: labels as text, rounded coordinates, a class for each repeated style."""
    svg = re.sub(r"<metadata>.*?</metadata>\n|<!--.*?-->\n", "", to_svg(figure), flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d\d)\d+", r"\1", tag[0]), svg)
    counts = Counter(re.findall(r' style="([^"]*)"', svg))
    names = {text: f"s{number}" for number, text in enumerate(counts) if counts[text] > 2}
    rules = "".join(f".{name} {{{text}}}\n" for text, name in names.items())
    for text, name in names.items():
        svg = svg.replace(f' style="{text}"', f' class="{name}"')
    path.write_text(re.sub(r"\n +", "\n", svg).replace("</style>", f"\n{rules}</style>", 1))


def write_tables(page: Path, **tables: str) -> None:
    """Write each table to a page, between the marks of its name; a new page has nothing else."""
    text = page.read_text() if page.exists() else "\n\n".join(f"<!-- {n} -->\n<!-- end -->" for n in tables) + "\n"
    for name, table in tables.items():
        mark = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(mark, lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", text, flags=re.DOTALL)
    page.write_text(text)


def finished_lines(file: Path) -> list[dict]:
    """Return the results in a file of JSON lines, or an empty list if the file does not exist."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add_line(file: Path, **result) -> None:
    """Append a result to a file of JSON lines, with the commit and the version of PyTorch that measured it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    where = environment(torch.device("cpu"))
    with file.open("a") as lines:
        lines.write(json.dumps({**result, "commit": where["commit"], "torch": where["versions"]["torch"]}) + "\n")


def means(scores) -> np.ndarray:
    """Return the mean accuracy of each score, in percent."""
    return np.array([each.mean for each in scores])


@style()
def figure(columns: int, rows: int = 1, width: float = 3.1, height: float = 2.7):
    """Return a figure and its grid of axes `[rows, columns]`, in the style of the package's figures."""
    picture, axes = panels(rows * columns, width, height, columns)
    return picture, np.reshape(axes, (rows, columns))


def curve(axis, xs, seeds, colour: str, label: str | None = None, **style) -> None:
    """Plot means with a band of one standard error, from an array of seeds for each x."""
    centres = np.array([each.mean() for each in seeds])
    errors = np.array([each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0 for each in seeds])
    axis.plot(xs, centres, color=colour, label=label, marker="o", markersize=3, linewidth=1.3, **style)
    axis.fill_between(xs, centres - errors, centres + errors, color=colour, alpha=0.15, linewidth=0)


def log_axis(axis, values, base: float = 10) -> None:
    """Scale the x axis logarithmically, with ticks at `values` only."""
    axis.set_xscale("log", base=base)
    axis.set_xticks(values, [str(each) for each in values])
    axis.set_xticks([], minor=True)


def plus_minus(values: np.ndarray) -> str:
    """Return mean ± sample deviation over seeds, with their number if it is not five; one seed has no deviation."""
    if len(values) < 2:
        return f"{values[0]:.2f} (1)" if len(values) else "-"
    few = f" ({len(values)})" if len(values) != 5 else ""
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}{few}"


def without_count(values: np.ndarray) -> str:
    """Return `plus_minus` without the number of seeds, for a page that gives it."""
    return plus_minus(values).split(" (")[0]


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
