"""`instance` against loops over pairs: ties, scale of the columns, messages."""

import numpy as np
import pytest
import torch

from graphcl.errors import InputError
from graphcl.evaluate import instance


def by_loops(h, copies, source):
    """Return the recall at 1 in percent; equal cosines share one hit."""
    mean, deviation = h.mean(0), h.std(0)
    columns = deviation > 0
    h, copies = ((each - mean)[:, columns] / deviation[columns] for each in (h, copies))
    hits = []
    for copy, graph in zip(copies, source, strict=True):
        cosines = [copy @ row / np.linalg.norm(copy) / np.linalg.norm(row) for row in h]
        best = [i for i, each in enumerate(cosines) if abs(each - max(cosines)) < 1e-9]
        hits.append((graph in best) / len(best))
    return 100 * np.mean(hits)


def test_it_equals_loops_with_ties():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(30, 4)) * [1, 100, 1e-3, 0] + 5
    h[[7, 8, 9]] = h[7]
    source = rng.integers(0, 30, 80)
    source[:6] = [7, 8, 9, 7, 8, 9]
    copies = h[source] + 0.4 * rng.normal(size=(80, 4)) * [1, 100, 1e-3, 1]
    copies[:3] = h[7]
    found = instance(torch.from_numpy(h), torch.from_numpy(copies), torch.from_numpy(source), seed=4)
    assert found.mean == pytest.approx(by_loops(h, copies, source))
    assert 20 < found.mean < 90
    assert (found.seed, found.metric, found.folds) == (4, "recall_at_1", 1)
    # three graphs of one embedding share a hit
    assert instance(h, copies[:3], source[:3]).mean == pytest.approx(100 / 3)


def test_known_scores():
    h = np.eye(5)
    assert instance(h, h, np.arange(5)).mean == 100
    assert instance(h, h, np.roll(np.arange(5), 1)).mean == 0
    assert instance(np.ones((5, 2)), np.ones((5, 2)), np.arange(5)).mean == pytest.approx(20)
    rng = np.random.default_rng(1)
    h, copies, scale = rng.normal(size=(40, 3)), rng.normal(size=(40, 3)), np.array([1e3, 1, 1e-3])
    assert instance(h, copies, np.arange(40)) == instance(h * scale + 2, copies * scale + 2, np.arange(40))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"source": np.array([0, 1, 5])},
            r"`source` must hold the index of one of the 5 rows of `h` for each of the 3 c",
        ),
        ({"source": np.array([0, 1])}, r"`source` must hold"),
        ({"source": np.array([0.0, 1.0, 2.0])}, r"`source` must hold"),
        ({"h": np.full((5, 2), np.nan)}, r"`h` must be finite"),
    ],
)
def test_messages(change, message):
    with pytest.raises(InputError, match=f"^{message}"):
        instance(**{"h": np.ones((5, 2)), "copies": np.ones((3, 2)), "source": np.arange(3)} | change)
