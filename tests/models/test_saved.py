"""Test saving and loading encoders: contents of the file, the loaded encoder, and errors."""

import os
import pickle
from random import Random

import pytest
import torch
from torch import nn
from torch_geometric.nn import global_add_pool

import graphcl
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.loaders.resident import ResidentLoader
from graphcl.models.gin import GIN
from graphcl.models.saved import FORMAT, EncoderDescription, load_encoder, read_saved, save_encoder
from graphcl.training.loop import embed
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line
from tests.trials import describe, make_model


class Own(nn.Module):
    """A user's encoder: one linear layer."""

    def __init__(self, in_channels, width=5):
        super().__init__()
        self.layer, self.out_channels = nn.Linear(in_channels, width), width

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.layer(x), batch)


def write(path, encoder="gin", seeds=(0,), features="labels", **settings):
    """Write untrained encoders to a file; return the data set and the models by seed."""
    named = isinstance(encoder, str | dict)
    config, own = make_config(settings | {"encoder": encoder} if named else settings), None if named else encoder
    dataset = load_dataset(small_graphs(edge_attr=True), features=features)
    models = {seed: make_model(config, dataset, seed, own) for seed in seeds}
    weights = {seed: model.encoder.state_dict() for seed, model in models.items()}
    save_encoder(path, describe(config, dataset, models[seeds[0]], own), weights)
    return dataset, models


def test_contents_of_the_file(tmp_path):
    write(tmp_path / "e.pt", seeds=(3, 1), features="labels+degree", loss="adnce")
    content = torch.load(tmp_path / "e.pt", weights_only=True)
    assert (content["format"], content["version"], content["graphcl"]) == (FORMAT, 1, graphcl.__version__)
    arguments = {"hidden_channels": 32, "num_layers": 3, "readout": "sum"}
    assert content["encoder"] == {"name": "gin", "arguments": arguments}
    assert (content["features"], content["label_columns"], content["edge_dim"]) == ("labels+degree", 3, None)
    assert (content["out_channels"], content["settings"]["loss"]["name"]) == (96, "adnce")
    assert list(content["weights"]) == [3, 1]
    assert read_saved(tmp_path / "e.pt")[0].degree_columns == content["in_channels"] - 3 > 1


@pytest.mark.parametrize("encoder", ["gin", {"name": "gine", "hidden_channels": 4, "num_layers": 2, "readout": "mean"}])
def test_a_registered_encoder_comes_back(encoder, tmp_path):
    """Loading selects the requested seed's weights, gives equal embeddings, and draws no random number."""
    dataset, models = write(tmp_path / "encoder.pt", encoder, seeds=(3, 1))
    loader = ResidentLoader(dataset, 16)
    before = torch.random.get_rng_state()
    for seed, path in ((None, tmp_path), (1, tmp_path / "encoder.pt")):
        loaded, description = load_encoder(path, seed)
        h, _ = embed(loaded, loader)
        assert torch.equal(h, embed(models[seed or 3], loader)[0])
        assert not loaded.training
        assert description.edge_dim == (None if encoder == "gin" else 2)
    assert torch.equal(torch.random.get_rng_state(), before)
    one_line(lambda: load_encoder(tmp_path / "encoder.pt", 0), "encoder.pt holds no seed 0; it holds 3, 1.")


def test_an_unregistered_module_comes_back(tmp_path):
    path = tmp_path / "e.pt"
    dataset, models = write(path, Own)
    loader = ResidentLoader(dataset, 16)
    given = Own(3)
    for encoder in (Own, given):
        loaded, description = load_encoder(path, encoder=encoder)
        assert torch.equal(embed(loaded, loader)[0], embed(models[0], loader)[0])
    assert loaded is not given
    assert not torch.equal(loaded.layer.weight, given.layer.weight)  # the given module is copied
    assert (description.encoder.name, description.encoder.arguments) == ("Own", None)
    assert EncoderDescription.of(torch.compile(given), dataset).encoder.name == "Own"
    for encoder, says in [
        (None, "holds weights of `Own`, which is not registered here; pass its file as --import FILE"),
        (3, "`encoder` must be a module or a function of the number"),
        (lambda columns: Own(columns, 4), "that do not fit Own: `layer.weight` is [5, 3] torch.float32 "
         "in the file and [4, 3] torch.float32 in the module; `layer.bias` is"),
        (GIN, "`layer.bias` is [5] torch.float32 in the file and missing in the module; `convs.0.nn.0.weight` is "
         "missing in the file and [32, 3] torch.float32 in the module and 26 more."),
    ]:  # fmt: skip
        one_line(lambda: load_encoder(path, encoder=encoder), says)  # noqa: B023, called at once


