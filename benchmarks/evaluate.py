"""Compare the evaluators with scikit-learn's grid search, on the CPU: python benchmarks/evaluate.py --mirror ~/tu

Embeds data sets with an untrained GIN and prints Markdown: seconds of one seed's full protocol (10 outer folds) with
one thread and with two, and how many times as fast as GridSearchCV that is; medians of interleaved rounds, one process.
`equal` says whether accuracies and chosen C are those of GridSearchCV on every outer fold. On a shared machine the
ratios are steadier than the seconds; `--cpu` counts this process's seconds of CPU instead, one thread.
"""

import argparse
import json
import statistics
import time

import torch
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from graphcl import GIN, ContrastiveModel, embed, load_dataset, make_loader
from graphcl.evaluate import knn, logreg, svm
from graphcl.evaluate.folds import C_GRID


def untrained(name, mirror, root, hidden):
    dataset = load_dataset(name, data_root=root, mirror=mirror)
    torch.manual_seed(0)
    h, y = embed(ContrastiveModel(GIN(dataset.num_features, hidden)), make_loader(dataset, 1024))
    return h.double().numpy(), y.numpy()


def grid_search(h, y, scale):
    """Return accuracies in percent and C of every outer fold, by scikit-learn's `GridSearchCV`."""
    accuracy, chosen = [], []
    machine, key = (make_pipeline(StandardScaler(), SVC()), "svc__C") if scale else (SVC(), "C")
    inner = StratifiedKFold(5, shuffle=True, random_state=0)
    for train, test in StratifiedKFold(10, shuffle=True, random_state=0).split(h, y):
        search = GridSearchCV(machine, {key: C_GRID}, cv=inner).fit(h[train], y[train])
        accuracy.append(100 * search.score(h[test], y[test]))
        chosen.append(search.best_params_[key])
    return tuple(accuracy), tuple(chosen)


def measure(h, y, repeats, clock, threads):
    """Return the median seconds of every case, and whether the SVM's results equal the grid search's."""
    cases = {}
    for scale in (False, True):
        cases["GridSearchCV", scale, 1] = lambda scale=scale: grid_search(h, y, scale)
    for workers in threads:
        for scale in (False, True):
            cases["svm", scale, workers] = lambda scale=scale, workers=workers: svm(h, y, scale=scale, workers=workers)
        for evaluator in (logreg, knn):
            cases[evaluator.__name__, None, workers] = lambda e=evaluator, workers=workers: e(h, y, workers=workers)
    seconds, outcome = {case: [] for case in cases}, {}
    for _ in range(repeats):
        for case, run in cases.items():
            with threadpool_limits(1):
                start = clock()
                outcome[case] = run()
                seconds[case].append(clock() - start)
    rows = []
    for case in cases:
        name, scale, workers = case
        reference = statistics.median(seconds["GridSearchCV", bool(scale), 1])
        spent = statistics.median(seconds[case])
        row = {"evaluator": name, "scale": scale, "threads": workers, "seconds": spent, "ratio": reference / spent}
        if name == "GridSearchCV":
            row["accuracy"] = statistics.mean(outcome[case][0])
        else:
            row["accuracy"] = outcome[case].mean
        if name == "svm":
            row["equal"] = (outcome[case].accuracy, outcome[case].chosen) == outcome["GridSearchCV", scale, 1]
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", help="folder or URL holding NAME.zip")
    parser.add_argument("--data-root", default="datasets")
    parser.add_argument("--datasets", nargs="*", default=["MUTAG", "PROTEINS", "NCI1"])
    parser.add_argument("--hidden", type=int, default=32, help="width of a layer; an embedding has three times as many")
    parser.add_argument("--quick", action="store_true", help="PROTEINS only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="seconds of CPU instead of wall-clock time, one thread only")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clock, threads = (time.process_time, (1,)) if arguments.cpu else (time.perf_counter, (1, 2))
    print("| data set | evaluator | scaled | threads | seconds | x GridSearchCV | accuracy | equal |")
    print("|---|---|---|---|---|---|---|---|")
    found = {}
    for name in ["PROTEINS"] if arguments.quick else arguments.datasets:
        h, y = untrained(name, arguments.mirror, arguments.data_root, arguments.hidden)
        found[name] = measure(h, y, arguments.repeats, clock, threads)
        for row in found[name]:
            told = {None: "-", True: "yes", False: "no"}
            cells = [name, row["evaluator"], told[row["scale"]], row["threads"], f"{row['seconds']:.2f}"]
            cells += [f"{row['ratio']:.1f}", f"{row['accuracy']:.2f}", told[row.get("equal")]]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
