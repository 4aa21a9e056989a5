"""Measure GraphCL's semi-supervised rows: python benchmarks/studies/semi_supervised.py --mirror ../shared/tu

Runs `graphcl transfer --config graphcl_semi` on two sets (finished seeds are kept), puts the fold scores into
benchmarks/results/studies, and writes the tables of docs/studies/founding.md from there. `--finished` runs nothing.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from founding import Scores
from kept import STUDIES, Kept
from study import markdown, means, options, without_count, write_tables

from graphcl.commands.transfer import main as transfer
from graphcl.config.recipes import shipped_configs
from graphcl.evaluate import holm, paired_test
from graphcl.references.rows import scores_of
from graphcl.sweep.write import gain_text
from graphcl.system.files import read_json

NAME = "semi_supervised"
SEEDS = {"PROTEINS": 5, "NCI1": 3}
"""Data set -> number of seeds, fixed before the run; NCI1 takes four times as long."""
RATES = (0.01, 0.1)
ROWS = {
    ("finetune", "trained"): "pretrained, fine-tuned",
    ("finetune", "untrained"): "from scratch",
    ("linear", "trained"): "pretrained, frozen, linear layer",
    ("linear", "untrained"): "untrained, frozen, linear layer",
}
"""Mode and start of a transfer -> row, as `graphcl transfer` names it."""
COLUMNS = [f"{name}, {100 * rate:g} %" for name in SEEDS for rate in RATES]


def measured(folder: Path) -> dict[str, dict[str, Scores]]:
    """Return the scores in the folder of a command: column -> row -> one score a seed."""
    columns: dict[str, dict[str, Scores]] = {}
    for file in sorted(folder.glob("*/result.json")):
        result = read_json(file)
        settings = result["config"]
        if "mode" not in settings:  # the run that trains the encoders
            continue
        rows = columns.setdefault(f"{settings['dataset']}, {100 * settings['label_rate']:g} %", {})
        for start, scores in scores_of(result)["finetune"].items():
            rows[ROWS[settings["mode"], start]] = [(score, result) for score in scores]
    return columns


def published() -> Iterator[tuple[str, str]]:
    """Yield each column and accuracy that the header of the configuration has."""
    text = shipped_configs("transfer")["graphcl_semi"].read_text().replace("\n# ", " ")
    for part in re.search(r"Published accuracies: (.*?)\.\n", text)[1].split("; "):
        name, _, values = part.partition(" ")
        for value, rate in re.findall(r"([\d.]+ ± [\d.]+) \((\d+) %\)", values):
            yield f"{name}, {rate} %", value


def tables(kept: Kept) -> dict[str, str]:
    """Return the tables of the page, by the name of their marks: accuracies, and gains of pretraining."""
    columns = [column for column in COLUMNS if column in kept.lines.get(NAME, {})]
    lines = [
        [row, *(without_count(means(kept.scores(NAME, column, row))) for column in columns)] for row in ROWS.values()
    ]
    values = dict(published())
    lines.insert(1, ["&nbsp; published", *(values.get(column, "-") for column in columns)])
    tuned, scratch, linear, untrained = ROWS.values()
    pairs = {f"{after} over {before}": (after, before) for after, before in ((tuned, scratch), (linear, untrained))}
    tests = {
        (label, column): paired_test(*(kept.scores(NAME, column, row) for row in pair))
        for label, pair in pairs.items()
        for column in columns
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    texts = {place: gain_text(test.mean, adjusted[place]) for place, test in tests.items()}
    gains = [[label, *(texts[label, column] for column in columns)] for label in pairs]
    return {"semi": markdown(["row", *columns], lines), "semi gains": markdown(["gain", *columns], gains)}


def main() -> None:
    """Run the command on each set; keep the scores; write the tables."""
    parser, kept = options(NAME), Kept(STUDIES)
    parser.add_argument("--out", default="sweeps", type=Path, help="folder of the transfers; finished seeds are kept")
    given = parser.parse_args()
    for dataset, seeds in {} if given.finished else SEEDS.items():
        folder = given.out / f"{NAME}-{dataset}"
        place = ["--data-root", given.data_root, "--out", str(folder), "--threads", "1"]
        place += [] if given.mirror is None else ["--mirror", given.mirror]
        seed_words = ["--seeds", *map(str, range(seeds))]
        if code := transfer(["--config", "graphcl_semi", "--dataset", dataset, *seed_words, *place]):
            sys.exit(code)
        for column, rows in measured(folder).items():
            kept.add(NAME, column, rows)
    write_tables(given.docs / "founding.md", **tables(kept))


if __name__ == "__main__":
    main()
