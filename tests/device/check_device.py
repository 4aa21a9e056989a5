"""Run the CUDA paths beside the CPU; see tests/test_device.py, which starts this file on a fake or a real device."""

import copy
import gc
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from torch_geometric.data import Batch, InMemoryDataset

from graphcl import ContrastiveModel, GraphCL, Loss, embed, load_dataset, make_loader, svm, train
from graphcl.augment import Compose, Decision, NodeDrop, OneOf, apply_decision
from graphcl.config import make_config
from graphcl.datasets import preparation
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.errors import InputError
from graphcl.experiment.finetune import finetune, with_outputs
from graphcl.experiment.run_config import run as run_all
from graphcl.extensions.nodes.models import NodeModel, node_gcn
from graphcl.extensions.nodes.task import NeighbourLoader
from graphcl.graphs.compact import Compact
from graphcl.loaders import resident
from graphcl.loaders.samplers import EpochPairs
from graphcl.models.batchnorm import Padding, calibrate, padded_norm
from graphcl.registry import augmentations, encoders, losses, methods
from graphcl.training import epoch
from graphcl.training.checkpoint import Checkpoints
from tests.conftest import small_graphs
from tests.device.draws import CpuDraws
from tests.strategies import assert_same_graphs, copies, lollipop

try:
    from tests.device.fake import LOG
except ImportError:  # a real device: nothing counts the waits
    LOG = None

