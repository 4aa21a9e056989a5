"""`graphcl embed`: node features of other graphs, output files, error messages."""

import csv
import itertools

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from graphcl.commands import blocks
from graphcl.commands.embed import main
from graphcl.config import make_config
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.errors import InputError
from graphcl.experiment.encoder_input import load_for
from graphcl.loaders.resident import ResidentLoader
from graphcl.models.quantized import quantize
from graphcl.training.loop import embed
from tests.commands.files import SMALL, save_untrained
from tests.conftest import small_graphs
from tests.trials import describe, make_model


def description_of(dataset, **settings):
    config = make_config(SMALL | settings)
    return describe(config, dataset, make_model(config, dataset))


@pytest.fixture
def encoder(tmp_path):
    """Save untrained encoders of two seeds; return the path of the file, and seed -> expected embeddings."""
    dataset, models = save_untrained(tmp_path / "encoder.pt", small_graphs(edge_attr=True), (4, 7))
    expected = {seed: embed(model, ResidentLoader(dataset, 36))[0].numpy() for seed, model in models.items()}
    return str(tmp_path / "encoder.pt"), expected


def test_a_role_of_one_encoder_is_warned_of(encoder, tmp_path, capsys):
    words = [encoder[0], "--dataset", saved(small_graphs(edge_attr=True), tmp_path), "--role", "target"]
    assert main([*words, "--out", str(tmp_path / "h.npz")]) == 0
    assert capsys.readouterr().err.count("warning: `role` target has no effect, as ") == 1


def saved(graphs, folder):
    InMemoryDataset.save(graphs, str(folder / "graphs.pt"))
    return str(folder / "graphs.pt")


def test_the_training_graphs_get_their_columns_again():
    """The training graphs may be given as a list, as a data set, or one at a time; class values are kept."""
    graphs = small_graphs()
    for graph in graphs:
        graph.y = 3 + 2 * graph.y
    for features in ("labels", "constant", "degree", "labels+degree"):
        dataset = load_dataset(graphs, features=features)
        description = description_of(dataset)
        for source in (graphs, load_dataset(graphs), dataset):
            again = load_for(description, source)
            assert torch.equal(again._data.x, dataset._data.x), features
            assert torch.equal(again.y, dataset.y), features
        assert load_for(description, graphs).classes.tolist() == [3, 5]
        for source in ([graphs[5]], graphs[5]):
            (graph,) = load_for(description, source)
            assert torch.equal(graph.x, dataset[5].x), features


def test_degrees_of_other_graphs():
    """Degrees larger than in training share the last column; columns of degrees that do not occur are zero."""
    rings, stars = small_graphs()[1::2], small_graphs()[::2]  # rings have small degrees, stars degrees up to 10
    for graphs, others in ((rings, stars), (stars, rings)):
        trained = load_dataset(graphs, features="labels+degree")
        degrees = load_for(description_of(trained), others)._data.x[:, 3:]
        own = load_dataset(others, features="degree")._data.x.argmax(1)
        expected = torch.nn.functional.one_hot(own.clamp(max=trained.degree_columns - 1), trained.degree_columns)
        assert torch.equal(degrees, expected.float())


def test_graphs_that_do_not_fit(tmp_path):
    wide, bare = small_graphs(), [Data(edge_index=graph.edge_index, num_nodes=12) for graph in small_graphs()]
    for graph in wide:
        graph.x = torch.ones(graph.num_nodes, 7)
    labels, both = (description_of(load_dataset(wide, features=each)) for each in ("labels", "labels+degree"))
    edges = description_of(load_dataset(small_graphs(edge_attr=True)), encoder="gine")
    degrees = description_of(load_dataset(small_graphs(), features="degree"))
    on_disk = write_on_disk(small_graphs(), tmp_path / "other")
    for description, source, *says in [
        (labels, small_graphs(), "own has 3 columns of `x` (labels); the encoder was", "own with 7 columns of labels."),
        (both, bare, "own has no node labels (no `x`); the encoder was"),
        (edges, small_graphs(), "own has no columns of `edge_attr`", "own with 2, which it requires."),
        (degrees, on_disk, "3 columns of `x` (labels)", "columns of degrees."),
    ]:
        with pytest.raises(InputError) as caught:
            load_for(description, source)
        assert all(each in str(caught.value) for each in says), says


TEXTS = ["a\0", "", "Grüße\n", "x" * 10**6, *(f"molecule {number}" for number in range(32))]


