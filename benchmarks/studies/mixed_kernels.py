"""Measure what training adds to WL-OA: python benchmarks/studies/mixed_kernels.py --mirror ../shared/tu

A mixture is the mean of two normalised kernels: WL-OA (see `wl.py`) and the RBF kernel that the SVM evaluator computes
of an embedding. `graphcl.run` trains the encoder and scores each embedding alone; a finished run in OUT/runs is used.
Every finished row is a line of OUT/mixed_kernels.jsonl. Writes the tables of docs/studies/mixed_kernels.md.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import t, wilcoxon
from study import SETS, add_line, finished_lines, markdown, means, options, plus_minus, write_tables
from wl import colours, evaluate, kernels

from graphcl.config import make_config, read_config
from graphcl.datasets import load_dataset
from graphcl.evaluate import FoldScores, holm, paired_test
from graphcl.evaluate.folds import C_GRID, make_folds
from graphcl.evaluate.graphs.svm import kernel_accuracies, rbf_kernel, sorted_by_class, squared_distances
from graphcl.experiment.build import make_model
from graphcl.experiment.encoder_input import load_arguments
from graphcl.experiment.scores import EMBED_BATCH, reference_embeddings
from graphcl.loaders.loader import make_loader
from graphcl.run import run
from graphcl.sweep.texts import gain_text, p_text
from graphcl.system.files import read_json

FEW = {"folds": 5, "inner_folds": 3}
FOLDS = dict.fromkeys(("NCI1", "NCI109", "REDDIT-BINARY"), FEW)
"""Data set -> folds, where not 10 and 5: the sets of 2,000 graphs and more."""
EMBEDDINGS = ("statistics", "untrained", "calibrated", "trained")
KERNEL = "WL-OA"
MIXTURES = {row: f"{KERNEL} + {row}" for row in EMBEDDINGS}
ROWS = (*EMBEDDINGS, KERNEL, *MIXTURES.values())
TRAINED = ("trained", MIXTURES["trained"])
CHOICES = {
    "choice without trained rows": [row for row in ROWS if row not in TRAINED],
    "choice with trained rows": [*(row for row in ROWS if row not in TRAINED), *TRAINED],
}
GAINS = {
    "mixture, trained - untrained": (MIXTURES["trained"], MIXTURES["untrained"]),
    "mixture, trained - calibrated": (MIXTURES["trained"], MIXTURES["calibrated"]),
    "choice, with - without trained rows": tuple(reversed(CHOICES)),
}
"""Gain -> the two rows that it compares."""


def trained_run(name, seed, given):
    """Return the folder of the run of one seed; train it if it is not finished."""
    folder = given.out / "runs" / f"{name}-{seed}"
    if not (folder / "result.json").exists():
        data = {"dataset": name, "data_root": given.data_root, "mirror": given.mirror}
        run(**data, evaluation=FOLDS.get(name, {}), seeds=[seed], threads=1, report=False, out=str(folder))
    return folder


def embeddings(folder, seed):
    """Return the embeddings of a run by row: the trained one from its file, the others computed again."""
    config = make_config(read_config(folder / "config.yaml"))
    dataset = load_dataset(**load_arguments(config))
    model, loader = make_model(config, dataset, seed), make_loader(dataset, EMBED_BATCH)
    found = reference_embeddings(config, dataset, model, loader, seed, EMBEDDINGS)
    with np.load(folder / "embeddings.npz") as kept:
        return found | {"trained": kept["h"][0]}


def mixture(by_depth, depths, h, y, seed, folds=10, inner_folds=5):
    """Return the fold scores of the mixture with the embedding `h`; `depths` has the depth of each outer fold."""
    data = make_folds(h, y, seed, folds, inner_folds, workers=1)
    distances = squared_distances(data.h)

    def accuracies(part, candidates):
        part = sorted_by_class(part, data.labels)
        rows, train = np.concatenate(part), part[0]
        kernel = rbf_kernel(data.h, part, distances, np.empty(len(rows) * len(train)))
        kernel += by_depth[candidates[0][0]][np.ix_(rows, train)]
        return kernel_accuracies(kernel / 2, data.labels, part, [c for _, c in candidates])

    inner = [data.inner[start : start + data.inner_folds] for start in range(0, len(data.inner), data.inner_folds)]
    return FoldScores.joined(
        [
            replace(data, outer=[part], inner=parts).scores([(depth, c) for c in C_GRID], accuracies)
            for part, parts, depth in zip(data.outer, inner, depths, strict=True)
        ]
    )


def measure(name, given):
    """Add the missing lines of a data set, one for each seed and row."""
    by_depth = None
    for seed in range(given.seeds):
        found = scores(name, given.file).get(seed, {})
        if found.keys() >= {*ROWS}:
            continue
        folder = trained_run(name, seed, given)
        alone = read_json(folder / "result.json")["scores"]["svm"]["per_seed"][0]
        for row in [row for row in EMBEDDINGS if row not in found]:
            add_line(given.file, dataset=name, row=row, **alone[row])
        folds, dataset = FOLDS.get(name, {}), load_dataset(name, given.data_root, given.mirror)
        by_depth = by_depth or kernels(colours(dataset), "wl_oa")
        for row, h in ((KERNEL, None), *embeddings(folder, seed).items()):
            label, start = MIXTURES.get(row, row), time.process_time()
            if label not in found:
                if h is None:
                    found[row] = evaluate(by_depth, dataset.y, seed, **folds)
                else:
                    depths = [depth for depth, _ in found[KERNEL].chosen]
                    found[label] = mixture(by_depth, depths, h, dataset.y, seed, **folds)
                cost = time.process_time() - start
                add_line(given.file, dataset=name, row=label, seconds=cost, **vars(found[label]))
                print(f"{name}, seed {seed}, {label}: {cost:.0f} CPU s", file=sys.stderr, flush=True)


def scores(name, file):
    """Return the fold scores of a data set by seed and row, of finished lines."""
    found = {}
    for line in finished_lines(file):
        if line["dataset"] == name:
            found.setdefault(line["seed"], {})[line["row"]] = FoldScores.of(line)
    return found


def choice(rows, names):
    """Return the fold scores of choosing a row in each outer fold by its inner folds; of equal rows, the first.

    `chosen` has the number of the row in `names`.
    """
    inner = np.array([rows[name].inner for name in names])
    best = inner.argmax(0)
    pick = [(rows[names[row]].accuracy[fold], int(row), inner[row, fold]) for fold, row in enumerate(best)]
    accuracy, chosen, kept = zip(*pick, strict=True)
    return replace(rows[names[0]], accuracy=accuracy, chosen=chosen, inner=kept)


def by_row(name, file):
    """Return row -> fold scores of a data set, one for each seed that has all rows; the choices are rows too."""
    complete = [rows for _, rows in sorted(scores(name, file).items()) if rows.keys() >= {*ROWS}]
    complete = [rows | {label: choice(rows, names) for label, names in CHOICES.items()} for rows in complete]
    return {row: [rows[row] for rows in complete] for row in (*ROWS, *CHOICES)} if complete else {}


def accuracy_table(found):
    """Return mean ± deviation over seeds, and how often the choice takes a trained row, in Markdown."""
    lines = [[row, *(plus_minus(means(rows[row])) for rows in found.values())] for row in (*ROWS, *CHOICES)]
    last, names = list(CHOICES.items())[-1]
    chosen = [np.concatenate([each.chosen for each in rows[last]]) for rows in found.values()]
    ratios = [np.isin(each, [names.index(row) for row in TRAINED]).mean() for each in chosen]
    return markdown(["row", *found], [*lines, ["a trained row is chosen, folds", *(f"{each:.0%}" for each in ratios)]])


def gain_table(found):
    """Return the gains on each set, and their tests over the sets, in Markdown."""
    columns, over = [], []
    for after, before in GAINS.values():
        tests = [paired_test(rows[after], rows[before]) for rows in found.values()]
        gains = np.array([each.mean for each in tests])
        adjusted = holm([each.p for each in tests])
        half = t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
        columns.append([gain_text(mean, p) for mean, p in zip(gains, adjusted, strict=True)])
        columns[-1] += [f"{gains.mean():+.2f} [{gains.mean() - half:+.2f}, {gains.mean() + half:+.2f}]"]
        columns[-1] += [f"{(gains > 0).sum()} / {(gains < 0).sum()}"]
        over.append(float(wilcoxon(gains).pvalue))
    for column, p, adjusted in zip(columns, over, holm(over), strict=True):
        column.append(f"{p_text(p)} ({p_text(adjusted)})")
    labels = [*found, "**mean over the sets** [95 %]", "sets above / below 0", "Wilcoxon's p over the sets (Holm)"]
    return markdown(["set", *GAINS], [list(row) for row in zip(labels, *columns, strict=True)])


def main():
    """Measure what is missing and write the tables of the page."""
    parser = options("mixed_kernels")
    parser.add_argument("--out", default="sweeps/mixed_kernels", type=Path, help="folder of runs and lines; kept")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=SETS, help="data sets to measure")
    given = parser.parse_args()
    given.file = given.out / "mixed_kernels.jsonl"
    if not given.finished:
        for name in given.sets:
            measure(name, given)
    found = {name: rows for name in SETS if (rows := by_row(name, given.file))}
    write_tables(given.docs / "mixed_kernels.md", accuracy=accuracy_table(found), gains=gain_table(found))


if __name__ == "__main__":
    main()
