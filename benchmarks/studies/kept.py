"""The published fold scores, one file a data set: benchmarks/results/accuracy/SET.jsonl. Tables are written from them.

A line has the recipe, the row (`trained`, or one without training), the seed, the test accuracy of each fold, and the
commit and version of PyTorch that measured it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from study import finished_lines, means, plus_minus

from graphcl.evaluate import FoldScores
from graphcl.system.files import write_text

FOLDER = Path(__file__).parents[1] / "results" / "accuracy"
STUDIES = FOLDER.with_name("studies")
"""One file a study: a line's recipe is the setting that varies, and its row the value.

Lines of `kept_lines` have labels of their own instead, such as the task and the head of an encoder of molecules.
"""


def kept_lines(name: str, measured: Path | None) -> list[dict]:
    """Return the kept lines of a study, after putting those of the file `measured`, if given, in their place."""
    kept = STUDIES / f"{name}.jsonl"
    if measured is not None:
        write_text(kept, measured.read_text())
    return finished_lines(kept)


class Kept:
    """The lines of a folder, by data set and recipe."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self.lines: dict[str, dict[str, list[dict]]] = {}
        for file in sorted(folder.glob("*.jsonl")):
            for line in finished_lines(file):
                if "recipe" not in line:
                    break
                self.lines.setdefault(file.stem, {}).setdefault(line["recipe"], []).append(line)

    def add(
        self,
        dataset: str,
        recipe: str,
        rows: Mapping[str, Sequence[tuple[FoldScores, Mapping]]],
        metrics: Sequence[str] = (),
        figures: Sequence[str] = (),
    ) -> None:
        """Put the rows of a recipe in place of its lines and write the file.

        Each score comes with the record of its run, which has the commit, the versions and `metrics` of the last epoch.
        `figures` are those of the scores that are kept too, where they exist.
        """
        kept = self.lines.setdefault(dataset, {})
        kept[recipe] = []
        for row, scores in rows.items():
            for score, record in scores:
                origin = {"commit": record["commit"], "torch": record["versions"]["torch"]}
                origin |= {name: round(record["metrics"][name], 6) for name in metrics}
                origin |= {name: round(score.figures[name], 4) for name in figures if name in score.figures}
                folds = [round(each, 4) for each in score.accuracy]
                kept[recipe].append({"recipe": recipe, "row": row, "seed": score.seed, **origin, "folds": folds})
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for name in sorted(kept) for line in kept[name])
        write_text(self.folder / f"{dataset}.jsonl", text)

    def scores(self, dataset: str, recipe: str, row: str = "trained") -> list[FoldScores]:
        """Return the scores of a row, one a seed."""
        found = [each for each in self.lines.get(dataset, {}).get(recipe, []) if each["row"] == row]
        return [FoldScores(each["seed"], tuple(each["folds"]), (), (), len(each["folds"]), 0) for each in found]

    def metric(self, dataset: str, recipe: str, row: str, name: str) -> np.ndarray:
        """Return a metric of a row, for each seed."""
        return np.array([each[name] for each in self.lines[dataset][recipe] if each["row"] == row])

    def references(self, dataset: str, recipe: str) -> dict[str, list[FoldScores]]:
        """Return the rows without training of a recipe's encoder."""
        rows = dict.fromkeys(each["row"] for each in self.lines.get(dataset, {}).get(recipe, []))
        return {row: scores for row in rows if row != "trained" and (scores := self.scores(dataset, recipe, row))}

    def text(self, dataset: str, recipe: str, row: str = "trained") -> str:
        """Return mean ± deviation over seeds."""
        return plus_minus(means(self.scores(dataset, recipe, row)))
