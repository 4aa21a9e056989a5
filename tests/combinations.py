"""Small data of every kind, and the outcome of a command on them, for tests of combinations of features."""

import csv
import importlib
import shutil
import traceback

import numpy as np
import torch

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


SMALL = ["--seeds=0", "--batch-size=8", "--report=false", "--evaluation.folds=2", "--evaluation.inner-folds=2"]
"""Arguments of a fast run."""


def outcome(command, arguments, out, capsys):
    """Run a command in this process and return what is wrong with its outcome; "" if nothing.

    It must write `out` with finite embeddings, or print why not in a line and write nothing.
    """
    shutil.rmtree(out, ignore_errors=True)
    main = importlib.import_module(f"graphcl.commands.{command}").main
    try:
        code = main([*map(str, arguments), "--out", str(out)])
    except Exception:
        return f"a traceback: {traceback.format_exc(limit=-3)}"
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    if code == 2:
        problems = [line for line in lines if not line.startswith("graphcl: warning: ")]
        if not problems or not all(line.startswith("graphcl: ") for line in problems):
            return f"no message of graphcl: {lines}"
        return "" if not out.exists() else f"{out.name} is left behind after {problems}"
    if code != 0 or not out.exists():
        return f"exit code {code}, {out.name} {'' if out.exists() else 'not '}written: {lines}"
    if len(set(lines)) < len(lines):
        return f"a message twice: {lines}"
    rows = out / "embeddings.npz"
    if rows.exists() and not np.isfinite(np.load(rows)["h"]).all():
        return "embeddings with NaN"
    return ""
