"""Test `clip`: graphs against vectors that describe them."""

import numpy as np
import pytest
import torch

from graphcl.augment import Identity
from graphcl.errors import InputError
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import Loss
from graphcl.methods import CLIP
from graphcl.methods.clip import standardise
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.loop import train
from tests.methods.small import Summed, graphs, make_model, pick, seeded


def saved(folder, rows):
    np.save(folder / "rows.npy", rows)
    return str(folder / "rows.npy")


def test_columns_are_standardised_and_clamped():
    rows = np.random.default_rng(0).normal(3, 2, size=(40, 4))
    rows[:, 1], rows[0, 2] = 0.1, 1e6
    rows[:, 3] += 1e9
    found = standardise(rows)
    for column in (0, 3):
        deviations = (rows[:, column] - rows[:, column].mean()) / rows[:, column].std()
        assert found[:, column] == pytest.approx(deviations, abs=1e-5)
    assert np.ptp(found[:, 1]) == 0
    assert found[0, 2] == 5.0


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e306])
def test_the_unit_of_a_column_does_not_matter(scale):
    rows = np.random.default_rng(0).normal(3, 2, size=(40, 4))
    assert standardise(rows * scale) == pytest.approx(standardise(rows))


def test_a_graph_is_contrasted_with_its_own_row(tmp_path):
    """The loss equals the mean of both directions' cross-entropies between graphs and the rows of their `ids`."""
    rows = np.random.default_rng(0).normal(size=(24, 3))
    file = saved(tmp_path, np.asfortranarray(rows))  # as pandas gives
    method = CLIP(make_model(encoder=Summed), Loss("infonce", temperature=0.5), 24, vectors=file, hidden_channels=7)
    ids = torch.tensor([20, 3, 11, 8])
    batch = pick(graphs(), ids.tolist())
    outcome = method(batch, None, ids=ids)
    a = method.model(batch)
    b = method.projector(torch.from_numpy(standardise(rows)).float()[ids])
    torch.testing.assert_close(outcome.z1, a)
    torch.testing.assert_close(outcome.z2, b)
    cosines = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=2) / 0.5
    own = torch.arange(4)
    expected = sum(torch.nn.functional.cross_entropy(each, own) for each in (cosines, cosines.T)) / 2
    assert float(outcome.loss) == pytest.approx(float(expected), rel=1e-5)


def test_training_teaches_the_encoder_what_the_vectors_say(tmp_path):
    """Vectors that hold the number of nodes let embeddings find graphs of that size; shuffled rows do not."""
    data = graphs(60)
    sizes = np.array([[each.num_nodes] for each in data], dtype=float)

    def closeness(rows):
        torch.manual_seed(0)
        method = CLIP(
            ContrastiveModel(Summed()), Loss("infonce"), 60, vectors=saved(tmp_path, rows), hidden_channels=16
        )
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
        (np.zeros(5), r"numbers \[n, d\], one row per graph; .* holds \[5\] of float64\.$"),
        (np.zeros((2, 0)), r"holds \[2, 0\] of float64\.$"),
        (np.array([["a"], ["b"]]), r"holds \[2, 1\] of <U1\.$"),
        (np.array([[1.0], [np.nan]]), "has NaN, infinity or numbers above 1e308; replace them"),
        (np.array([["1e4000"], ["1"]]).astype(np.longdouble), "has NaN, infinity or numbers above 1e308"),
        (np.ones((2, 1), dtype=complex), "of complex128"),
        (np.array([[{}], [1]], dtype=object), "^cannot read `vectors` .*: Object arrays cannot be loaded"),
        (np.eye(3), "must have one row per graph: .* has 3, the data set 2"),
    ],
)
def test_a_file_of_something_else(tmp_path, rows, line):
    with pytest.raises(InputError, match=line) as caught:
        CLIP(make_model(), Loss("infonce"), 2, vectors=saved(tmp_path, rows))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_no_array(tmp_path):
    (tmp_path / "text.npy").write_text("1, 2")
    np.save(tmp_path / "large.npy", np.eye(2))
    header = (tmp_path / "large.npy").read_bytes().replace(b"(2, 2), }            ", b"(99999999999, 99999), }")
    (tmp_path / "large.npy").write_bytes(header)
    np.savez(tmp_path / "two.npz", np.eye(2), np.eye(2))
    for name, line in (
        ("none.npy", "cannot read `vectors` .*No such file"),
        ("text.npy", r"cannot read `vectors` .*: This file contains pickled \(object\) data\.$"),
        ("large.npy", "cannot read `vectors`"),
        ("two.npz", "holds several arrays"),
        ("", "cannot read `vectors` .*Is a directory"),
    ):
        with pytest.raises(InputError, match=line):
            CLIP(make_model(), Loss("infonce"), 2, vectors=str(tmp_path / name))
    with pytest.raises(InputError, match=r"^method `clip` needs `vectors`, a \.npy file"):
        CLIP(make_model(), Loss("infonce"), 2)
