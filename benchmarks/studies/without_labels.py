"""Choose a row without labels: python benchmarks/studies/without_labels.py --mirror ../shared/tu

Does the order of the rows (statistics, untrained, calibrated, trained) by the evaluator `instance`, or by the effective
rank, agree with their order by SVM accuracy? One default run for each of ten labelled sets and each seed, in
OUT/runs/SET-SEED; finished ones are reused. The scores of the copies are kept in OUT/without_labels.jsonl.

Five orders, fixed before any result was seen; the first and the fourth are what `graphcl run` prints:

- recall: recall at 1, copies by augmentations that training did not use, cosine of standardised columns
- recall_used: the same with copies by the four augmentations of training, `random4`
- recall_unscaled: recall, with cosines of the columns as they are
- rank: effective rank of the standardised columns
- rank_unscaled: effective rank of the columns as they are (RankMe, Garrido et al. 2023)

A sixth, `labels`, is a yardstick that was added later: the mean accuracy of the other seeds.
"""

import itertools
from pathlib import Path

import numpy as np
import torch
from scipy.stats import kendalltau
from study import SETS, add_line, finished_lines, markdown, options, write_tables

from graphcl.augment import random4
from graphcl.config import make_config, read_config
from graphcl.datasets import load_dataset
from graphcl.evaluate import FoldScores, instance, rank_queries
from graphcl.experiment.build import make_model
from graphcl.experiment.copies import WithCopies, copied_graphs, copying, score_copies, with_copies
from graphcl.experiment.encoder_input import load_arguments
from graphcl.experiment.scores import EMBED_BATCH, reference_embeddings
from graphcl.loaders.loader import make_loader
from graphcl.models.saved import load_encoder
from graphcl.run import run
from graphcl.system.files import read_json
from graphcl.training.diagnostics import effective_rank
from graphcl.training.loop import embed

ROWS = ("statistics", "untrained", "calibrated", "trained")
ORDERS = ("recall", "recall_used", "recall_unscaled", "rank", "rank_unscaled")
COMPARED = (*ORDERS, "labels")
CPU = torch.device("cpu")


def embeddings(config, dataset, folder, seed, whole):
    """Return row -> embeddings of the graphs and of the copies."""
    model = make_model(config, dataset, seed)
    found = reference_embeddings(config, dataset, model, whole, seed, ROWS)
    return {**found, "trained": embed(load_encoder(folder, seed)[0], whole)[0]}


def with_yardstick(seeds):
    """Add to each seed's rows the mean accuracy of the other seeds, as `labels`."""
    for rows in seeds:
        for row in ROWS:
            rows[row]["labels"] = np.mean([each[row]["accuracy"] for each in seeds if each is not rows])
    return seeds


def measure(config, folder, seed):
    """Return row -> accuracy and the five scores of a finished run."""
    config = config.model_copy(update={"eval": ["instance"]})
    dataset = load_dataset(**load_arguments(config))
    n, (drawn, queries) = len(dataset), copied_graphs(config, dataset, seed)
    graphs = make_loader(dataset, EMBED_BATCH)
    whole = with_copies(config, dataset, graphs, seed, CPU)
    rows = embeddings(config, dataset, folder, seed, whole)
    members = random4().members
    used = WithCopies(graphs, whole.queries, members, seed, CPU)
    group = torch.cat([torch.arange(n), queries.repeat(len(whole.drawn_by))])
    kept = np.load(folder / "embeddings.npz")["h"][0]
    assert np.allclose(rows["trained"][:n], kept, atol=1e-4 * np.abs(kept).max())
    # the class of the configuration decides what is used, so that its `score_copies` cannot score `used`
    all_used = embeddings(config, dataset, folder, seed, used)
    per_seed = read_json(folder / "result.json")["scores"]["svm"]["per_seed"][0]
    found = {}
    for row in ROWS:
        h, score = rows[row], score_copies(config, dataset, rows[row], seed)
        unscaled = rank_queries(h, group, torch.arange(n, len(h)), torch.arange(n))
        found[row] = {
            "accuracy": FoldScores.of(per_seed[row]).mean,
            "recall": score.mean,
            "recall_used": recall(all_used[row], n, queries.repeat(len(members))),
            "recall_unscaled": 100 * float(unscaled.values["recall_at_1"].mean()),
            "rank": score.figures["effective_rank"],
            "rank_unscaled": float(effective_rank(h[drawn])),
        }
    return found, list(copying(config, dataset)[0])


def recall(h, n, source):
    """Return the recall at 1 of the copies in `h`."""
    return instance(h[:n], h[n:], source).mean