@pytest.mark.parametrize("ids", [None, TEXTS], ids=["numbered", "texts"])
def test_npz(ids, encoder, tmp_path, capsys):
    path, expected = encoder
    graphs, out, labels = small_graphs(), tmp_path / "e.npz", ["yes", "no"] if ids else [0, 1]
    for graph, each in zip(graphs, ids or [], strict=ids is not None):
        graph.id, graph.y = each, labels[int(graph.y)]
    for words, seed in ([], 4), (["--seed", "7", "--batch-size", "5", "--force"], 7):
        assert main([path, "--dataset", saved(graphs, tmp_path), "--out", str(out), *words]) == 0
        with np.load(out) as arrays:
            assert sorted(arrays) == (["h", "id", "y"] if ids is None else ["h", "id.slices", "id.text", "y"])
            np.testing.assert_allclose(arrays["h"], expected[seed], rtol=1e-5)
            assert arrays["y"].tolist() == labels * 18
            if ids is None:
                assert arrays["id"].tolist() == list(range(36))
            else:
                text, cut = arrays["id.text"].tobytes(), arrays["id.slices"]
                assert [text[start:end].decode() for start, end in itertools.pairwise(cut)] == ids
    assert f" classes), features: labels; 12 numbers per graph in {out}" in capsys.readouterr().out


def test_embeddings_in_bytes_and_bits(encoder, tmp_path, capsys):
    """Cosines of bytes are nearly those of the embeddings; a bit says whether a number is positive."""
    file, (_, h) = encoder[0], next(iter(encoder[1].items()))
    data = ["--dataset", saved(small_graphs(edge_attr=True), tmp_path), "--out"]
    for precision in ("int8", "binary"):
        assert main([file, *data, str(tmp_path / f"{precision}.npz"), "--precision", precision]) == 0
        assert f"numbers ({precision}) per graph" in capsys.readouterr().out
    with np.load(tmp_path / "int8.npz") as bytes_, np.load(tmp_path / "binary.npz") as bits:
        q, b = bytes_["h"], bits["h"]
    assert (q.dtype, q.shape, np.abs(q).max(1).tolist()) == (np.int8, h.shape, [127] * len(h))
    one, two = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (h, q.astype(float)))
    np.testing.assert_allclose(two @ two.T, one @ one.T, atol=0.01)
    np.testing.assert_array_equal(np.unpackbits(b, axis=1)[:, : h.shape[1]], h > 0)
    assert quantize(np.zeros((1, 3))).tolist() == [[0, 0, 0]]
    with pytest.raises(InputError, match=r"^`h` must be a matrix \[n, H\], got shape \[3\]\.$"):
        quantize(np.zeros(3))


def test_csv(encoder, tmp_path):
    path, expected = encoder
    graphs, out = small_graphs(), tmp_path / "e.csv"
    for number, graph in enumerate(graphs):
        graph.id = 100 + number
    assert main([path, "--dataset", saved(graphs, tmp_path), "--out", str(out), "--batch-size", "8"]) == 0
    with open(out, newline="") as file:
        lines = list(csv.DictReader(file))
    assert (list(lines[0]), len(lines)) == (["id", "y", *(f"h{number}" for number in range(12))], 36)
    assert [line["id"] for line in lines] == [str(100 + number) for number in range(36)]
    np.testing.assert_allclose([float(line["h3"]) for line in lines], expected[4][:, 3], rtol=1e-5)


def test_parquet(encoder, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(blocks, "_GROUP_ROWS", 20)
    path, expected = encoder
    graphs, out = small_graphs(), tmp_path / "e.parquet"
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([[number, -number]], dtype=torch.float)
    assert main([path, "--dataset", saved(graphs, tmp_path), "--out", str(out), "--batch-size", "8"]) == 0
    columns = parquet.read_table(out).to_pydict()
    assert list(columns) == ["id", "y0", "y1", *(f"h{number}" for number in range(12))]
    np.testing.assert_allclose(np.stack([columns[f"h{i}"] for i in range(12)], axis=1), expected[4], rtol=1e-5)
    assert columns["y1"] == [-float(number) for number in range(36)]


@pytest.mark.parametrize("out", ["h.npz", "h.csv", "shards"])
def test_absurd_weights_give_a_line_and_no_rows(out, encoder, tmp_path, capsys):
    content = torch.load(encoder[0], weights_only=True)
    for weight in content["weights"][4].values():
        weight.fill_(1e30) if weight.is_floating_point() else weight
    torch.save(content, tmp_path / "encoder.pt")
    graphs = saved(small_graphs(edge_attr=True), tmp_path)
    arguments = [encoder[0], "--dataset", graphs, "--out", str(tmp_path / out), "--batch-size", "5", "--shards", "npy"]
    assert main(arguments) == 2
    assert "the embedding of graph 0 is NaN or infinite; look for NaN or very large" in capsys.readouterr().err
    assert not list(tmp_path.glob("h.*"))
    assert not list(tmp_path.glob("shards/**/h.npy"))
