"""Check the verdicts of `graphcl diagnose` on six planted sets: python benchmarks/diagnose.py --seeds 20

The labels of a set follow from the features of the nodes, the edges, both, the number of nodes, copies of graphs, or
nothing. Prints, for each set, how many seeds get the right verdict, and the intervals of each seed on one line as JSON.
`--table runs/*-diagnosis-1` prints a table of finished diagnoses instead.
"""

import argparse
import json
import random
import sys
import time
import warnings
from pathlib import Path

import torch
from torch_geometric.data import Data

from graphcl import load_dataset, make_config
from graphcl.evaluate import FoldScores
from graphcl.extensions.diagnosis.answers import AS_IS, Interval, Scored, mean, untrained_best
from graphcl.extensions.diagnosis.answers import verdict as verdict_of
from graphcl.extensions.diagnosis.run import diagnose

KINDS = ("features", "edges", "both", "size", "leak", "nothing")
DECIDE = ("no edges", "constant features", "sizes only")
"""The controls that the verdict needs."""
ROWS = ("majority", "statistics", "wl_oa")
NOISE = 0.08
"""Fraction of the labels that are drawn at random, of features, edges and both."""


def planted(kind, seed=0, num_graphs=200):
    """Return graphs of 10 to 18 nodes whose labels `y` follow from `kind`.

    A graph has two hidden bits. One decides how often its nodes are of the first of three kinds, the other whether its
    edges are a ring or a tree with hubs, both with as many random chords. The label is one of the bits or, of `both`,
    their pair; else the bits are random. Of `size`, the label decides the number of nodes; of `leak`, three of five
    graphs are isomorphic to two others, which have the same random label.
    """
    rng = random.Random(f"{kind} {seed}")
    graphs = []
    for number in range(num_graphs):
        one, two = number % 2, number // 2 % 2
        y = {"features": one, "edges": two, "both": 2 * one + two}.get(kind, rng.randrange(2))
        if kind in ("features", "edges", "both") and rng.random() < NOISE:
            y = rng.randrange(4 if kind == "both" else 2)
        low, high = (10 + 4 * y, 14 + 4 * y) if kind == "size" else (10, 18)
        graphs.append(_graph(rng.randint(low, high), one, two, y, rng))
    if kind == "leak":
        for number in range(num_graphs * 3 // 5, num_graphs):
            graphs[number] = _copy(graphs[number % (num_graphs // 5)], rng)
    return graphs


def _graph(n, often, hubs, y, rng):
    edges = {(node, (node + 1) % n) for node in range(n)}
    if hubs:
        edges = {(min(rng.sample(range(node), min(2, node))), node) for node in range(1, n)} | {(n - 2, n - 1)}
    edges |= {tuple(rng.sample(range(n), 2)) for _ in range(n // 4)}
    kinds = [0 if rng.random() < (0.6 if often else 0.15) else rng.randint(1, 2) for _ in range(n)]
    pairs = sorted({pair for a, b in edges for pair in ((a, b), (b, a))})
    return Data(x=torch.eye(3)[kinds], edge_index=torch.tensor(pairs).T.contiguous(), y=torch.tensor([y]))


def _copy(graph, rng):
    order = list(range(graph.num_nodes))
    rng.shuffle(order)
    place = torch.tensor(order)
    x = torch.empty_like(graph.x).index_copy_(0, place, graph.x)
    return Data(x=x, edge_index=place[graph.edge_index], y=graph.y.clone())


def verdict(kind, seed, num_graphs=200, seeds=(0, 1, 2)):
    """Return the answers on a planted set."""
    config = make_config({"seeds": [*seeds], "evaluation": {"inner_folds": 3}, "epochs": 0})
    dataset = load_dataset(planted(kind, seed, num_graphs))
    return diagnose(config, dataset, ROWS, DECIDE).answers


def table(folders):
    """Return the table of several diagnoses in Markdown, from `diagnosis.json` in each folder."""
    names = {"sizes only": "sizes", "no edges": "no edges", "constant features": "no features", AS_IS: "as they are"}
    head = ["data set", "graphs", "majority", *names.values(), "trained", "gain of edges", "of features", "of training"]
    lines = [[*head, "copies in training", "without them", "verdict"]]
    for folder in folders:
        kept = json.loads((folder / "diagnosis.json").read_text())
        rows = {
            name: {row: [Scored(FoldScores.of(each)) for each in seeds] for row, seeds in by_row.items()}
            for name, by_row in kept["table"].items()
        }
        best = [f"{mean(untrained_best(rows[name])):.1f}" if name in rows else "-" for name in names]
        gains = {name: Interval(**each) for name, each in kept["gains"].items()}
        size = kept["graphs"] if kept["graphs"] == kept["of"] else f"{kept['graphs']} of {kept['of']}"
        line = [kept["dataset"], size, f"{kept['scores']['none']:.1f}", *best, f"{mean(rows[AS_IS]['trained']):.1f}"]
        line += [str(gains.get(name, "-")) for name in ("edges", "features", "training")]
        without = kept["scores"].get("best_without_copies")
        line += [f"{100 * kept['copies']['in_training']:.1f} %", "-" if without is None else f"{without:.1f}"]
        lines.append([*map(str, line), verdict_of(gains)])
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main():
    """Print the verdicts of all sets and seeds, or a table of diagnoses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--table", nargs="+", type=Path, help="folders of graphcl diagnose, to print as one table")
    given = parser.parse_args()
    if given.table:
        print(table(given.table))
        return
    warnings.simplefilter("ignore")
    right = dict.fromkeys(given.kinds, 0)
    for seed in range(given.first, given.first + given.seeds):
        for kind in given.kinds:
            start = time.process_time()
            found = verdict(kind, seed, given.graphs)
            right[kind] += found.kind == kind
            gains = {name: [round(each.low, 1), round(each.high, 1)] for name, each in found.gains.items()}
            line = {"set": kind, "seed": seed, "verdict": found.kind, "best": round(found.scores["best"], 1), **gains}
            print(json.dumps({**line, "seconds": round(time.process_time() - start, 1)}), flush=True)
    for kind, count in right.items():
        print(f"{kind}: {count} of {given.seeds}", file=sys.stderr)


if __name__ == "__main__":
    main()