torch.set_num_threads(1)
GRAPHS = small_graphs(48, edge_attr=True)
COUNTED = pytest.mark.skipif(LOG is None, reason="only the fake device counts waits")


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    """Use deterministic algorithms: everything below must have one."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def cpu_draws(monkeypatch):
    """Let the device draw the numbers of the CPU, so that views, noise and dropout are equal."""
    monkeypatch.setattr(epoch, "alike", lambda one, two: False)  # one call for both views draws other numbers
    with CpuDraws():
        yield


as_on_the_cpu = pytest.mark.usefixtures("cpu_draws")


@pytest.fixture(scope="module")
def dataset():
    return load_dataset(GRAPHS)


def seeded(device, seed=0):
    return torch.Generator(device).manual_seed(seed)


def close(one, two, where="", rtol=1e-4, atol=1e-5):
    """Assert that two nested values are equal up to rounding; by default up to that of float32."""
    if isinstance(two, dict):
        assert one.keys() == two.keys(), where
        for key in two:
            close(one[key], two[key], f"{where}.{key}", rtol, atol)
    elif isinstance(two, torch.Tensor):
        assert (one.shape, one.dtype) == (two.shape, two.dtype), where
        torch.testing.assert_close(one.cpu(), two, rtol=rtol, atol=atol, msg=lambda text: f"{where}: {text}")
    else:
        assert one == two, where


def close_rows(one, two, tolerance):
    """Assert that two arrays are equal up to `tolerance` times the norm of the second.

    BatchNorm and ReLU enlarge the rounding of single entries in float32, so entries are not compared one by one.
    """
    one, two = torch.as_tensor(one).cpu(), torch.as_tensor(two)
    assert one.shape == two.shape
    assert (one - two).norm() <= tolerance * two.norm()


# -- augmentations -----------------------------------------------------------------------------------------------------

MEMBERS = {"members": ["node_drop", "edge_drop"]}
SAME_SIZES = ["identity", "node_drop", "subgraph", "attribute_mask", "edge_drop", "feature_mask", "drop_and_mask"]


def to_cpu(value):
    if isinstance(value, Decision):
        return Decision(**{key: to_cpu(each) for key, each in vars(value).items()})
    return value if value is None else value.cpu()


@pytest.mark.parametrize("name", augmentations)
def test_an_augmentation_gives_valid_views_on_the_device(name, dataset):
    """Sizes of the graphs equal those on the CPU where no draw decides on them, and the draws depend on the seed."""
    augmentation = augmentations[name](**MEMBERS if name in ("compose", "one_of") else {})
    batch, on_cpu = (next(iter(make_loader(dataset, 48, device=device))) for device in ("cuda", "cpu"))
    views = [augmentation(batch, seeded("cuda", seed)).to("cpu") for seed in (1, 1, 2)]
    for view in views:
        assert view.num_graphs == 48
        assert view.ptr.diff().min() >= 1
        again = type(on_cpu).from_data_list(view.to_data_list())
        assert torch.equal(again.edge_index, view.edge_index)
        assert torch.equal(again.ptr, view.ptr)
    decision = augmentation.decide(batch, seeded("cuda", 1))
    for same in (views[1], apply_decision(batch, decision).to("cpu"), apply_decision(on_cpu, to_cpu(decision))):
        assert torch.equal(views[0].edge_index, same.edge_index)
        assert torch.equal(views[0].x, same.x)
    if name in SAME_SIZES:
        assert torch.equal(views[0].ptr, augmentation(on_cpu, seeded("cpu")).ptr)
    if name != "identity":
        assert any(views[0][key].shape != views[2][key].shape or not torch.equal(views[0][key], views[2][key])
                   for key in ("x", "edge_index"))  # fmt: skip


def outcomes(name, device, graphs=None):
    """Return what each of 3,000 copies of a triangle with a tail became: its nodes and its edges."""
    batch = copies(3000, 5, lollipop())
    mask = None if graphs is None else graphs.to(device)
    view = augmentations[name](ratio=0.4)(batch.to(device), seeded(device, 3), mask).to("cpu")
    edges = view.node_id[view.edge_index].T.tolist()
    found = [[set(), []] for _ in range(3000)]
    for graph, node in zip(view.batch.tolist(), view.node_id.tolist(), strict=True):
        found[graph][0].add(node)
    for graph, edge in zip(view.batch[view.edge_index[0]].tolist(), edges, strict=True):
        found[graph][1].append(tuple(edge))
    return [(tuple(sorted(nodes)), tuple(sorted(ends))) for nodes, ends in found]


@pytest.mark.parametrize("name", ["node_drop", "subgraph", "edge_perturb"])
def test_draws_follow_the_law_of_the_cpus_loops(name):
    """A chi-square test of two samples, alpha = 1e-6; the seeds are fixed. Graphs outside a mask stay as they are."""
    device, cpu = (Counter(outcomes(name, each)) for each in ("cuda", "cpu"))
    every = sorted(device | cpu)
    table = np.array([[found[each] for each in every] for found in (device, cpu)])
    common = table.sum(axis=0) >= 20
    table = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
    assert chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-6
    assert len(every) > 3
    masked = outcomes(name, "cuda", torch.arange(3000) % 2 == 0)
    assert set(masked[1::2]) == {((0, 1, 2, 3, 4), tuple(sorted(lollipop())))}
    assert set(masked[::2]) <= set(every)


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", losses)
def test_a_loss_and_its_gradients_equal_the_cpus(name, monkeypatch):
    # generators of two devices draw different numbers
    directions = torch.eye(16) - 1 / 16
    monkeypatch.setattr("graphcl.losses.formulas.sigreg.draw_directions", lambda count, rows, _: directions.to(rows))
    z1, z2, queue = (torch.randn(32, 16, generator=seeded("cpu", seed)) for seed in range(3))
    loss = Loss(name)
    options = [{}]
    for engine in ("dense", "tiled") if loss.accepts("engine") else ():
        options += [
            {"engine": engine},
            *([{"engine": engine, "negatives": "all"}] if loss.accepts("negatives") else []),
        ]
    if loss.accepts("queue"):
        ids = {"queue": queue, "ids": torch.arange(32), "queue_ids": torch.arange(32)}
        options = [*(options if loss.setting("negatives") != "queue" else []), ids]
    labels = {"labels": torch.arange(32) % 4} if loss.accepts("labels") else {}
    weight = {"weight": torch.rand(32, generator=seeded("cpu", 3))} if loss.accepts("weight") else {}
    for option in [*options, {**options[0], **weight}]:
        found = []
        for device in ("cuda", "cpu"):
            views = [z.to(device).clone().requires_grad_() for z in (z1, z2)]
            given = {**option, **labels}
            given = {key: each.to(device) if isinstance(each, torch.Tensor) else each for key, each in given.items()}
            value = loss(*views, **given)
            value.backward()
            found.append({"loss": value.detach(), "gradients": [z.grad for z in views if z.grad is not None]})
        assert len(found[0]["gradients"]) == len(found[1]["gradients"])
        for one, two in zip(*(each.pop("gradients") for each in found), strict=True):
            close(one, two, f"{name} {list(option)}")
        close(*found, name)


# -- draws -------------------------------------------------------------------------------------------------------------


def draws(device):
    """Return draws from a generator, from the default generator, and from the former in its state after one draw."""
    own, places, x = seeded(device, 3), {"device": device}, torch.zeros(40, device=device)
    torch.manual_seed(4)
    first, state = torch.rand(3, generator=own, **places), own.get_state()
    found = [
        torch.randperm(20, generator=own, **places), torch.randint(99, (20,), generator=own, **places),
        x.uniform_(generator=own).clone(), torch.bernoulli(x, generator=own),
        torch.multinomial(x, 9, generator=own), x.normal_(generator=own).clone(),
        torch.randn(3, **places), torch.rand_like(x), torch.nn.functional.dropout(torch.ones_like(x), 0.5),
    ]  # fmt: skip
    own.set_state(state)
    return [*found, first, torch.randperm(20, generator=own, **places)]


def test_the_draws_of_the_checks_equal_those_of_the_cpu(cpu_draws):
    on_device, on_cpu = draws("cuda"), draws("cpu")
    assert all(one.is_cuda and torch.equal(one.cpu(), two) for one, two in zip(on_device, on_cpu, strict=True))
    assert torch.equal(on_device[0], on_device[-1])


# -- methods and encoders ----------------------------------------------------------------------------------------------

VIEW = OneOf(["identity", "edge_drop", "feature_mask"])


FLOAT64 = {"rtol": 1e-7, "atol": 1e-9}
"""Tolerances in float64, in which training is compared. In float32, a gradient that cancels, such as that of a bias
before BatchNorm, is mere rounding, which differs between devices, and Adam turns it into whole steps."""


def in_float64(dataset):
    """Return a copy of `dataset` whose floating-point columns are in float64."""
    found, found._data, found._data_list = copy.copy(dataset), copy.copy(dataset._data), None
    found._data.apply(lambda value: value.double() if value.is_floating_point() else value)
    return found


def method_of(name, dataset, device, encoder="gin"):
    torch.manual_seed(0)
    extra = {"edge_dim": dataset.num_edge_features} if "edge_dim" in encoders.arguments(encoder).required else {}
    if methods.facts(name).get("rows") == "nodes":
        model = NodeModel(node_gcn(dataset.num_features, hidden_channels=16, out_channels=8))
    else:
        model = ContrastiveModel(encoders[encoder](dataset.num_features, **extra))
    known = {"num_graphs": len(dataset), "first": VIEW, "second": VIEW}
    given = {key: known[key] for key in methods.arguments(name).required if key in known}
    usual = methods.facts(name).get("loss") or make_config({"method": name}).loss["name"]
    return methods[name](model.to(device), Loss(usual), **given).to(device)


def trained(dataset, device, name="two_views", view=None, batch=24, encoder="gin", dtype=torch.float32, **options):
    """Return the losses of all epochs and the trained weights."""
    dataset = in_float64(dataset) if dtype == torch.float64 else dataset
    method = method_of(name, dataset, device, encoder).to(dtype)
    nodes = methods.facts(name).get("rows") == "nodes"
    loader = make_loader(dataset, 1 if nodes else batch, shuffle=True, generator=seeded("cpu"), device=device)
    view = view or (VIEW if "joao" in name else Compose(["edge_drop", "feature_mask"]) if nodes else "feature_mask")
    settings = {"epochs": 2, "optimizer": "sgd", "lr": 1e-3} | options
    torch.manual_seed(5)
    history = train(method, loader, view, view, generator=seeded(device), **settings)
    state = {key: each for key, each in method.state_dict().items() if isinstance(each, torch.Tensor)}
    return {"loss": losses_of(history), **state}


def losses_of(history):
    return torch.tensor([each.loss for each in history], dtype=torch.float64)


@as_on_the_cpu
@pytest.mark.parametrize("name", methods)
def test_a_method_trains_as_on_the_cpu(name, dataset):
    data = load_dataset("sbm-400", nodes=True) if methods.facts(name).get("rows") == "nodes" else dataset
    close(*(trained(data, device, name, batch=48, dtype=torch.float64) for device in ("cuda", "cpu")), name, **FLOAT64)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "adam", "schedule": "cosine", "warmup": 0.5},
        {"clip_norm": 0.1, "encoder": "gine", "view": "node_drop"},
        {"name": "byol"},
    ],
    ids=str,
)
def test_captured_steps_equal_the_others(options, dataset):
    options = {"batch": 20, "dtype": torch.float64} | options
    one, two = (trained(dataset, "cuda", capture=each, **options) for each in (True, False))
    if "optimizer" in options:  # a gradient that cancels to zero is a whole step of Adam
        one, two = {"loss": one["loss"]}, {"loss": two["loss"]}
    # The captured rate is in float32.
    close(one, {key: each.cpu() for key, each in two.items()}, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(LOG is not None, reason="only a GPU runs other kernels in float32")
def test_captured_steps_in_float32(dataset):
    """At larger rates, ReLU enlarges rounding to 1e-2 of a loss within a few epochs, also without CUDA graphs."""
    one, two = (trained(dataset, "cuda", batch=20, epochs=3, lr=1e-4, capture=each) for each in (True, False))
    close(one["loss"], two["loss"])


def test_a_batch_that_outgrows_the_capture_makes_a_larger_one(dataset):
    """The metrics are those of the last large batch, also if a smaller one is replayed after it."""
    dataset = in_float64(dataset)
    order = sorted(range(48), key=lambda each: dataset[each].num_nodes)
    parts = [(0, 8), (0, 8), (0, 3), (0, 3), (40, 48), (40, 48), (0, 3)]
    batches = [Batch.from_data_list([dataset[each] for each in order[start:stop]]) for start, stop in parts]
    found = []
    for capture in (True, False):
        method = method_of("two_views", dataset, "cuda").double()
        given = {"epochs": 1, "optimizer": "sgd", "lr": 1e-3, "generator": seeded("cuda"), "capture": capture}
        (record,) = train(method, batches, "feature_mask", "feature_mask", **given)
        metrics = {"alignment": torch.tensor(record.alignment), "uniformity": torch.tensor(record.uniformity)}
        found.append({key: each.cpu() for key, each in method.state_dict().items()} | metrics)
    assert batches[4].num_edges > batches[0].num_edges * 9 // 8 + 64
    close(*found)


class Counted(OneOf):
    """Count the calls, and the graphs in them."""

    def augment(self, batch, generator, graphs):
        self.calls = [*getattr(self, "calls", []), batch.num_graphs]
        return super().augment(batch, generator, graphs)


def test_one_call_makes_both_views_of_a_chunk(dataset):
    loader = make_loader(dataset, 20, shuffle=True, generator=seeded("cpu"), device="cuda")
    view, none = Counted(["node_drop", "edge_perturb"]), NodeDrop(0.0)
    found = list(epoch.augmented(loader, view, view, seeded("cuda"), torch.device("cuda")))
    assert view.calls == [2 * len(dataset)]
    assert [one.num_graphs for one, _, _ in found] == [two.num_graphs for _, two, _ in found] == [20, 20, 8]
    assert any(one.num_nodes != two.num_nodes for one, two, _ in found)
    for one, two, ids in epoch.augmented(loader, none, none, seeded("cuda"), torch.device("cuda")):
        for view in (one, two):
            batch = Batch.from_data_list([dataset[each] for each in ids.tolist()])
            graphs = view.to("cpu").to_data_list()
            assert_same_graphs(graphs, batch.to_data_list())


@pytest.mark.skipif(LOG is not None, reason="the fake device has one stream")
@pytest.mark.parametrize("capture", [False, True])
def test_views_that_are_made_during_steps_equal_the_others(capture, monkeypatch):
    """Each batch is a chunk, whose views must not overwrite those that steps still read."""
    monkeypatch.setattr(resident, "_most_bytes", lambda device: 1)
    options = {"batch": 16, "epochs": 3, "view": "node_drop", "capture": capture}
    many = load_dataset(small_graphs(256))
    one = trained(many, "cuda", **options)
    monkeypatch.setattr(epoch, "_side_stream", torch.cuda.current_stream)
    two = trained(many, "cuda", **options)
    close(one, {key: each.cpu() for key, each in two.items()}, rtol=0, atol=0)


def test_captured_steps_in_bfloat16(dataset):
    one, two = (trained(dataset, "cuda", batch=20, amp=True, capture=each) for each in (True, False))
    torch.testing.assert_close(one["loss"], two["loss"], rtol=0.05, atol=0.05)


def test_batches_of_other_columns_are_captured_separately(dataset):
    """Weights of edges and of pairs in some batches only must not be left out."""
    batches = []
    for number in range(6):
        batches.append(Batch.from_data_list([dataset[each] for each in range(8)]))
        if number % 2:
            generator = torch.Generator().manual_seed(number)
            batches[-1].edge_weight = torch.rand(batches[-1].num_edges, generator=generator)
            batches[-1].pair_weight = torch.rand(8, generator=generator)
    found = []
    for capture in (True, False):
        method = method_of("two_views", dataset, "cuda")
        given = {"epochs": 1, "optimizer": "sgd", "lr": 1e-4, "generator": seeded("cuda"), "capture": capture}
        found.append(losses_of(train(method, batches, "identity", "identity", **given)))
    close(*found)


def test_a_loss_that_reads_values_on_the_host_is_refused(dataset):
    def loss(z1, z2):
        return (z1 - z2).square().mean() + 0.0 * float(z1.detach().sum())

    method = methods["two_views"](method_of("two_views", dataset, "cuda").model, loss)
    before = torch.cuda.current_stream()
    with pytest.raises(InputError, match="reads values on the host"):
        train(method, make_loader(dataset, 8, device="cuda"), "node_drop", "node_drop", epochs=2, capture=True)
    if LOG is None:
        assert torch.cuda.current_stream() == before
    torch.rand(3, device="cuda")  # which PyTorch refuses after a failed capture


def test_padding_keeps_the_variance_of_a_column_far_from_zero():
    rows, room = 300 + 0.01 * torch.randn(50, 16, generator=seeded("cpu")), 60
    padding = Padding((torch.arange(room) < 50)[:, None].cuda(), torch.tensor([60.0, -10.0]).cuda(), 1)
    norm = torch.nn.BatchNorm1d(16).cuda()
    found = padded_norm(norm, torch.nn.functional.pad(rows, (0, 0, 0, 10)).cuda(), padding)[:50]
    want = torch.nn.BatchNorm1d(16).double()(rows.double()).float()
    torch.testing.assert_close(found.cpu(), want, rtol=0.0, atol=0.05)


def test_no_earlier_capture_is_released_during_another(dataset, monkeypatch):
    """Graphs of finished runs are garbage, which Python may collect at any time."""
    forward, before, x = Loss.forward, gc.get_threshold(), torch.zeros(1, device="cuda")
    graphs = [torch.cuda.CUDAGraph() for _ in range(4)]
    for graph in graphs:
        with torch.cuda.graph(graph):
            x.add_(1)
    del graph

    def leave_garbage():
        cycle = [graphs.pop()]
        cycle.append(cycle)

    monkeypatch.setattr(Loss, "forward", lambda *given: leave_garbage() or forward(*given))
    gc.set_threshold(1)
    try:
        trained(dataset, "cuda", batch=24, epochs=1, capture=True)
    finally:
        gc.set_threshold(*before)


def test_captured_steps_after_an_earlier_state_was_loaded(dataset):
    found = []
    for capture in (True, False):
        method, runs, states = method_of("two_views", dataset, "cuda").double(), [], []

        def reload(epoch, runs=runs, states=states):
            states.append(copy.deepcopy(runs[0].state_dict()))
            if len(states) == 2:
                runs[0].load_state_dict(states[0])

        loader = make_loader(in_float64(dataset), 24, device="cuda")
        given = {"epochs": 3, "optimizer": "sgd", "lr": 1e-3, "capture": capture, "on_step": runs.append}
        found.append(losses_of(train(method, loader, "identity", "identity", callbacks=[reload], **given)))
    close(*found, rtol=1e-6)


class _OwnEncoder(torch.nn.Module):
    out_channels = 4

    def forward(self, x, edge_index, batch, parts=None):
        raise NotImplementedError


def test_an_own_encoder_with_parts_takes_no_padding():
    assert not ContrastiveModel(_OwnEncoder()).takes_padding


def test_what_cannot_be_captured_is_refused(dataset):
    for options in ({"name": "moco"}, {"micro_batch": 4}, {"non_finite": "skip"}):
        with pytest.raises(InputError, match="`capture` does not fit"):
            trained(dataset, "cuda", capture=True, **options)
    with pytest.raises(InputError, match="needs a CUDA device"):
        trained(dataset, "cpu", capture=True)
    drawing = methods["two_views"](method_of("two_views", dataset, "cuda").model, "sigreg")
    with pytest.raises(InputError, match="`capture` does not fit a loss that draws random numbers"):
        train(drawing, make_loader(dataset, 8, device="cuda"), "identity", "identity", epochs=1, capture=True)


@as_on_the_cpu
def test_pairs_of_a_group_train_as_on_the_cpu():
    data, found = in_float64(load_dataset(synthetic_pairs(num_groups=24))), []
    for device in ("cuda", "cpu"):
        method = method_of("memory_bank", data, device).double()
        loader = make_loader(data, device=device, batch_sampler=EpochPairs(data.groups, 6, True, seeded("cpu")))
        torch.manual_seed(5)
        settings = {"epochs": 1, "optimizer": "sgd", "lr": 1e-3}
        history = train(method, loader, "identity", "feature_mask", generator=seeded(device), **settings)
        found.append({"loss": losses_of(history), **method.model.state_dict()})
    close(*found, **FLOAT64)


@as_on_the_cpu
@pytest.mark.parametrize("name", sorted(set(encoders) - {"wl_sparse", "molecule_gin"}))
def test_an_encoder_trains_as_on_the_cpu(name, dataset):
    view = None
    if name == "molecule_gine":
        dataset, view = load_dataset(small_graphs(48, molecules=True), categories=True), "node_drop"
    settings = {"encoder": name, "view": view, "epochs": 1, "dtype": torch.float64}
    close(*(trained(dataset, device, **settings) for device in ("cuda", "cpu")), name, **FLOAT64)
    found = []
    for device in ("cuda", "cpu"):  # in float32, in which other kernels may run
        model = method_of("two_views", dataset, device, name).model
        h = model.encode(next(iter(make_loader(dataset, 48, device=device))))
        h.square().mean().backward()
        found.append((h.detach(), torch.cat([each.grad.flatten() for each in model.encoder.parameters()])))
    for one, two in zip(*found, strict=True):
        close_rows(one, two, 1e-3)


@as_on_the_cpu
@pytest.mark.parametrize(
    "options",
    [{"amp": True}, {"non_finite": "skip"}, {"diagnostics": True}, {"clip_norm": 1.0, "optimizer": "adamw"},
     {"schedule": "cosine", "warmup": 0.1, "steps": 4}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_a_setting_of_training_works_as_on_the_cpu(options, dataset):
    dtype = torch.float32 if "amp" in options else torch.float64
    one, two = (trained(dataset, device, dtype=dtype, **options) for device in ("cuda", "cpu"))
    if "amp" in options:
        close(one["loss"], two["loss"], rtol=0.05, atol=0.05)
    else:
        close(one, two, **FLOAT64)


# -- around training ---------------------------------------------------------------------------------------------------


def test_embeddings_calibration_and_scores_equal_the_cpus(dataset):
    found = []
    for device in ("cuda", "cpu"):
        model = method_of("two_views", dataset, device).model
        loader = make_loader(dataset, 16, device=device)
        h, y = embed(calibrate(model, loader), loader)
        found.append((h, y))
    close_rows(found[0][0], found[1][0], 1e-4)
    assert svm(*found[0], folds=3, inner_folds=2).mean == svm(*found[1], folds=3, inner_folds=2).mean


@pytest.mark.parametrize(("first", "later"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
def test_a_checkpoint_resumes_on_either_device(first, later, dataset, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    trained(dataset, first, epochs=1, checkpoints=checkpoints)
    again = trained(dataset, later, epochs=2, checkpoints=checkpoints)
    assert len(again["loss"]) == 2
    if first == later:
        whole = trained(dataset, later, epochs=2)
        assert all(torch.equal(again[key].cpu(), whole[key].cpu()) for key in whole)


def test_a_run_and_its_files(dataset, tmp_path):
    InMemoryDataset.save(GRAPHS, str(tmp_path / "own.pt"))
    settings = {"dataset": str(tmp_path / "own.pt"), "out": str(tmp_path / "run"), "seeds": [0], "report": False}
    settings |= {"epochs": 1, "batch_size": 16, "deterministic": True, "precise_bn": True, "eval": ["knn", "instance"]}
    result = run_all(make_config({**settings, "device": "cuda"}))
    assert 0 < result.accuracy <= 100


@as_on_the_cpu
def test_the_estimator_and_its_files(tmp_path):
    found = []
    for device in ("cuda", "cpu"):
        quick = {"epochs": 2, "batch_size": 16, "first": "feature_mask", "second": "feature_mask"}
        fitted = GraphCL(**quick, device=device, optimizer="sgd", lr=1e-3).fit(GRAPHS)
        fitted.save(tmp_path / f"{device}.pt")
        found.append(fitted.transform(GRAPHS))
        np.testing.assert_array_equal(
            GraphCL.load(tmp_path / f"{device}.pt", device=device).transform(GRAPHS), found[-1]
        )
    close_rows(*found, 1e-2)


def test_a_table_of_molecules_is_fine_tuned_as_on_the_cpu(tmp_path):
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    rows = [f"{'C' * (1 + number % 7)}{'ON'[number % 2]}{'C' * (number % 3)},{number % 2}" for number in range(120)]
    (tmp_path / "table.csv").write_text("\n".join(["smiles,y", *rows]))
    found = []
    for device in ("cuda", "cpu"):
        dataset = load_dataset(str(tmp_path / "table.csv"), target="y", split="random")
        torch.manual_seed(0)
        encoder = encoders["molecule_gine"](dataset.num_features, dataset.num_edge_features, 16, 2)
        model, losses_ = with_outputs(encoder, dataset).to(device), []
        score = finetune(model, dataset, epochs=2, batch_size=16, dropout=0.0, callbacks=[losses_.append])
        found.append([score.mean, *(each["loss"] for each in losses_)])
    np.testing.assert_allclose(*found, rtol=1e-3)


def test_sampled_neighbours(dataset):
    if not (find_spec("pyg_lib") or find_spec("torch_sparse")):
        pytest.skip("pyg-lib is not installed")
    data = load_dataset("sbm-400", nodes=True)
    batch = next(iter(NeighbourLoader(data, [3, 3], 32, device="cuda")))
    assert method_of("grace", data, "cuda").model.encode(batch).shape[0] == 32


@COUNTED
def test_a_set_larger_than_the_memory_streams_with_equal_results(dataset, monkeypatch):
    resident = trained(dataset, "cuda")
    monkeypatch.setattr(LOG, "memory", 1000)
    close(trained(dataset, "cuda"), {key: each.cpu() for key, each in resident.items()})


@COUNTED
def test_a_streamed_loader_still_cuts_numbers_for_views_in_pieces(monkeypatch):
    monkeypatch.setattr(preparation, "_LARGE", 1)
    monkeypatch.setattr(LOG, "memory", 1000)
    loader = make_loader(load_dataset(GRAPHS), 6, device="cuda")
    assert len(list(loader)) == 8
    assert not isinstance(loader.resident.batch(torch.arange(3)).x, Compact)


# -- waits and operations ----------------------------------------------------------------------------------------------


def counted(dataset, batch, view, loss=None, **settings):
    """Return the waits of the second epoch and the operations of one of its steps."""
    method = method_of("two_views", dataset, "cuda")
    method.loss = loss or method.loss
    loader = make_loader(dataset, batch, shuffle=True, generator=seeded("cpu"), device="cuda")
    found = []

    def count(epoch):
        found.append((sum(LOG.waits.values()), LOG.operations / len(loader)))
        LOG.reset()

    train(method, loader, view, view, epochs=2, generator=seeded("cuda"), callbacks=[count], **settings)
    return found[-1]


@COUNTED
@pytest.mark.parametrize(
    ("view", "waits", "operations"), [("identity", 2, 295), ("node_drop", 3, 300), ("random4", 10, 345)]
)
def test_waits_of_an_epoch_and_operations_of_a_step(view, waits, operations, dataset):
    """Upper bounds for an epoch of one chunk, and for one of its eight steps."""
    found = counted(dataset, 6, view)
    assert found[0] <= waits
    assert found[1] <= operations


@COUNTED
@pytest.mark.parametrize(
    ("loss", "settings"),
    [(Loss("infonce"), {}), (Loss("adnce", engine="tiled"), {}), (Loss("infonce"), {"diagnostics": True})],
)
def test_waits_do_not_grow_with_the_steps(loss, settings, dataset):
    few, many = (counted(dataset, batch, "node_drop", loss, **settings)[0] for batch in (24, 12))
    assert few == many <= 4 + bool(settings)
