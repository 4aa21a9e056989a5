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
from study import SETS, markdown, means, options, plus_minus, write_tables
from torch_geometric.data import Batch

from graphcl.datasets import load_dataset
from graphcl.evaluate import FoldScores, Kernel, svm
from graphcl.graphs.wl import histogram, refine, unary
from graphcl.system.files import read_json, write_text

KERNELS = {"wl": "WL", "wl_oa": "WL-OA"}
DEPTH = 5


def colours(dataset):
    """Return the histograms of WL colours of all graphs, one sparse matrix `[graphs, colours]` for each depth."""
    batch = Batch.from_data_list(list(dataset))
    labels = batch.x.argmax(1).numpy()  # all 0 for the one column of a set without labels
    return [histogram(each, batch.batch.numpy()) for each in refine(labels, batch.edge_index.numpy(), DEPTH)]


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
        cost = {"kernel_seconds": shared + time.process_time() - start}
        for seed, path in paths(name, kind, given):
            if seed in missing[kind]:
                start = time.process_time()
                scores = evaluate(by_depth, dataset.y, seed)
                cost["svm_seconds"] = time.process_time() - start
                write_text(path, json.dumps(vars(scores) | cost) + "\n")
                print(f"{path.stem}: {scores.mean:.2f} %, CPU: {cost}", file=sys.stderr, flush=True)


def paths(name, kind, given):
    """Return the pairs (seed, path of its file) of a data set and kernel."""
    return [(seed, given.out / f"{name}-{kind}-{seed}.json") for seed in range(given.seeds)]


def table(given):
    """Return mean ± deviation over the finished seeds in Markdown, one row for each data set."""
    rows = []
    for name in given.sets:
        files = [[path for _, path in paths(name, kind, given) if path.exists()] for kind in KERNELS]
        scores = [[FoldScores.of(read_json(path)) for path in some] for some in files]
        rows.append([name, *(plus_minus(means(each)) for each in scores)])
    return markdown(["data set", *KERNELS.values()], rows)


def main():
    """Run what is missing and write the table of the page."""
    parser = options("wl")
    parser.add_argument("--out", default="sweeps/wl", type=Path, help="folder of the results; finished ones are kept")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    if not given.finished:
        given.out.mkdir(parents=True, exist_ok=True)
        for name in given.sets:
            run(name, given)
    write_tables(given.docs / "wl.md", wl=table(given))


if __name__ == "__main__":
    main()
