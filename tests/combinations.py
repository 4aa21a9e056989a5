"""Small data of every kind, and the outcome of a command on them, for tests of combinations of features."""

import csv
import shutil
import traceback

import numpy as np
import torch

from graphcl.commands import command as find_command
from graphcl.registry import evaluators, losses, methods
from tests.conftest import small_graphs

N = 16
_SMILES = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "CCCC", "CCCl", "c1ccncc1", "CO"]


def _save(folder, name, change=lambda k, graph: None, **options):
    graphs = small_graphs(N, **options)
    for k, graph in enumerate(graphs):
        change(k, graph)
    torch.save(graphs, folder / f"{name}.pt")


def write_data(folder):
    """Write the files of all kinds of data, and return kind -> arguments of `graphcl run`."""

    def group(k, graph):
        graph.group, graph.project = k // 2, f"p{k // 2 % 4}"

    def query(k, graph):
        graph.id, graph.project = f"q{k}", f"p{k // 2 % 4}"

    def target(k, graph):
        graph.id, graph.project = f"t{k}", f"p{k // 2 % 4}"
        graph.x = torch.cat([graph.x, graph.x[:, :2]], 1)

    _save(folder, "classes")
    _save(folder, "bare", labelled=False)
    _save(folder, "edges", edge_attr=True)
    _save(folder, "groups", group, labelled=False)
    _save(folder, "both", group)
    _save(folder, "queries", query)
    _save(folder, "targets", target, labelled=False)
    listed = [[f"q{k}", f"q{k + 1}", f"q{(k + 4) % N}", 1 + k % 3] for k in range(0, N, 2)]
    across = [[f"q{k}", f"t{k}"] for k in range(N)]
    header = ["query", "target", "negative", "weight"]
    for name, rows in ("pairs", listed), ("across", across):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header[: len(rows[0])], *rows])
    with (folder / "molecules.csv").open("w", newline="") as file:
        rows = [[s + "C" * (k // 8), k % 2, k * 0.37, k // 2] for k, s in enumerate(_SMILES * 4)]
        csv.writer(file).writerows([["smiles", "active", "logp", "batch"], *rows])

    def of(name, *more):
        return ["--dataset", str(folder / name), *more]

    pairs, across = (["--positives", str(folder / f"{name}.csv")] for name in ("pairs", "across"))
    targets = ["--targets", str(folder / "targets.pt"), *across]
    split = ["--split", "random"]
    return {
        "classes": of("classes.pt"),
        "bare": of("bare.pt"),
        "edges": of("edges.pt"),
        "groups": of("groups.pt", "--positives", "group"),
        "groups and classes": of("both.pt", "--positives", "group"),
        "groups unused": of("groups.pt"),
        "pairs": of("queries.pt", *pairs),
        "two towers": of("queries.pt", *targets, "--towers", "separate"),
        "nodes": ["--dataset", "sbm-400", "--method", "grace"],
        "molecules": of("molecules.csv"),
        "molecules, classes": of("molecules.csv", "--target", "active"),
        "molecules, split": of("molecules.csv", "--target", "active", *split),
        "molecules, numbers": of("molecules.csv", "--target", "logp", *split),
        "molecules, groups": of("molecules.csv", "--group", "batch", "--positives", "group"),
    }


SMALL = ["--seeds=0", "--batch-size=8", "--report=false"]
"""Arguments of a fast run."""
FOLDS = ["--evaluation.folds=2", "--evaluation.inner-folds=2"]
"""Arguments of a fast evaluation on folds."""


def outcome(command, arguments, out, capsys):
    """Run a command in this process and return what is wrong with its outcome, "" if nothing, and its messages.

    It must write `out` with finite embeddings, or print why not in a line and write nothing.
    """
    if out.is_dir():
        shutil.rmtree(out)
    main = find_command(command).main
    try:
        code = main([*map(str, arguments), "--out", str(out)])
    except Exception:
        return f"a traceback: {traceback.format_exc(limit=-3)}", []
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    if code == 2:
        problems = [line for line in lines if not line.startswith("graphcl: warning: ")]
        if not problems or not all(line.startswith("graphcl: ") for line in problems):
            return f"no message of graphcl: {lines}", lines
        return "" if not out.exists() else f"{out.name} is left behind after {problems}", lines
    if code != 0 or not out.exists():
        return f"exit code {code}, {out.name} {'' if out.exists() else 'not '}written: {lines}", lines
    if len(set(lines)) < len(lines):
        return f"a message twice: {lines}", lines
    rows = out / "embeddings.npz"
    if rows.exists() and not np.isfinite(np.load(rows)["h"]).all():
        return "embeddings with NaN", lines
    return "", lines


OPTIONS = {
    "encoder": ("gin", "gine", "gat", "deep_sets", "molecule_gine", "node_gcn", "wl_sparse"),
    "method": tuple(methods),
    "loss": tuple(losses),
    "eval": (*evaluators, "none", "svm,instance"),
    "views.first": ("identity", "node_drop", "attribute_mask", "subgraph", "random3"),
    "projector": ("none", "linear", "residual"),
    "towers": ("separate",),
    "target-encoder": ("deep_sets", "gat"),
    "singles": ("views",),
    "batch-by": ("project",),
    "batch-share": (0.5,),
    "hard-negatives": (2,),
    "mine-every": (2,),
    "pair-share": (0.7,),
    "micro-batch": (4,),
    "shuffle-window": (16,),
    "neighbours": (3,),
    "schedule": ("cosine",),
    "warmup": (0.5,),
    "patience": (1,),
    "steps": (3,),
    "clip-norm": (1,),
    "non-finite": ("skip",),
    "score-every": (1,),
    "features": ("degree", "constant"),
    "max-degree": (5,),
    "optimizer": ("sgd",),
    "loss.temperature": ("learn", 0.3),
    "tu-features": ("both",),
    "evaluation.within": ("project",),
    "evaluation.scale": ("true",),
    "evaluation.sample": (10,),
    **dict.fromkeys(
        ("keep-projector", "precise-bn", "sync-batchnorm", "frozen-bn", "standardise-columns", "amp", "diagnostics",
         "deterministic"),
        ("true",),
    ),
}  # fmt: skip
"""Option of `graphcl run` -> the values that combinations are drawn from."""


def draw(rng, data):
    """Return a kind of data and options, each with probability 0.3, most of which fit no such data."""
    kind = rng.choice(list(data))
    options = {option: rng.choice(values) for option, values in OPTIONS.items() if rng.random() < 0.3}
    return kind, options | {"evaluation.folds": 2, "evaluation.inner-folds": 2}


def without_refused(options, lines, rng):
    """Return the options without one that the message names; without any one if it names none."""
    text = " ".join(lines).replace("_", "-")
    named = [option for option, value in options.items() if option in text or str(value).replace("_", "-") in text]
    refused = rng.choice(named or list(options))
    return {option: value for option, value in options.items() if option != refused}
