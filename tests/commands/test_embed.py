"""`graphcl embed`: node features of other graphs, output files, error messages."""

import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

from graphcl.commands import embed as embedding
from graphcl.commands import embedding_files
from graphcl.commands.embed import main
from graphcl.config import make_config
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.errors import InputError
from graphcl.experiment.build import describe, make_model
from graphcl.experiment.encoder_input import load_for
from graphcl.loaders.resident import ResidentLoader
from graphcl.models.saved import save_encoder
from graphcl.training.loop import embed
from tests.conftest import small_graphs

FEATURES = ["labels", "constant", "degree", "labels+degree"]


def description_of(dataset, **settings):
    config = make_config({"encoder": {"name": "gin", "hidden_channels": 4}, **settings})
    return describe(config, dataset, make_model(config, dataset))


@pytest.fixture
def encoder(tmp_path):
    """Save untrained encoders of two seeds; return the path of the file, and seed -> expected embeddings."""
    config = make_config({"encoder": {"name": "gin", "hidden_channels": 4}})
    dataset = load_dataset(small_graphs(edge_attr=True))
    models = {seed: make_model(config, dataset, seed) for seed in (4, 7)}
    weights = {seed: model.encoder.state_dict() for seed, model in models.items()}
    path = tmp_path / "encoder.pt"
    save_encoder(path, describe(config, dataset, models[4]), weights)
    return str(path), {seed: embed(model, ResidentLoader(dataset, 36))[0].numpy() for seed, model in models.items()}


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a list of graphs and returns the path of the file."""

    def save(graphs, name="graphs.pt"):
        InMemoryDataset.save(graphs, str(tmp_path / name))
        return str(tmp_path / name)

    return save


@pytest.mark.parametrize("features", FEATURES)
def test_the_training_graphs_get_their_columns_again(features):
    """The training graphs may be given as a list, as a data set, or one at a time; class values are kept."""
    graphs = small_graphs()
    for graph in graphs:
        graph.y = 3 + 2 * graph.y
    dataset = load_dataset(graphs, features=features)
    description = description_of(dataset)
    sources = [graphs, load_dataset(graphs), dataset]
    if features != "constant":  # the graphs of the data set have a constant `x`, which would count as labels
        sources.append(list(dataset))
    for source in sources:
        again = load_for(description, source)
        assert torch.equal(again._data.x, dataset._data.x)
        assert torch.equal(again.y, dataset.y)
        assert source is not graphs or again.classes.tolist() == [3, 5]
    for number in (0, 5):
        (graph,) = load_for(description, [graphs[number]])
        assert torch.equal(graph.x, dataset[number].x)


def test_degrees_of_other_graphs():
    """Degrees larger than in training share the last column; columns of degrees that do not occur are zero."""
    rings, stars = small_graphs()[1::2], small_graphs()[::2]  # rings have small degrees, stars degrees up to 10
    few, many = (load_dataset(graphs, features="labels+degree") for graphs in (rings, stars))
    assert few.degree_columns < many.degree_columns
    for trained, others in ((few, stars), (many, rings)):
        columns = trained.degree_columns
        x = load_for(description_of(trained), others)._data.x
        assert x.shape[1] == 3 + columns
        own = load_dataset(others, features="degree")._data.x.argmax(1)
        assert torch.equal(x[:, 3:].argmax(1), own.clamp(max=columns - 1))
        assert (x[:, 3:].sum(1) == 1).all()


def test_graphs_that_do_not_fit():
    wide, bare = small_graphs(), small_graphs()
    for graph in wide:
        graph.x = torch.ones(graph.num_nodes, 7)
    for graph in bare:
        graph.num_nodes = graph.x.size(0)
        del graph.x
    labels, both = (description_of(load_dataset(wide, features=each)) for each in ("labels", "labels+degree"))
    refused(lambda: load_for(labels, small_graphs()), "own has 3 columns of `x` (labels); the encoder was trained on")
    refused(lambda: load_for(labels, small_graphs()), "trained on own with 7 columns of labels.")
    refused(lambda: load_for(both, small_graphs()), f"with 7 columns of labels and {both.degree_columns} of degrees.")
    for description in (labels, both):
        refused(lambda given=description: load_for(given, bare), "own has no node labels (no `x`); the encoder was")
    edges = description_of(load_dataset(small_graphs(edge_attr=True)), encoder="gine")
    says = "own has no columns of `edge_attr`", "own with 2, which it requires."
    refused(lambda: load_for(edges, small_graphs()), *says)


def test_a_set_on_disk_is_taken_as_it_is(tmp_path):
    dataset = load_dataset(small_graphs(), features="degree")
    on_disk = write_on_disk(small_graphs(), tmp_path / "disk", features="degree")
    assert load_for(description_of(dataset), tmp_path / "disk").folder == on_disk.folder
    on_disk = write_on_disk(small_graphs(), tmp_path / "other")
    refused(lambda: load_for(description_of(dataset), on_disk), "3 columns of `x` (labels)", "columns of degrees.")


IDS = [None, [f"molecule {number}" for number in range(36)], [100 - number for number in range(36)]]


@pytest.mark.parametrize("ids", IDS, ids=["numbered", "texts", "numbers"])
def test_npz(ids, encoder, saved, tmp_path, capsys):
    path, expected = encoder
    graphs, out = small_graphs(labelled=ids is None), tmp_path / "e.npz"
    for graph, each in zip(graphs, ids or [], strict=ids is not None):
        graph.id = each
    for words, seed in ([], 4), (["--seed", "7", "--batch-size", "5", "--force"], 7):
        assert main([path, "--dataset", saved(graphs), "--out", str(out), *words]) == 0
        with np.load(out) as arrays:
            assert sorted(arrays) == (["h", "id", "y"] if ids is None else ["h", "id"])
            np.testing.assert_allclose(arrays["h"], expected[seed], rtol=1e-5)
            assert arrays["id"].tolist() == (ids or list(range(36)))
            assert ids or arrays["y"].tolist() == [0, 1] * 18
    classes = "no" if ids else "2"
    line = f"36 graphs, x: 3 columns (labels), {classes} classes), features: labels; 12 numbers per graph in {out}"
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("targets", [None, 2])
def test_parquet(encoder, saved, tmp_path, monkeypatch, targets):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(embedding_files, "_GROUP_ROWS", 20)
    path, expected = encoder
    graphs = small_graphs()
    for number, graph in enumerate(graphs):
        graph.y = graph.y if targets is None else torch.tensor([[number, -number]], dtype=torch.float)
    out = tmp_path / "e.parquet"
    assert main([path, "--dataset", saved(graphs), "--out", str(out), "--batch-size", "8"]) == 0
    file = parquet.ParquetFile(out)
    assert file.num_row_groups == 2  # 24 and 12 rows
    columns = file.read().to_pydict()
    names = ["y"] if targets is None else ["y0", "y1"]
    assert list(columns) == ["id", *names, *(f"h{number}" for number in range(12))]
    np.testing.assert_allclose(np.stack([columns[f"h{i}"] for i in range(12)], axis=1), expected[4], rtol=1e-5)
    assert columns[names[-1]] == ([0, 1] * 18 if targets is None else [-float(number) for number in range(36)])


def test_nothing_remains_of_what_failed(encoder, saved, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(embedding, "embed_batches", stop)
    assert main([encoder[0], "--dataset", saved(small_graphs()), "--out", str(tmp_path / "e.npz")]) == 2
    assert capsys.readouterr().err == "graphcl: No space left on device.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.pt", "graphs.pt"]


def refused(call, *says):
    with pytest.raises(InputError) as caught:
        call()
    for each in says:
        assert each in str(caught.value)