def order_of(rows, name):
    """Return the values of the four rows by one score."""
    return [rows[row][name] for row in ROWS]


def tau(rows, name, among=ROWS):
    """Return Kendall's tau-b of the order by `name` with that by accuracy; 0 if one of them ties all rows."""
    found = kendalltau(*([rows[row][key] for row in among] for key in (name, "accuracy"))).statistic
    return 0.0 if np.isnan(found) else float(found)


def lost(rows, weights):
    """Return the accuracy points below the best row, of a choice with these probabilities."""
    accuracy = np.array(order_of(rows, "accuracy"))
    return float(accuracy.max() - weights @ accuracy)


def choices(rows):
    """Return rule -> probabilities with which it takes each row."""
    best = {name: np.array(order_of(rows, name)) for name in COMPARED}
    found = {name: (each == each.max()) / (each == each.max()).sum() for name, each in best.items()}
    return found | {f"always {row}": np.eye(4)[i] for i, row in enumerate(ROWS)} | {"at random": np.full(4, 0.25)}


def sign_flip(values):
    """Return the two-sided p-value of the exact sign-flip test that the mean over sets is 0."""
    means = [abs(np.mean(np.multiply(signs, values))) for signs in itertools.product((1, -1), repeat=len(values))]
    return float(np.mean(np.array(means) >= abs(np.mean(values)) - 1e-12))


def tables(lines):
    """Return the tables of the page, by name."""
    sets = {name: [each["rows"] for each in lines if each["dataset"] == name] for name in SETS}
    sets = {name: with_yardstick(each) for name, each in sets.items() if each}
    means = {
        name: {
            row: {key: np.mean([each[row][key] for each in seeds]) for key in ("accuracy", *COMPARED)} for row in ROWS
        }
        for name, seeds in sets.items()
    }
    by_set, hits = [], dict.fromkeys(choices(next(iter(means.values()))), 0)
    for name, rows in means.items():
        taus = [np.mean([tau(each, order) for each in sets[name]]) for order in ("recall", "rank")]
        cells = [f"{rows[row]['accuracy']:.1f} / {rows[row]['recall']:.1f} / {rows[row]['rank']:.0f}" for row in ROWS]
        by_set.append([name, len(sets[name]), *cells, *(f"{each:+.2f}" for each in taus)])
        accuracy = np.array(order_of(rows, "accuracy"))
        for rule, weights in choices(rows).items():
            hits[rule] += float(weights @ (accuracy == accuracy.max()))
    rules = []
    for rule, hit in hits.items():
        points = [np.mean([lost(each, choices(each)[rule]) for each in seeds]) for seeds in sets.values()]
        cells = ["-"] * 4
        if rule in COMPARED:
            of_all, of_encoders = (
                [np.mean([tau(each, rule, among) for each in seeds]) for seeds in sets.values()]
                for among in (ROWS, ROWS[1:])
            )
            cells = [
                text for each in (of_all, of_encoders) for text in (f"{np.mean(each):+.2f}", f"{sign_flip(each):.3f}")
            ]
        found = "-" if rule == "labels" else f"{hit:g} of {len(sets)}"  # the means over seeds would be its own
        rules.append([rule, *cells, found, f"{np.mean(points):.2f}", f"{np.max(points):.1f}"])
    head = ["data set", "seeds", *ROWS, "tau, recall", "tau, rank"]
    of_rules = [
        "row with the highest",
        "tau",
        "p",
        "tau, encoders only",
        "p",
        "best row found",
        "points lost",
        "at worst",
    ]
    return {"sets": markdown(head, by_set), "rules": markdown(of_rules, rules)}


def main():
    """Make the missing runs, score their copies, and write the tables of the page."""
    parser = options("without_labels")
    parser.add_argument("--out", default=Path("sweeps/without_labels"), type=Path, help="folder; runs are kept")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    file = given.out / "without_labels.jsonl"
    done = {(each["dataset"], each["seed"]) for each in finished_lines(file)}
    for seed, name in itertools.product(range(given.seeds), given.sets):
        folder = given.out / "runs" / f"{name}-{seed}"
        if given.finished or (name, seed) in done:
            continue
        data = {"dataset": name, "mirror": given.mirror, "data_root": given.data_root}
        if not (folder / "result.json").exists():
            run(**data, seeds=[seed], report=False, out=str(folder), resume=folder.exists())
        config = make_config({**read_config(str(folder / "config.yaml")), **data})
        rows, drawn_by = measure(config, folder, seed)
        add_line(file, dataset=name, seed=seed, drawn_by=drawn_by, rows=rows)
    write_tables(given.docs / "without_labels.md", **tables(finished_lines(file)))


if __name__ == "__main__":
    main()
