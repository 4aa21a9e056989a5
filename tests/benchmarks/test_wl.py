"""Check the study of WL kernels: colours and kernels against literal loops, choice of (depth, C), command line."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from torch_geometric.data import Data

from graphcl.datasets import load_dataset

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"


@pytest.fixture
def wl(monkeypatch):
    """Import the study as its command line does."""
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.setitem(sys.modules, "study", None)  # restored afterwards
    del sys.modules["study"]
    spec = importlib.util.spec_from_file_location("wl", STUDIES / "wl.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("study", None)


def both_directions(pairs):
    """Return the directed edges `[2, E]` of undirected ones."""
    return np.array([*pairs, *((b, a) for a, b in pairs)], dtype=np.int64).reshape(-1, 2).T


def random_graphs(seed, labelled=True, sizes=(1, 2, 5, 7, 7, 8)):
    """Return labels, directed edges and graph numbers of a few random graphs, concatenated."""
    generator, pairs, start = np.random.default_rng(seed), [], 0
    for size in sizes:
        pairs += [(start + a, start + b) for a in range(size) for b in range(a) if generator.random() < 0.35]
        start += size
    labels = generator.integers(0, 3, start) * 5 if labelled else np.zeros(start, np.int64)
    return labels, both_directions(pairs), np.repeat(np.arange(len(sizes)), sizes)


def slow_colours(labels, edge_index, depth):
    """Return the colours of all depths; a colour is the nested tuple that WL compresses."""
    neighbours = {node: [] for node in range(len(labels))}
    for source, target in edge_index.T.tolist():
        neighbours[target].append(source)
    found = [{node: (int(label),) for node, label in enumerate(labels)}]
    for _ in range(depth):
        old = found[-1]
        found.append({node: (old[node], tuple(sorted(old[other] for other in neighbours[node]))) for node in old})
    return found


@pytest.mark.parametrize("seed", range(6))
def test_colours_against_nested_tuples(wl, seed):
    labels, edge_index, _ = random_graphs(seed, labelled=seed % 2 == 0)
    slow = slow_colours(labels, edge_index, 4)
    fast = list(wl.refine(labels, edge_index, 4))
    assert len(fast) == 5
    for mine, wanted in zip(fast, slow, strict=True):
        pairs = {(int(colour), wanted[node]) for node, colour in enumerate(mine)}
        assert len(pairs) == len({colour for colour, _ in pairs}) == len({colour for _, colour in pairs})
        assert sorted({colour for colour, _ in pairs}) == list(range(len(pairs)))  # numbered from 0


def test_depth_1_without_labels_is_the_degree(wl):
    labels, edge_index, _ = random_graphs(3, labelled=False)
    first, second = wl.refine(labels, edge_index, 1)
    degrees = np.bincount(edge_index[1], minlength=len(labels))
    assert (first == 0).all()
    assert np.array_equal(second[:, None] == second, degrees[:, None] == degrees)


@pytest.mark.parametrize("kind", ["wl", "wl_oa"])
def test_kernels_against_double_loops(wl, kind):
    labels, edge_index, graph = random_graphs(7)
    colours = list(wl.refine(labels, edge_index, 3))
    found = wl.kernels([wl.histogram(each, graph) for each in colours], kind)
    count = graph.max() + 1
    slow = np.zeros((count, count))
    for kernel, each in zip(found, slow_colours(labels, edge_index, 3), strict=True):
        bags = [[each[node] for node in np.flatnonzero(graph == number)] for number in range(count)]
        for i, mine in enumerate(bags):
            for j, other in enumerate(bags):
                for colour in set(mine):
                    a, b = mine.count(colour), other.count(colour)
                    slow[i, j] += a * b if kind == "wl" else min(a, b)
        own = np.sqrt(slow.diagonal())
        assert kernel.dtype == np.float32
        np.testing.assert_allclose(kernel, slow / own / own[:, None], rtol=1e-6)
    assert not np.allclose(found[0], found[3])


@pytest.mark.parametrize("kind", ["wl", "wl_oa"])
def test_a_6_cycle_and_two_triangles_are_the_same_and_a_path_is_not(wl, kind):
    cycle = [(i, (i + 1) % 6) for i in range(6)]
    triangles = [(6, 7), (7, 8), (8, 6), (9, 10), (10, 11), (11, 9)]
    path = [(i, i + 1) for i in range(12, 17)]
    colours = wl.refine(np.zeros(18, np.int64), both_directions(cycle + triangles + path), 5)
    found = wl.kernels([wl.histogram(each, np.repeat([0, 1, 2], 6)) for each in colours], kind)
    assert len(found) == 6
    assert all(kernel[0, 1] == 1 for kernel in found)
    assert found[0][0, 2] == 1
    assert all(kernel[0, 2] < 1 for kernel in found[1:])


def test_the_pair_is_chosen_on_inner_folds(wl, monkeypatch):
    """Compare with scikit-learn; depth 0 is noise, depth 1 separates the classes in part."""
    grid = (0.1, 1.0)
    monkeypatch.setattr(wl, "C_GRID", grid)
    generator = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    points = generator.normal(size=(2, 60, 4))
    points[1, :, :3] += 1.5 * np.eye(3)[y]
    by_depth = [np.exp(-np.square(x[:, None] - x).sum(2)).astype(np.float32) for x in points]
    scores = wl.evaluate(by_depth, y, seed=3)

    def accuracy(depth, c, train, held):
        kernel = by_depth[depth].astype(float)
        model = SVC(C=c, kernel="precomputed").fit(kernel[np.ix_(train, train)], y[train])
        return model.score(kernel[np.ix_(held, train)], y[held])

    for number, (train, test) in enumerate(StratifiedKFold(10, shuffle=True, random_state=3).split(y, y)):
        inner = StratifiedKFold(5, shuffle=True, random_state=3)
        splits = [(train[a], train[b]) for a, b in inner.split(train, y[train])]
        means = {(d, c): np.mean([accuracy(d, c, *split) for split in splits]) for d in (0, 1) for c in grid}
        assert scores.chosen[number] == max(means, key=means.get)
        assert scores.inner[number] == pytest.approx(100 * max(means.values()))
        assert scores.accuracy[number] == pytest.approx(100 * accuracy(*scores.chosen[number], train, test))
    assert any(depth == 1 for depth, _ in scores.chosen)


def test_the_command_line_keeps_what_is_finished(wl, monkeypatch, tmp_path):
    graphs = []
    for seed in range(30):
        labels, edge_index, _ = random_graphs(seed, sizes=(5 + seed % 2,))
        x = torch.nn.functional.one_hot(torch.from_numpy(labels), 11).float()
        graphs.append(Data(x=x, edge_index=torch.from_numpy(edge_index), y=seed % 2))
    monkeypatch.setattr(wl, "load_dataset", lambda *_: load_dataset(graphs))
    monkeypatch.setattr(wl, "DEPTH", 1)
    monkeypatch.setattr(wl, "C_GRID", (1.0,))
    arguments = ["wl", "--sets", "OWN", "--seeds", "2", "--out", str(tmp_path / "out"), "--docs", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    wl.main()
    first = (tmp_path / "wl.md").read_text()
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert sorted(files) == [f"OWN-{kind}-{seed}.json" for kind in ("wl", "wl_oa") for seed in (0, 1)]
    kept = json.loads(files["OWN-wl_oa-1.json"])
    assert (kept["seed"], len(kept["accuracy"]), kept["chosen"][0][1]) == (1, 10, 1.0)
    assert "| data set | WL | WL-OA |\n|---|---|---|\n| OWN | " in first

    (tmp_path / "out" / "OWN-wl-0.json").unlink()
    monkeypatch.setattr(sys, "argv", [*arguments, "--finished"])
    wl.main()
    assert "(1)" in (tmp_path / "wl.md").read_text()
    monkeypatch.setattr(sys, "argv", arguments)
    wl.main()
    assert (tmp_path / "wl.md").read_text() == first
    assert files["OWN-wl_oa-1.json"] == (tmp_path / "out" / "OWN-wl_oa-1.json").read_text()