GONE = object()


def changed(**changes):
    def change(path):
        content = torch.load(path, weights_only=True) | changes
        torch.save({key: value for key, value in content.items() if value is not GONE}, path)

    return change


def weight(name, change):
    """Return a function that changes the first weight called `name` in a file."""

    def damage(path):
        content = torch.load(path, weights_only=True)
        key = next(key for key in content["weights"][0] if key.endswith(name))
        content["weights"][0][key] = change(content["weights"][0][key])
        torch.save(content, path)

    return damage


def encoder(**arguments):
    return changed(encoder={"name": "gin", "arguments": arguments})


def with_code(path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(path.parent / "pwned"),)

    torch.save({"format": FORMAT, "weights": Evil()}, path)


NO_STATES = "is corrupted: `weights` must map seeds to the state dicts"
DAMAGE = {
    "missing": (lambda path: path.unlink(), "not found; give a run's folder, its encoder.pt, or"),
    "code": (with_code, "holds pickled code (posix.mkdir), which is never run; an encoder is saved as plain tensors"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps(print)),
               "is not a PyTorch file, or is corrupted (File is not a zip file"),
    "state": (lambda path: torch.save(Own(3).state_dict(), path), "is not an encoder of this library"),
    "version": (changed(version=2), "has format 2, this library reads 1; train it again."),
    **{f"weights {each}": (changed(weights=each), NO_STATES)
       for each in ({"a": {}}, {})},
    "no columns": (changed(in_channels=GONE), "is corrupted: `in_channels` is required."),
    "columns": (changed(in_channels="7"), "is corrupted: `in_channels` must be a whole number, got '7'."),
    "features": (changed(features="auto"), "is corrupted: `features` must be 'labels', 'constant', 'degree' or"),
    "unknown": (changed(extra=1), "is corrupted: `extra` is not a known key"),
    "name of the encoder": (changed(encoder={"name": "mine", "arguments": {}}),
                            "holds weights of `mine`, which is not registered"),
    "arguments": (encoder(hidden_channels=0), "`encoder.arguments.hidden_channels` must be in [1, 16384], got 0."),
    "deep": (encoder(num_layers=10**9), "`encoder.arguments.num_layers` must be in [1, 1000], got 1000000000."),
    "more layers": (encoder(num_layers=32), "do not fit GIN: `convs.3.nn.0.weight` is missing in the file and [32"),
    "width": (encoder(hidden_channels=8), "do not fit GIN: `convs.0.nn.0.weight` is [32, 3] torch.float32 in the file "
              "and [8, 3] torch.float32 in the module;"),
    "embedding": (changed(out_channels=7), "is corrupted: its encoder is 96 wide, not 7."),
    "settings": (changed(settings={"a": [torch.ones(1)]}),
                 "is corrupted: `settings.a.list.0` input was not a valid JSON value."),
    "name": (changed(dataset="a\x1b[2Jb"), "is corrupted: `dataset` must be printable and of at most 200 characters"),
    "nan": (weight("nn.0.weight", lambda w: w / 0), "nn.0.weight` has a value that is NaN, infinite, or a"),
    "variance": (weight("running_var", lambda v: v - 2), "running_var` has a value that is NaN, infinite, or a"),
    "dtype": (weight("nn.0.bias", torch.Tensor.double), "nn.0.bias` is [32] torch.float64 in the file and [32]"),
}  # fmt: skip


def test_a_damaged_file_is_rejected(tmp_path):
    path = tmp_path / "e.pt"
    write(path)
    content = path.read_bytes()
    for name, (damage, says) in DAMAGE.items():
        path.write_bytes(content)
        damage(path)
        one_line(lambda: load_encoder(path), says)
        assert not (tmp_path / "pwned").exists(), name


def test_changed_bytes_are_harmless_or_get_one_line(tmp_path):
    """A file that is cut off, or with one byte changed, is rejected in one line or loads the same weights."""
    path, lines = tmp_path / "e.pt", []
    expected = write(path)[1][0].encoder.state_dict()
    content, random = path.read_bytes(), Random(0)
    for number in range(40):
        place = random.randrange(len(content))
        changed = bytes([content[place] ^ random.randrange(1, 256)])
        path.write_bytes(content[:place] + (changed + content[place + 1 :]) * (number % 4 > 0))
        try:
            weights = load_encoder(path)[0].state_dict()
            assert all(torch.equal(weights[key], value) for key, value in expected.items())
        except InputError as error:
            lines.append(str(error))
    assert len(lines) > 20
    assert not any("\n" in line for line in lines)
