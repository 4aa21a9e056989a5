"""Fine-tuning: the loss equals a loop, the epoch is selected on validation labels, and errors have a message."""

import dataclasses
import importlib.util

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.evaluate.on_split import task_mean
from graphcl.experiment.finetune import check_labels, finetune, refit, supervised_loss, with_outputs
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.samplers import EpochBatches
from graphcl.training.loop import NonFiniteLossError, embed
from tests.conftest import small_graphs
from tests.datasets.ogb_files import files_of, make_molecules, write_archive
from tests.strategies import seeded
from tests.trials import make_model

needs_ogb = pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="ogb is not installed")
QUICK = {"epochs": 4, "batch_size": 8, "lr": 0.02}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Return a function that loads a synthetic data set by an OGB name, again at every call, as tests modify it."""
    folder = tmp_path_factory.mktemp("ogb")
    write_archive(folder / "archives", files_of(make_molecules(40)), "hiv")
    write_archive(folder / "archives", files_of(make_molecules(40, tasks=12, missing=0.2)), "tox21")
    write_archive(folder / "archives", files_of(make_molecules(40, metric="rmse")), "esol")
    return lambda name: load_dataset(name, folder / "root", folder / "archives")


def started(dataset):
    """Return an untrained small encoder with an output layer."""
    config = make_config({"dataset": "ogbg-molhiv", "encoder": {"name": "auto", "hidden_channels": 8, "num_layers": 2}})
    return with_outputs(make_model(config, dataset).encoder, dataset)


@pytest.mark.parametrize("metric", ["rocauc", "ap", "rmse", "acc"])
def test_the_loss_equals_a_loop_over_known_labels(metric):
    generator = seeded(0)
    tasks, outputs = (1, 5) if metric == "acc" else (4, 4)
    out = torch.randn(9, outputs, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randint(2, (9, tasks), generator=generator).double()
    y[torch.rand(y.shape, generator=generator) < 0.4] = torch.nan
    terms = []
    for i, task in (~y.isnan()).nonzero().tolist():
        value = y[i, task].item()
        if metric == "acc":
            terms.append(-functional.log_softmax(out[i], 0)[int(value)])
        elif metric == "rmse":
            terms.append((out[i, task] - value) ** 2)
        else:
            p = torch.sigmoid(out[i, task])
            terms.append(-torch.log(p if value else 1 - p))
    assert 0 < len(terms) < y.numel()
    expected, found = torch.stack(terms).mean(), supervised_loss(out, y, metric)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, out)[0], torch.autograd.grad(expected, out)[0])
    nothing = supervised_loss(out, torch.full_like(y, torch.nan), metric)  # no label, no gradient
    assert nothing.item() == 0 == torch.autograd.grad(nothing, out)[0].abs().max()


@needs_ogb
def test_the_epoch_is_the_best_on_the_validation_part(loaded):
    """OGB's evaluator gives the same validation and test scores for the final weights."""
    for name in ("ogbg-molhiv", "ogbg-moltox21", "ogbg-molesol"):
        dataset, epochs = loaded(name), []
        model = started(dataset)
        score = finetune(model, dataset, **QUICK, callbacks=[epochs.append])
        valid = [each["valid"] for each in epochs]
        best = min(valid) if name == "ogbg-molesol" else max(valid)
        assert (score.inner, score.chosen) == ((best,), (1 + valid.index(best),)), name
        assert epochs[-1]["loss"] < epochs[0]["loss"], name
        for part, expected in (("valid", score.inner[0]), ("test", score.accuracy[0])):
            rows = [dataset[int(i)] for i in dataset.benchmark.split[part]]
            with torch.no_grad():
                h = torch.cat([model.eval().encoder(g.x, g.edge_index, edge_attr=g.edge_attr) for g in rows])
                out = (h @ model.projector[0].weight.T + model.projector[0].bias).numpy()
            found = task_mean(dataset.benchmark.eval_metric, torch.cat([g.y for g in rows]).numpy(), out)
            assert found == pytest.approx(expected, rel=1e-4), name


@needs_ogb
def test_only_training_labels_train(loaded):
    """Flipped test labels change the test score only; flipped validation labels change the selection only."""
    runs = {}
    for flipped in ("nothing", "test", "valid"):
        dataset, epochs = loaded("ogbg-molhiv"), []
        if flipped != "nothing":
            rows = dataset.benchmark.split[flipped]
            dataset._data.y[rows] = 1 - dataset._data.y[rows]
        model = started(dataset)
        score = finetune(model, dataset, **QUICK, callbacks=[epochs.append])
        runs[flipped] = score, model.state_dict(), [(each["loss"], each["valid"]) for each in epochs]
    score, weights, epochs = runs["nothing"]
    flipped, others, _ = runs["test"]
    assert (score.chosen, score.inner) == (flipped.chosen, flipped.inner)
    assert all(torch.equal(weights[key], others[key]) for key in weights)
    assert flipped.accuracy[0] == pytest.approx(100 - score.accuracy[0])
    assert np.array(runs["valid"][2]) == pytest.approx(np.array([(loss, 100 - valid) for loss, valid in epochs]))


@needs_ogb
def test_equal_seeds_give_equal_training(loaded):
    dataset, state, epochs = loaded("ogbg-molhiv"), torch.get_rng_state(), []
    for seed in (3, 3, 4):
        finetune(started(dataset), dataset, seed, **{**QUICK, "epochs": 1}, callbacks=[epochs.append])
    assert torch.equal(state, torch.get_rng_state())
    first, again, third = (each["loss"] for each in epochs)
    assert first == again != third


@needs_ogb
def test_a_linear_layer_is_trained_on_the_embeddings_of_the_frozen_encoder(loaded):
    """The layer's weights equal those of a loop over embeddings, and the encoder's do not change."""
    dataset = loaded("ogbg-molesol")
    model, reference = started(dataset), started(dataset)
    train = dataset.benchmark.split["train"]
    h, y = embed(reference.encoder, ResidentLoader(dataset[train], 5))
    sampler = EpochBatches(len(train), QUICK["batch_size"], True, seeded(2))
    optimiser = torch.optim.Adam(reference.projector.parameters(), QUICK["lr"])
    for _ in range(QUICK["epochs"]):
        for rows in sampler.draw():
            optimiser.zero_grad()
            functional.mse_loss(reference.projector(h[rows]), y[rows]).backward()
            optimiser.step()
    refit(model, dataset, seed=1, **QUICK, weight_decay=0.0, dropout=0.0, frozen=True)
    expected = reference.state_dict()
    torch.testing.assert_close(model.state_dict(), expected)
    assert not torch.equal(expected["projector.0.weight"], started(dataset).state_dict()["projector.0.weight"])


@needs_ogb
def test_messages(loaded):
    constant, several, infinite = loaded("ogbg-molhiv"), loaded("ogbg-molhiv"), loaded("ogbg-molesol")
    constant._data.y[constant.benchmark.split["test"]] = 1
    several.benchmark = dataclasses.replace(several.benchmark, eval_metric="acc", num_tasks=2)
    infinite._data.y[:3] = np.inf
    for call, error, words in (
        (lambda: check_labels(load_dataset(small_graphs())), InputError, r"^own has no split, .* use `fold_splits`\.$"),
        (lambda: check_labels(constant), InputError, "ROC-AUC % is undefined: no task has both classes"),
        (lambda: with_outputs(torch.nn.Identity(), several), InputError, "ogbg-molhiv has 2 classification tasks"),
        (lambda: finetune(started(infinite), infinite), NonFiniteLossError, "the loss became NaN or infinite in epoch"),
    ):
        with pytest.raises(error, match=words):
            call()
