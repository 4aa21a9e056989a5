"""Test the rows of patterns with learned weights."""

import numpy as np
import torch

from graphcl import GIN, ContrastiveModel, load_dataset
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.evaluate import retrieval
from graphcl.extensions.sparse.references import DEPTH, _learned, hybrid, wl_sparse
from graphcl.loaders.resident import ResidentLoader
from graphcl.references.rows import Inputs
from graphcl.references.wl import wl_oa
from graphcl.tasks.evaluation import grouped_parts


def inputs():
    dataset = load_dataset(synthetic_pairs(num_groups=200))
    model = ContrastiveModel(GIN(dataset.num_features))
    h = torch.randn(len(dataset), 8, generator=torch.Generator().manual_seed(0))
    return Inputs(dataset, ResidentLoader(dataset, 64), model, lambda: model, grouped_parts(dataset), trained=h)


def test_training_starts_at_the_kernel_and_goes_up():
    given = inputs()
    learned, kernel = wl_sparse(given), wl_oa(given)
    rows = torch.from_numpy(np.sort(given.parts["test"]))
    none = np.arange(0)
    expected = kernel.similarity(DEPTH, none)(rows, rows)
    torch.testing.assert_close(learned.similarity(0, none)(rows, rows).double(), expected, rtol=1e-5, atol=1e-6)
    scores = {
        name: retrieval(each, group=given.dataset.groups, split=given.parts).mean
        for name, each in (("kernel", kernel), ("learned", learned), ("hybrid", hybrid(given)))
    }
    assert scores["learned"] > scores["kernel"] + 5
    assert scores["hybrid"] >= scores["kernel"]


def test_no_test_graph_reaches_the_weights():
    given = inputs()
    rows, none = torch.from_numpy(np.sort(given.parts["valid"])), np.arange(0)
    before = wl_sparse(given).similarity(4, none)(rows, rows)
    data = given.dataset._data
    node = torch.zeros(len(data.x), dtype=torch.bool)
    for graph in given.parts["test"]:
        node[given.dataset.slices["x"][graph] : given.dataset.slices["x"][graph + 1]] = True
    data.x = torch.where(node[:, None], data.x.flip(1), data.x)
    _learned.cache_clear()
    torch.testing.assert_close(wl_sparse(given).similarity(4, none)(rows, rows), before)
