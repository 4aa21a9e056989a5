"""Variants of calls: rankings, splits, evaluators, augmentations, losses, training, tables, SMILES."""

import re
import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from graphcl import GIN, ContrastiveModel, Loss, NodeDrop, Subgraph, TwoViews, knn, load_dataset, svm, train
from graphcl.errors import InputWarning
from graphcl.evaluate import rank_by, rank_queries
from graphcl.evaluate.on_split import group_split
from graphcl.sweep.markdown import _markdown
from tests.losses.table import TABLE
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
def evaluator_arguments(rng, folder):
    h, y = np.array([[float(i % 2), 0.1 * i] for i in range(12)]), [i % 2 for i in range(12)]
    wrong = h.copy()
    wrong[rng.randrange(12), 0] = rng.choice([NAN, INF, -INF, 1e200])
    first = rng.choice([svm, knn])
    return rng.choice([
        (lambda: first(wrong, y), Refused("`h`")),
        (lambda: first(h[:, :0], y), Refused("`h`")),
        (lambda: first(h[0], y), Refused("`h`")),
        (lambda: first("rows", y), Refused("`h`")),
        (lambda: first(torch.ones(12, 2, device="meta"), y), Refused("`h`")),
        (lambda: first(h, y[:-1]), Refused("`y`")),
        (lambda: first(h, [None, *y[1:]]), Refused("`y`")),
        (lambda: first(h, [rng.choice([NAN, 0.5]), *y[1:]]), Refused("`y`")),
        (lambda: first(h, ["a", *y[1:]]), Refused("`y`")),
        (lambda: first(h, [0] * 12), Refused("`y`")),
        (lambda: first(h, y, folds=rng.choice([0, 1, -3, 2.5, "ten", None])), Refused("`folds`")),
        (lambda: first(h, y, seed=rng.choice([-1, 0.5, "a", 2**70])), Refused("`seed`")),
        (lambda: first(h, y, grid=rng.choice([[], [0], [-1], ["a"], 3])), Refused("`grid")),
        (lambda: first(h, y, workers=rng.choice([0, -1, 1.5])), Refused("`workers`")),
        (lambda: rank_queries(h, [1.5] * 12), Refused("`group`")),
        (lambda: rank_queries(h, np.full(12, 2**64 - 1, np.uint64)), Refused("`group`")),
        (lambda: rank_queries(h, [-2] + [1] * 11), Refused("`group`")),
        (lambda: rank_queries(h, [[1]] * 12), Refused("`group`")),
        (lambda: rank_queries(h, y, rng.choice([[0, 0], [12], [-1], [], [0.5], ["a"], [[0]]])), Refused("`queries`")),
        (lambda: rank_queries(h, y, None, rng.choice([[0, 0], [12], [-1], []])), Refused("`candidates`")),
        (lambda: rank_by(h, y), Refused("`similarity`")),
        (lambda: rank_by(lambda one, two: np.ones(3), y), Refused("`similarity`")),
        (lambda: rank_by(lambda one, two: None, y), Refused("`similarity`")),
    ])  # fmt: skip


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
def slices_of_a_batch(rng, folder):
    """Boundaries of edges that do not fit are ignored, those of nodes refused."""
    sizes = [rng.randint(2, 6) for _ in range(3)]
    graphs = [Data(x=torch.ones(n, 1), edge_index=torch.tensor([[*range(n)], [*range(1, n), 0]])) for n in sizes]
    augment = rng.choice([Subgraph, NodeDrop])(rng.choice([0.2, 0.5, 0.9]))
    n = sum(sizes)
    wrong = rng.choice([
        [0, 10**9, 10**9, n], [0, -1, n, n], [0, n, 1, n], [-5, 1, 2, n], [0, 1, 2, n - 1], [0, 1, 2, n + 1],
        [0, 1, n], [0], [], [2**62] * 4, [0, 1, 2, -(2**62)],
    ])  # fmt: skip
    key = rng.choice(["ptr", "edge_index"])

    def view(change):
        batch = Batch.from_data_list(graphs)
        change(batch)
        found = augment(batch, torch.Generator().manual_seed(n))
        return found.edge_index.tolist(), found.batch.tolist()

    if key == "ptr":
        return lambda: view(lambda batch: setattr(batch, "ptr", torch.tensor(wrong))), Refused("`ptr`")
    expected = view(lambda batch: batch._slice_dict.pop("edge_index"))
    return lambda: view(lambda batch: batch._slice_dict.update(edge_index=torch.tensor(wrong))), expected


@kind
def last_batch_of_one(rng, folder):
    """It is skipped: the weights are those of training with `drop_last=True`."""
    size = rng.randint(2, 4)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [Data(x=torch.randn(3, 2), edge_index=ring) for _ in range(size * rng.randint(1, 2) + 1)]
    loss, view = rng.choice(["infonce", "dcl", "jsd", "barlow_twins"]), rng.choice(["identity", "node_drop"])

    def weights(drop_last):
        torch.manual_seed(0)
        model = ContrastiveModel(GIN(2, hidden_channels=2, num_layers=1))
        loader = DataLoader(graphs, size, drop_last=drop_last)
        train(TwoViews(model, loss), loader, view, "identity", epochs=1, generator=torch.Generator().manual_seed(0))
        return [each.tolist() for each in model.state_dict().values()]

    return lambda: weights(False), weights(True)


COSINE = sorted(
    name
    for name, each in TABLE.items()
    if each.similarity == "cosine" and not each.whole and name not in ("instance_nce", "moco", "supcon")
)
"""Losses of cosines that need neither a queue nor labels."""


@kind
def loss_scales(rng, folder):
    """A loss of cosines in float32 does not depend on the length of any row; the reference is float64 on unit rows."""
    name = rng.choice(COSINE)
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    z1, z2 = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    unit = [each / each.norm(dim=1, keepdim=True) for each in (z1, z2)]
    scales = [[[10.0 ** rng.uniform(-11, 25)] for _ in range(6)] for _ in range(2)]
    rows = [(each * torch.tensor(scale)).float() for each, scale in zip(unit, scales, strict=True)]
    return lambda: float(Loss(name)(*rows)), float(Loss(name)(*unit))


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
