"""Test Hu et al.'s GIN against its equation, its coding of molecules, and the reader of published weights."""

import re

import pytest
import torch
from torch.nn.functional import batch_norm

from graphcl.commands.transfer import main
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.experiment.encoder_input import load_for
from graphcl.experiment.finetune import finetune, with_outputs
from graphcl.extensions.molecules.gin import MoleculeGIN
from graphcl.models.saved import load_encoder

SMILES = ["F/C=C/F", "F/C=C\\Cl", "C[C@H](N)O", "C[C@@H](N)O", "c1ccncc1", "[NH3][Cu]", "O", "C#N", "[*]C"]


def published(hidden=6, layers=2):
    """Return a state dict with the keys and shapes of the released code, and random values."""
    torch.manual_seed(0)
    shapes = {"x_embedding1.weight": (120, hidden), "x_embedding2.weight": (3, hidden)}
    for layer in range(layers):
        place, wide = f"gnns.{layer}", 2 * hidden
        shapes |= {f"{place}.mlp.0.weight": (wide, hidden), f"{place}.mlp.0.bias": (wide,)}
        shapes |= {f"{place}.mlp.2.weight": (hidden, wide), f"{place}.mlp.2.bias": (hidden,)}
        shapes |= {f"{place}.edge_embedding1.weight": (6, hidden), f"{place}.edge_embedding2.weight": (3, hidden)}
        names = ("weight", "bias", "running_mean", "running_var")
        shapes |= {f"batch_norms.{layer}.{name}": (hidden,) for name in names}
    state = {key: torch.rand(shape) + 0.1 for key, shape in shapes.items()}
    return state | {f"batch_norms.{layer}.num_batches_tracked": torch.tensor(3) for layer in range(layers)}


def by_the_equation(state, graph, layers=2):
    """Return the embedding of one graph, node by node and in float64."""
    state = {key: value.double() for key, value in state.items()}
    rows = [state["x_embedding1.weight"][a] + state["x_embedding2.weight"][c] for a, c in graph.x.tolist()]
    edges = list(zip(*graph.edge_index.tolist(), graph.edge_attr.tolist(), strict=True))
    edges += [(node, node, [4, 0]) for node in range(len(rows))]
    for layer in range(layers):
        weight = {key.removeprefix(f"gnns.{layer}."): value for key, value in state.items()}
        norm = {key.removeprefix(f"batch_norms.{layer}."): value for key, value in state.items()}
        after = []
        for node in range(len(rows)):
            total = torch.zeros_like(rows[0])
            for source, target, (kind, direction) in edges:
                if target == node:
                    total = total + rows[source]
                    total = total + weight["edge_embedding1.weight"][kind] + weight["edge_embedding2.weight"][direction]
            hidden = (weight["mlp.0.weight"] @ total + weight["mlp.0.bias"]).relu()
            out = (weight["mlp.2.weight"] @ hidden + weight["mlp.2.bias"])[None]
            statistics = norm["running_mean"], norm["running_var"], norm["weight"], norm["bias"]
            after.append(batch_norm(out, *statistics)[0])
        rows = [row.relu() for row in after] if layer < layers - 1 else after
    return torch.stack(rows).mean(0)


@pytest.mark.parametrize("zipped", [True, False])
def test_published_weights_embed_as_the_equation_says(tmp_path, zipped):
    pytest.importorskip("rdkit")
    state = published()
    torch.save(state, tmp_path / "graphcl_80.pth", _use_new_zipfile_serialization=zipped)
    encoder, description = load_encoder(tmp_path / "graphcl_80.pth")
    assert isinstance(encoder, MoleculeGIN)
    dataset = load_for(description, SMILES)  # in the columns that the encoder expects
    for graph in dataset:
        h = encoder.double()(graph.x, graph.edge_index, edge_attr=graph.edge_attr)[0]
        torch.testing.assert_close(h, by_the_equation(state, graph))


