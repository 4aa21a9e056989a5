"""Fine-tune pretrained encoders on few labels: python benchmarks/studies/few_labels.py --mirror ../shared/tu

The semi-supervised protocol of You et al. (2020), section 5: pretrain on all graphs without labels (recipe `graphcl`),
then fine-tune on a fraction of the labels of the training folds. From scratch: the same architecture, output layer,
order and dropout, from untrained weights. Ten folds; the epoch is chosen on the next fold, not on the test fold.
"""

import json
from pathlib import Path

from study import markdown, means, options, plus_minus, write_tables

from graphcl.commands.transfer import Transfer, transfer
from graphcl.evaluate import FoldScores, holm, paired_gain, paired_test
from graphcl.run import run
from graphcl.sweep.texts import gain_text

SETS = ["MUTAG", "PROTEINS", "IMDB-BINARY", "IMDB-MULTI", "NCI1", "DD"]
RATES = [0.01, 0.1]


def scores(name, rate, given):
    """Return the fold scores from scratch and from the pretrained encoder, one a seed; empty if not finished."""
    path = given.out / f"{name}-{rate}" / "result.json"
    if not path.exists():
        return [], []
    per_seed = json.loads(path.read_text())["scores"]["finetune"]["per_seed"]
    return tuple([FoldScores.of(each[row]) for each in per_seed] for row in ("untrained", "trained"))


def measure(name, given):
    """Pretrain one encoder per seed, and fine-tune each at every rate; keep what is finished."""
    data = {"dataset": name, "data_root": given.data_root, "mirror": given.mirror}
    folder, seeds = given.out / name, list(range(given.seeds))
    if not (folder / "result.json").exists():
        run("graphcl", **data, seeds=seeds, eval=["knn"], report=False, out=str(folder))
    for rate in given.rates:
        out = given.out / f"{name}-{rate}"
        if not out.exists():
            settings = {"mode": "finetune", "seeds": seeds, "label_rate": rate, "out": str(out)}
            transfer(Transfer(encoder=str(folder), **data, **settings))


def table(given):
    """Return the accuracies of all finished sets and rates, and the gains of pretraining, in Markdown."""
    found = {(name, rate): scores(name, rate, given) for name in given.sets for rate in given.rates}
    found = {key: rows for key, rows in found.items() if rows[0]}
    adjusted = holm([paired_test(after, before).p for before, after in found.values()])
    rows = []
    for ((name, rate), (before, after)), p in zip(found.items(), adjusted, strict=True):
        gain = gain_text(paired_gain(after, before).mean, p)
        rows.append([name, f"{100 * rate:g} %", *(plus_minus(means(each)) for each in (before, after)), gain])
    return markdown(["data set", "labels", "from scratch", "pretrained", "gain (p)"], rows)


def main():
    """Measure what is missing and write the table of the page."""
    parser = options("few_labels")
    parser.add_argument("--out", default="sweeps/few_labels", type=Path, help="folder of runs; finished ones are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    given = parser.parse_args()
    if not given.finished:
        for name in given.sets:
            measure(name, given)
    write_tables(given.docs / "few_labels.md", few_labels=table(given))


if __name__ == "__main__":
    main()
