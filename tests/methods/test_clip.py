"""Test the method `clip`: graphs against vectors that describe them."""

import numpy as np
import pytest
import torch

from graphcl.augment import Identity
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import CLIP
from graphcl.methods.clip import standardised
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.loop import train
from tests.methods.small import Summed, graphs, make_model, pick, seeded


def saved(folder, rows):
    np.save(folder / "rows.npy", rows)
    return folder / "rows.npy"


def test_columns_are_standardised_and_clamped(tmp_path):
    rows = np.random.default_rng(0).normal(3, 2, size=(40, 4))
    rows[:, 1], rows[0, 2] = 0.1, 1e6
    found = standardised(saved(tmp_path, rows)).double().numpy()
    assert found[:, 0] == pytest.approx((rows[:, 0] - rows[:, 0].mean()) / rows[:, 0].std(), abs=1e-5)
    assert np.ptp(found[:, 1]) == 0
    assert found[0, 2] == 5.0


def test_a_graph_is_contrasted_with_its_own_row(tmp_path):
    """The loss equals the mean of both directions' cross-entropies between graphs and the rows of their `ids`."""
    file = saved(tmp_path, np.random.default_rng(0).normal(size=(24, 3)))
    method = CLIP(make_model(encoder=Summed), Loss("infonce", temperature=0.5), vectors=str(file), hidden=7)
    ids = torch.tensor([20, 3, 11, 8])
    batch = pick(graphs(), ids.tolist())
    outcome = method(batch, None, ids=ids)
    a = method.model(batch)
    b = method.projector(standardised(file)[ids])
    assert torch.equal(outcome.z1, a)
    assert torch.equal(outcome.z2, b)
    cosines = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=2) / 0.5
    own = torch.arange(4)
    expected = sum(torch.nn.functional.cross_entropy(each, own) for each in (cosines, cosines.T)) / 2
    assert float(outcome.loss) == pytest.approx(float(expected), rel=1e-5)


def test_training_teaches_the_encoder_what_the_vectors_say(tmp_path):
    """Vectors that hold the number of nodes make embeddings from which that number can be read; noise does not."""
    data = graphs(60)
    sizes = np.array([[each.num_nodes] for each in data], dtype=float)

    def closeness(rows):
        torch.manual_seed(0)
        method = CLIP(ContrastiveModel(Summed()), Loss("infonce"), vectors=str(saved(tmp_path, rows)), hidden=16)
        loader = ResidentLoader(data, 20, shuffle=True, generator=seeded(0))
        history = train(method, loader, Identity(), Identity(), epochs=60, lr=0.01, generator=seeded(0))
        with torch.no_grad():
            z, q = method.model(pick(data, range(60))), method.projector(method.vectors)
        nearest = torch.nn.functional.normalize(z) @ torch.nn.functional.normalize(q).T
        return history[-1].loss, np.abs(sizes[nearest.argmax(1)] - sizes).mean()

    loss, distance = closeness(sizes)
    other_loss, other_distance = closeness(np.random.default_rng(0).permutation(sizes))
    assert loss < other_loss
    assert distance < 0.5 < 1.0 < other_distance


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (np.zeros(5), r"one row per graph; .* holds an array \[5\]\.$"),
        (np.array([[1.0], [np.nan]]), "holds NaN"),
        (np.ones((2, 1), dtype=complex), "complex numbers"),
    ],
)
def test_a_file_of_something_else(tmp_path, rows, line):
    with pytest.raises(InputError, match=line):
        CLIP(make_model(), Loss("infonce"), vectors=str(saved(tmp_path, rows)))


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"file vectors\.npy not found"):
        CLIP(make_model(), Loss("infonce"), vectors=str(tmp_path / "vectors.npy"))


def test_graphs_without_a_row(tmp_path):
    method = CLIP(make_model(), Loss("infonce"), vectors=str(saved(tmp_path, np.eye(3))))
    batch = pick(graphs(), [2, 3])
    with pytest.raises(InputError, match="has 3, and a batch holds graph 3"):
        method(batch, batch, ids=torch.tensor([2, 3]))
    with pytest.raises(InputError, match="needs the indices"):
        method(batch, batch)
