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
from graphcl.evaluate.metrics import task_mean
from graphcl.experiment.build import make_model
from graphcl.experiment.finetune import check_labels, finetune, supervised_loss, with_outputs
from graphcl.training.loop import NonFiniteLossError
from tests.conftest import small_graphs
from tests.datasets.ogb_files import files_of, make_molecules, write_archive
from tests.strategies import needs_cuda

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


def started(dataset, seed=0, weights=0):
    """Return an untrained small encoder with an output layer."""
    config = make_config({"dataset": "ogbg-molhiv", "encoder": {"name": "auto", "hidden_channels": 8, "num_layers": 2}})
    return with_outputs(make_model(config, dataset, weights).encoder, dataset, seed)


@pytest.mark.parametrize("metric", ["rocauc", "ap", "rmse", "acc"])
def test_the_loss_equals_a_loop_over_known_labels(metric):
    generator = torch.Generator().manual_seed(0)
    tasks, outputs = (1, 5) if metric == "acc" else (4, 4)
    out = torch.randn(9, outputs, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randint(2, (9, tasks), generator=generator).double()
    y[torch.rand(y.shape, generator=generator) < 0.4] = torch.nan
    terms = []
    for i, row in enumerate(y.tolist()):
        for task, value in enumerate(row):
            if value != value:
                continue
            if metric == "acc":
                terms.append(-functional.log_softmax(out[i], 0)[int(value)])
            elif metric == "rmse":
                terms.append((out[i, task] - value) ** 2)
            else:
                p = torch.sigmoid(out[i, task])
                terms.append(-torch.log(p if value else 1 - p))
    assert 0 < len(terms) < y.numel()
    expected = torch.stack(terms).mean()
    torch.testing.assert_close(supervised_loss(out, y, metric), expected)
    (gradient,) = torch.autograd.grad(supervised_loss(out, y, metric), out)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, out)[0])


def test_without_labels_there_is_no_gradient():
    out = torch.randn(3, 2, requires_grad=True)
    loss = supervised_loss(out, torch.full((3, 2), torch.nan), "rocauc")
    loss.backward()
    assert loss.item() == 0
    assert not out.grad.any()


@needs_ogb
@pytest.mark.parametrize("name", ["ogbg-molhiv", "ogbg-moltox21", "ogbg-molesol"])
def test_the_epoch_is_the_best_on_the_validation_part(name, loaded):
    """OGB's evaluator gives the same validation and test scores for the final weights."""
    dataset, epochs = loaded(name), []
    model = started(dataset)
    found = finetune(model, dataset, **QUICK, callbacks=[epochs.append])
    valid = [each["valid"] for each in epochs]
    best = min(valid) if name == "ogbg-molesol" else max(valid)
    assert (found.inner, found.chosen) == ((best,), (1 + valid.index(best),))
    assert epochs[-1]["loss"] < epochs[0]["loss"]

    benchmark = dataset.benchmark
    for part, expected in (("valid", found.inner[0]), ("test", found.accuracy[0])):
        rows = [dataset[int(i)] for i in benchmark.split[part]]
        with torch.no_grad():
            h = torch.cat([model.eval().encoder(g.x, g.edge_index, edge_attr=g.edge_attr) for g in rows])
            out = h @ model.projector[0].weight.T + model.projector[0].bias
        found = task_mean(benchmark.eval_metric, torch.cat([g.y for g in rows]).numpy(), out.numpy())
        assert found == pytest.approx(expected, rel=1e-4)


@needs_ogb
def test_test_labels_change_nothing_but_the_score(loaded):
    found = []
    for flip in (False, True):
        dataset = loaded("ogbg-molhiv")
        if flip:
            rows = dataset.benchmark.split["test"]
            dataset._data.y[rows] = 1 - dataset._data.y[rows]
        model = started(dataset)
        found.append((finetune(model, dataset, **QUICK), model.state_dict()))
    (score, weights), (flipped, others) = found
    assert (score.chosen, score.inner) == (flipped.chosen, flipped.inner)
    assert all(torch.equal(weights[key], others[key]) for key in weights)
    assert flipped.accuracy[0] == pytest.approx(100 - score.accuracy[0])


