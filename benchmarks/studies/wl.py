"""WL kernels through the SVM protocol of the embeddings: python benchmarks/studies/wl.py --mirror ../shared/tu

- WL subtree kernel (Shervashidze et al. 2011): the inner product of colour histograms of all iterations up to a depth.
- WL optimal assignment kernel (Kriege et al. 2016): the intersection of the same histograms.

Both are normalised, K_ij / sqrt(K_ii K_jj). Node labels are the first colours; without labels all nodes start equal,
and depth 1 gives degrees. Folds and values of C are those of `graphcl.evaluate.svm`. Inner folds choose the pair
(depth, C); of equal pairs the first, with the smaller depth, then the smaller C.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from kept import Kept
from study import SETS, markdown, num_seeds, options, write_tables
from torch_geometric.data import Batch

from graphcl.datasets import load_dataset
from graphcl.evaluate import FoldScores, Kernel, svm
from graphcl.graphs.wl import histogram, numbered, unary
from graphcl.report.summary import environment
from graphcl.system.files import read_json, write_text

KERNELS = {"wl": "WL", "wl_oa": "WL-OA"}
DEPTH = 5


def colours(dataset):
    """Return the histograms of WL colours of all graphs, one sparse matrix `[graphs, colours]` for each depth."""
    batch = Batch.from_data_list(list(dataset))
    labels = batch.x.argmax(1).numpy()  # all 0 for the one column of a set without labels
    return [histogram(each, batch.batch.numpy()) for each in numbered(labels, batch.edge_index.numpy(), DEPTH)]


def kernels(histograms, kind):
    """Return the normalised kernel of each depth, in float32; `kind` is "wl" or "wl_oa".

    Sums are exact integers up to the normalisation, so graphs of equal colours have a kernel value of 1.
    """
    total, found = 0, []
    for counts in histograms:
        columns = unary(counts) if kind == "wl_oa" else counts
        total = total + (columns @ columns.T).toarray()
        own = total.diagonal().astype(float)
        found.append((total / np.sqrt(np.outer(own, own))).astype(np.float32))
    return found


def evaluate(by_depth, y, seed):
    """Return the fold scores of one seed; `chosen` holds depths."""
    tables = [torch.from_numpy(each) for each in by_depth]
    kernel = Kernel(lambda depth, train: lambda one, two: tables[depth][one][:, two], range(len(tables)), len(y))
    return svm(kernel, y, seed=seed, workers=1)


def run(name, given):
    """Write the missing files of a data set, one for each kernel and seed."""
    missing = {kind: [s for s, path in paths(name, kind, given) if not path.exists()] for kind in KERNELS}
    if not any(missing.values()):
        return
    dataset = load_dataset(name, given.data_root, given.mirror)
    start = time.process_time()
    histograms = colours(dataset)
    shared = time.process_time() - start
    for kind in filter(missing.get, KERNELS):
        start = time.process_time()
        by_depth = kernels(histograms, kind)
        cost = environment(torch.device("cpu")) | {"kernel_seconds": shared + time.process_time() - start}
        for seed, path in paths(name, kind, given):
            if seed in missing[kind]:
                start = time.process_time()
                scores = evaluate(by_depth, dataset.y, seed)
                cost["svm_seconds"] = time.process_time() - start
                write_text(path, json.dumps(vars(scores) | cost) + "\n")
                print(f"{path.stem}: {scores.mean:.2f} %, {cost['svm_seconds']:.0f} CPU s", file=sys.stderr, flush=True)


def paths(name, kind, given):
    """Return the pairs (seed, path of its file) of a data set and kernel."""
    seeds = given.seeds or num_seeds(name)
    return [(seed, given.out / f"{name}-{kind}-{seed}.json") for seed in range(seeds)]


def keep_scores(kept, name, given):
    """Put the finished seeds of a data set among the published scores."""
    for kind in KERNELS:
        records = [read_json(path) for _, path in paths(name, kind, given) if path.exists()]
        if records:
            kept.add(name, kind, {"kernel": [(FoldScores.of(each), each) for each in records]})


def table(kept):
    """Return mean ± deviation over seeds in Markdown, one row for each data set."""
    rows = [[name, *(kept.text(name, kind, "kernel") for kind in KERNELS)] for name in SETS]
    return markdown(["data set", *KERNELS.values()], rows)


def main():
    """Run what is missing and write the table of the page."""
    parser = options("wl")
    parser.add_argument("--out", default="sweeps/wl", type=Path, help="folder of the results; finished ones are kept")
    parser.add_argument("--seeds", type=int, help="number of seeds; default: those of the published rows")
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    kept = Kept()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in () if given.finished else given.sets:
        run(name, given)
        keep_scores(kept, name, given)
    write_tables(given.docs / "wl.md", wl=table(kept))


if __name__ == "__main__":
    main()