def test_the_coding():
    pytest.importorskip("rdkit")
    trans, cis, left, right, ring, metal, water, nitrile, any_atom = load_dataset(SMILES, coding="hu", categories=True)
    assert trans.x.tolist() == [[8, 0], [5, 0], [5, 0], [8, 0]]
    assert trans.edge_attr[::2].tolist() == [[0, 1], [1, 0], [0, 1]]
    assert cis.edge_attr[::2, 1].tolist() == [1, 0, 2]
    assert torch.equal(trans.edge_attr[::2], trans.edge_attr[1::2])
    assert trans.edge_index[:, :2].tolist() == [[0, 1], [1, 0]]
    assert [graph.x[1, 1].item() for graph in (left, right)] == [2, 1]
    assert set(ring.edge_attr[:, 0].tolist()) == {3}
    assert nitrile.edge_attr[0].tolist() == [2, 0]
    assert (water.x.tolist(), water.edge_attr.shape) == ([[7, 0]], (0, 2))
    assert any_atom.x[0, 0] == 118
    assert metal.x[1, 0] == 28


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("x_embedding1.weight"), "holds a state dict without `x_embedding1.weight`"),
        (lambda state: state.pop("gnns.0.mlp.0.weight"), "`gnns.0.mlp.0.weight` is missing in the file"),
        (lambda state: state.update({"gnns.0.linear.weight": torch.ones(6, 6)}), "`gnns.0.linear.weight` is [6, 6]"),
        (lambda state: state["gnns.1.mlp.0.bias"].fill_(torch.nan), "has a value that is NaN"),
    ],
)
def test_weights_of_another_form_are_refused(tmp_path, change, message):
    state = published()
    change(state)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(InputError, match=re.escape(message)):
        load_encoder(tmp_path / "w.pth")


def test_masks_and_wrong_columns():
    encoder = MoleculeGIN(2, 2, hidden_channels=4, num_layers=1).eval()
    ends, bond = torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 2).long()
    masked, row = torch.tensor([[-1, -1], [5, 0]]), torch.tensor([[119, 0], [5, 0]])
    assert torch.equal(encoder(masked, ends, edge_attr=bond), encoder(row, ends, edge_attr=bond))
    with pytest.raises(InputError, match=r"`x` must be in 0 \.\. 119 and 0 \.\. 2"):
        encoder(torch.tensor([[5, 3], [5, 0]]), ends, edge_attr=bond)
    with pytest.raises(InputError, match="takes 2 columns of `x` and 2 of `edge_attr`, got 9 and 3; pass --coding hu"):
        MoleculeGIN(9, 3)


@pytest.fixture
def tables(tmp_path):
    """Return paths of two tables: like BBBP with one target, and with several, of which some cells are missing."""
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCOC1", "c1ccsc1", ""]
    texts = [f"{'C' * (1 + k % 5)}{rings[k % 6] or 'O'}" for k in range(90)]
    rows = [(text, k // 6 % 2, k // 6 % 3 // 2, "" if k % 7 == 0 else k // 6 % 2) for k, text in enumerate(texts)]
    (tmp_path / "BBBP.csv").write_text("\n".join(["smiles,p_np", *(f"{s},{a}" for s, a, *_ in rows)]))
    (tmp_path / "tox.csv").write_text("\n".join(["smiles,a,b,c", *(f"{s},{a},{b},{c}" for s, a, b, c in rows)]))
    return tmp_path


def test_the_transfer_protocol_is_one_command(tables, capsys):
    pytest.importorskip("rdkit")
    targets = ["--dataset", f"{tables}/BBBP.csv", f"{tables}/tox.csv:a,b,c", "--seeds", "0", "1", "--epochs", "2"]
    words = ["--config", "graphcl_molecules", *targets, "--out"]
    small = [f"--pretrain.dataset={tables}/BBBP.csv", "--pretrain.epochs", "1"]
    small += ["--pretrain.encoder.hidden_channels", "4"]
    assert main([*words, str(tables / "out"), *small]) == 0
    assert "| pretrained, fine-tuned | " in capsys.readouterr().out
    torch.save(published(), tables / "graphcl_80.pth")
    assert main([str(tables / "graphcl_80.pth"), *words, str(tables / "published")]) == 0
    for name in ("out", "published"):
        head, _, *rows = (tables / name / "table.md").read_text().splitlines()[:4]
        assert [cell.strip() for cell in head.split("|")[2:4]] == ["BBBP (ROC-AUC %)", "tox (ROC-AUC %)"]
        assert [row.split("|")[1].strip() for row in rows] == ["pretrained, fine-tuned", "from scratch"]
        assert all(re.fullmatch(r"[\d.]+ ± [\d.]+", cell.strip()) for row in rows for cell in row.split("|")[2:4])


def test_fine_tuning_drops_entries_in_every_layer(tables):
    pytest.importorskip("rdkit")
    settings = {"target": "p_np", "split": "random", "coding": "hu", "categories": True}
    dataset = load_dataset(str(tables / "BBBP.csv"), **settings)
    model = with_outputs(MoleculeGIN(2, 2, hidden_channels=8, num_layers=3), dataset)
    calls, seen = [], []
    model.encoder.batch_norms[1].register_forward_hook(lambda *_: calls.append(model.encoder.drop is not None))
    model.encoder.gnns[2].mlp.register_forward_pre_hook(lambda mlp, rows: seen.append(mlp.training))
    finetune(model, dataset, epochs=1, dropout=0.5)
    assert all(calls[:3])
    assert True in seen
    assert model.encoder.drop is None