@needs_ogb
def test_validation_labels_choose_but_train_nothing(loaded):
    runs = []
    for flip in (False, True):
        dataset, epochs = loaded("ogbg-molhiv"), []
        if flip:
            rows = dataset.benchmark.split["valid"]
            dataset._data.y[rows] = 1 - dataset._data.y[rows]
        finetune(started(dataset), dataset, **QUICK, callbacks=[epochs.append])
        runs.append(epochs)
    assert [each["loss"] for each in runs[0]] == [each["loss"] for each in runs[1]]
    assert [each["valid"] for each in runs[0]] == pytest.approx([100 - each["valid"] for each in runs[1]])


@needs_ogb
def test_two_starts_differ_in_the_encoder_only(loaded):
    """Equal seeds give equal output layers and equal training; another seed changes both."""
    dataset = loaded("ogbg-molhiv")
    one, other, reseeded = started(dataset), started(dataset, weights=1), started(dataset, seed=1)
    assert torch.equal(one.projector[0].weight, other.projector[0].weight)
    assert not torch.equal(one.encoder.atoms.tables, other.encoder.atoms.tables)
    assert not torch.equal(one.projector[0].weight, reseeded.projector[0].weight)

    torch.manual_seed(1)  # the global generator must not affect the result, nor change
    state, losses = torch.get_rng_state(), {}
    for key, seed in (("one", 3), ("again", 3), ("reseeded", 4)):
        epochs = []
        finetune(started(dataset), dataset, seed, **{**QUICK, "epochs": 1}, callbacks=[epochs.append])
        losses[key] = epochs[0]["loss"]
    assert torch.equal(state, torch.get_rng_state())
    assert losses["one"] == losses["again"] != losses["reseeded"]


@needs_ogb
def test_classes_are_learnt_by_cross_entropy(loaded):
    dataset = loaded("ogbg-molhiv")
    classes = torch.arange(40).remainder(3)[:, None].float()
    dataset._data.y = classes
    dataset.benchmark = dataclasses.replace(dataset.benchmark, eval_metric="acc")
    model = started(dataset)
    assert model.projector[0].out_features == 3
    found = finetune(model, dataset, **{**QUICK, "epochs": 1})
    assert found.metric == "acc"
    assert found.accuracy[0] in [100 * k / 8 for k in range(9)]


@needs_ogb
def test_messages(loaded):
    with pytest.raises(InputError, match=r"^own has no split, .* use `fold_splits`\.$"):
        check_labels(load_dataset(small_graphs()))
    dataset = loaded("ogbg-molhiv")
    dataset._data.y[dataset.benchmark.split["test"]] = 1
    with pytest.raises(InputError, match="ROC-AUC % is undefined: no task has both classes"):
        check_labels(dataset)
    dataset.benchmark = dataclasses.replace(dataset.benchmark, eval_metric="acc", num_tasks=2)
    with pytest.raises(InputError, match="ogbg-molhiv has 2 classification tasks; fine-tuning supports one"):
        with_outputs(torch.nn.Identity(), dataset)
    dataset = loaded("ogbg-molesol")
    dataset._data.y[:3] = np.inf
    with pytest.raises(NonFiniteLossError, match="the loss became NaN or infinite in epoch 1; try a smaller learning"):
        finetune(started(dataset), dataset, **QUICK)


@needs_ogb
@pytest.mark.cuda
@needs_cuda
def test_on_cuda(loaded):
    dataset, losses = loaded("ogbg-moltox21"), []
    for device in ("cpu", "cuda"):
        epochs = []
        finetune(started(dataset).to(device), dataset, **QUICK, dropout=0.0, callbacks=[epochs.append])
        losses.append(epochs[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
