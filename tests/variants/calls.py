"""Variants of calls: rankings, splits, evaluators, augmentations, losses, training, tables, SMILES."""

import re
import warnings

import numpy as np
import pytest
import torch

from graphcl import load_dataset
from graphcl.errors import InputWarning
from graphcl.evaluate import rank_by
from graphcl.evaluate.on_split import group_split
from graphcl.sweep.write import _markdown
from tests.variants import Refused, kind, text

NAN, INF = float("nan"), float("inf")


def reciprocal_ranks(scores, group, queries):
    """Return the reciprocal rank of the first relevant candidate of each query with one, by a loop."""
    found = []
    for query in queries:
        others = [each for each in range(len(group)) if each != query]
        relevant = [scores[query][each] for each in others if group[each] == group[query] != -1]
        if relevant:
            found.append(1 / (1 + sum(scores[query][each] > max(relevant) for each in others)))
    return found


@kind
def similarities(rng, folder):
    """Infinite similarities are the first or the last; one NaN is refused, unless no query reads it."""
    n = rng.randint(4, 8)
    group = [rng.choice([-1, 0, 1, 2**40]) for _ in range(n - 2)] + [5, 5]
    scores = np.stack([np.array(rng.sample(range(100), n), float) for _ in range(n)])
    queries = [*rng.sample(range(n - 2), rng.randint(0, n - 2)), n - 1]
    for _ in range(rng.randint(0, 3)):
        row = rng.randrange(n)
        scores[row, rng.randrange(n)] = INF
        scores[row][scores[row] == INF] = [INF, *rng.sample(range(200, 300), int((scores[row] == INF).sum()) - 1)]
        scores[row, scores[row].argmin()] = -INF
        scores[row][scores[row] == -INF] = [-INF, *rng.sample(range(-99, 0), int((scores[row] == -INF).sum()) - 1)]
    expected = [round(each, 9) for each in reciprocal_ranks(scores.tolist(), group, queries)]
    bad = rng.random() < 0.4
    if bad:
        scores[n - 1, rng.randrange(n - 1)] = NAN
    form = rng.choice([np.asarray, torch.tensor, lambda each: np.array(each, np.int64)])
    kernel = rng.choice(
        [lambda one, two: scores[np.ix_(one, two)], lambda one, two: torch.from_numpy(scores)[one][:, two]]
    )

    def call():
        return [round(each, 9) for each in rank_by(kernel, form(group), form(queries)).values["mrr"].tolist()]

    return call, Refused("NaN") if bad else expected


@kind
def splits(rng, folder):
    """No group or project is on two parts, every graph is on one, and a warning is given if shares are missed."""
    sizes = [rng.choice([1, 1, 2, 3, 20, 50]) for _ in range(rng.randint(3, 12))]
    project = np.repeat(np.arange(len(sizes)), sizes)
    group = np.array([rng.choice([-1, 10 * each, 10 * each + 1]) for each in project])
    used = rng.choice([None, project])
    unit = project if used is not None else np.where(group < 0, 1000 + np.arange(len(group)), group)
    if len(set(unit.tolist())) < 3:
        return lambda: group_split(group, used, seed=rng.randrange(9)), Refused("3 ")

    def call():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            parts = group_split(group, used, seed=rng.randrange(9))
        rows = sorted(np.concatenate([*parts.values()]).tolist())
        on = [{int(each) for each in unit[rows]} for rows in parts.values()]
        shares = [len(parts[part]) / len(unit) for part in ("train", "valid", "test")]
        far = max(abs(a - b) for a, b in zip(shares, (0.8, 0.1, 0.1), strict=True)) > 0.1
        sizes = dict(zip(*np.unique(unit, return_counts=True), strict=True))
        trained = max(sizes.values()) == max(sizes[each] for each in on[0])
        return rows, sum(map(len, on)), trained, far == bool(caught)

    return call, (list(range(len(unit))), len(set(unit.tolist())), True, True)


@kind
def markdown_cells(rng, folder):
    """By CommonMark's rule of backslashes, a cell shows its label, and has no character that would be markup."""
    label = text(rng, rng.randint(1, 12))

    def call():
        line = _markdown(["row", "mean"], [[label, "1"]], 1)[-1]
        plain = re.sub(r"\\[!-/:-@\[-`{-~]", "", line)
        shown = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", line[2 : line.rindex(" | ")])
        return plain.count("|"), re.search(r"[\\`*<>\[\]&~]|\b_|_\b", plain), shown.rstrip()

    return call, (3, None, " ".join(label.split()))


MOLECULES = [
    "CC(N)C(=O)O", "N[C@@H](C)C(=O)O", "C[C@H]1CC[C@@H](C)CC1", "C/C=C/C=C\\C", "C[S@](=O)CC",
    "[Na+].C[C@H](O)C([O-])=O",
    "C[N@+]1(CC)CC[C@H](C)CC1.[Cl-]", "CC(F)[P@](C)(=O)OC", "OC[C@@H](O)[C@H](O)[C@H](O)CO", "[2H]C([2H])O",
    "c1ccc2[nH]ccc2c1",
    "CC[C@@](C)(F)[C@](C)(Cl)Br", "[13CH3]C(=O)O", "C[C@@H](O)C/C=C/[C@H](N)C#N", "O=C1C=C[C@@H]2C[C@H]1O2",
]  # fmt: skip


@kind
def smiles_writings(rng, folder):
    """Any writing of a molecule gives the graph of RDKit's canonical one, up to the order of atoms."""
    chem = pytest.importorskip("rdkit.Chem", reason="rdkit is not installed")
    canonical = chem.MolToSmiles(chem.MolFromSmiles(rng.choice(MOLECULES)))
    molecule = chem.MolFromSmiles(canonical)
    seed = rng.randrange(10**6)
    writing = chem.MolToRandomSmilesVect(
        molecule, 1, seed, kekuleSmiles=rng.random() < 0.3, allHsExplicit=rng.random() < 0.3
    )[0]
    if rng.random() < 0.3:
        order = rng.sample(range(molecule.GetNumAtoms()), molecule.GetNumAtoms())
        writing = chem.RenumberAtoms(molecule, order)

    def graph(source):
        data = load_dataset([source])[0]
        x = [tuple(row) for row in data.x.tolist()]
        ends = zip(*data.edge_index.tolist(), data.edge_attr.tolist(), strict=True)
        return sorted(x), sorted((x[one], x[two], tuple(bond)) for one, two, bond in ends)

    return lambda: graph(writing), graph(canonical)
