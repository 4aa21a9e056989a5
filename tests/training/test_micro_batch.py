"""Test training on pieces of a batch: the gradient is that of the whole batch, whatever the encoder draws."""

import copy
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Batch
from torch_geometric.nn import GAT

from graphcl import (
    GIN,
    ContrastiveModel,
    Identity,
    InputError,
    MoCo,
    NodeDrop,
    Pooled,
    ResidentLoader,
    Subgraph,
    TwoViews,
    train,
)
from graphcl.augment import random2
from graphcl.datasets.relation import Relation
from graphcl.graphs.batching import split
from graphcl.loaders.samplers import ListedPairs
from graphcl.losses import Loss, infonce
from graphcl.methods import Method
from graphcl.registry import losses, methods
from graphcl.training.epoch import augmented
from tests.methods.small import graphs
from tests.training.helpers import equal


def model(encoder=None):
    torch.manual_seed(0)
    return ContrastiveModel(encoder or GIN(4, hidden_channels=16, num_layers=2)).double()


def dropping():
    return Pooled(GAT(4, 8, 2, dropout=0.5), readout="mean")


def batch(count=11):
    whole = next(iter(ResidentLoader(graphs(count), count)))
    whole.x = whole.x.double()
    return whole


def gradient(of, view1, view2, size, *, method=TwoViews, loss="infonce", amp=False):
    of = copy.deepcopy(of).train()
    made = method(of, Loss(loss))
    for each in made.modules():
        if isinstance(each, ContrastiveModel):
            each.micro_batch = size
    with torch.autocast("cpu", torch.bfloat16, amp):
        loss = made(view1, view2, ids=torch.arange(view1.num_graphs), generator=torch.Generator().manual_seed(0)).loss
    loss.backward()
    return torch.cat([each.grad.flatten() for each in of.parameters()]), of


def without_statistics(encoder):
    for each in encoder.modules():
        if isinstance(each, torch.nn.BatchNorm1d):
            each.train = lambda mode=True: None  # stays in evaluation mode
            each.training = False
    return encoder


@pytest.mark.parametrize("method", [TwoViews, MoCo])
@pytest.mark.parametrize("loss", sorted(name for name in losses if losses.facts(name)["method"] == "two_views"))
def test_the_gradient_is_that_of_the_whole_batch(method, loss):
    if method is MoCo and not (Loss(loss).accepts("queue") and Loss(loss).accepts("symmetric")):
        pytest.skip("the loss takes no queue")
    if Loss(loss).accepts("labels"):
        pytest.skip("the loss needs labels")
    whole = batch()
    views, of = (NodeDrop(0.3)(whole), NodeDrop(0.3)(whole)), without_statistics(model())
    expected, _ = gradient(of, *views, None, method=method, loss=loss)
    found, _ = gradient(of, *views, 3, method=method, loss=loss)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("amp", [False, True])
def test_the_backward_pass_draws_the_same_dropout(amp):
    whole, of = batch(), model(dropping()).float()
    whole.x = whole.x.float()
    torch.manual_seed(1)
    found, _ = gradient(of, whole, NodeDrop(0.3)(whole, torch.Generator().manual_seed(0)), 4, amp=amp)
    other = NodeDrop(0.3)(whole, torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    of = copy.deepcopy(of).train()
    with torch.autocast("cpu", torch.bfloat16, amp):
        h = [torch.cat([of.encode(piece) for piece in split(view, [3, 4, 4])]) for view in (whole, other)]
        infonce(*of.project(*h)).backward()
    expected = torch.cat([each.grad.flatten() for each in of.parameters()])
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < (0.02 if amp else 1e-6)  # other dropout changes it by more than a half


def test_batch_norm_sees_pieces_as_ranks_do():
    whole, of = batch(9), model()
    found, left = gradient(of, whole, whole, 3)
    pieces = [(copy.deepcopy(of).train(), piece) for piece in split(whole, [3, 3, 3])]
    rows = [each.encode(piece) for each, piece in pieces]
    # one model per rank: the loss of all rows, the mean of the running statistics
    twice = [each.encode(piece) for each, piece in pieces]
    z = [
        torch.cat([each.projector(row) for (each, _), row in zip(pieces, part, strict=True)]) for part in (rows, twice)
    ]
    infonce(*z).backward()
    expected = sum(torch.cat([each.grad.flatten() for each in one.parameters()]) for one, _ in pieces)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)
    for norm, *others in zip(left.encoder.norms, *(one.encoder.norms for one, _ in pieces), strict=True):
        for key in ("running_mean", "running_var"):
            mean = torch.stack([getattr(each, key) for each in others]).mean(0)
            assert torch.allclose(getattr(norm, key), mean, rtol=1e-12)
        assert norm.num_batches_tracked == others[0].num_batches_tracked


@pytest.mark.parametrize("first_backward", [True, False])
def test_gradients_of_several_batches_add_up(first_backward):
    """Accumulate the gradients of two batches, with the second forward pass before or after the first backward pass."""
    whole, of = batch(12), model()
    made = TwoViews(of, Loss("infonce"))
    of.micro_batch, parts = 2, split(whole, [6, 6])
    expected = sum(gradient(of, each, each, 2)[0] for each in parts)
    one = made(parts[0], parts[0]).loss
    if first_backward:
        one.backward()
    two = made(parts[1], parts[1]).loss
    statistics = [each.clone() for each in of.buffers()]
    two.backward() if first_backward else (one + two).backward()
    found = torch.cat([each.grad.flatten() for each in of.parameters()])
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))
    assert all(torch.equal(one, other) for one, other in zip(statistics, of.buffers(), strict=True))
    assert {int(each.num_batches_tracked) for each in of.encoder.norms} == {4}  # two views of two batches


class Live(TorchDispatchMode):
    """Measures the peak of the bytes of all tensors that operations return."""

    def __init__(self):
        super().__init__()
        self.storages, self.bytes, self.peak = set(), 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            storage = each.untyped_storage() if isinstance(each, torch.Tensor) else None
            if storage is not None and storage._cdata not in self.storages:
                self.storages.add(storage._cdata)
                self.bytes += storage.nbytes()
                self.peak = max(self.peak, self.bytes)
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        return result

    def _free(self, key, size):
        self.storages.remove(key)
        self.bytes -= size


def peak_bytes(count, projection):
    torch.manual_seed(0)
    of = ContrastiveModel(GIN(4, hidden_channels=16, num_layers=2), projection)
    loader = ResidentLoader(graphs(128) * (count // 128), count)
    views = NodeDrop(0.2), NodeDrop(0.2)
    with Live() as found:
        train(TwoViews(of, Loss("infonce", engine="tiled")), loader, *views, steps=1, micro_batch=128)
    return found.peak


def test_memory_grows_by_the_projections_only():
    few, many = (peak_bytes(count, 256) for count in (1024, 4096))
    assert 4 < (many - few) / (3072 * 256 * 4) < 9.5  # rows of projections for each graph


def fit(**settings):
    of = model().float()
    loader = ResidentLoader(graphs(24), 12, shuffle=True, generator=torch.Generator().manual_seed(0))
    given = {"epochs": 2, "generator": torch.Generator().manual_seed(1), **settings}
    train(TwoViews(of, "infonce"), loader, NodeDrop(0.2), Identity(), **given)
    return of


def test_training_takes_the_settings():
    frozen = fit(frozen_bn=True)
    assert all(bool((each.running_mean == 0).all()) for each in frozen.encoder.norms)
    assert not equal(fit(micro_batch=5), fit())


def test_a_batch_of_one_piece_trains_as_without_pieces():
    found = []
    for size in (None, 5):
        of = model().float()
        loader = ResidentLoader(graphs(5), 12)
        train(TwoViews(of, "infonce"), loader, Identity(), Identity(), epochs=2, micro_batch=size, optimizer="sgd")
        found.append(of.state_dict())
    for one, other in zip(*(each.values() for each in found), strict=True):
        torch.testing.assert_close(one, other)


def test_diagnostics_of_a_batch_in_pieces():
    of = model().float()
    made = {"loader": ResidentLoader(graphs(12), 12), "first": NodeDrop(0.3), "second": Identity(), "epochs": 1}
    (epoch,) = train(TwoViews(of, "infonce"), micro_batch=5, diagnostics=True, **made)
    assert 1 <= epoch.diagnostics["rank_h"] <= 4  # of the first piece
    assert 1 <= epoch.diagnostics["rank_z"] <= 12


def joined(view):
    """Return the lazy view as one batch."""
    return Batch.from_data_list([graph for make in view.pieces for graph in make().to_data_list()])


def random_pairs():
    """Return the sampler of weighted pairs with known negatives."""
    query, target = torch.arange(0, 24, 2), torch.arange(1, 24, 2)
    negatives = torch.stack([torch.arange(12), target.roll(3)])
    relation = Relation(query, target, 24, weight=torch.arange(1.0, 13.0), negatives=negatives)
    return ListedPairs(relation, 12, shuffle=True, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["two_views", "pairs", "moco", "byol", "joao"])
def test_training_on_lazy_views_is_training_on_the_same_views(name):
    views = NodeDrop(0.3), (random2() if name == "joao" else Subgraph(0.3))
    made = []
    for _ in range(2):
        of = without_statistics(model())
        loss = Loss("infonce", symmetric=True) if name == "moco" else {"byol": "byol"}.get(name, "infonce")
        given = views if name == "joao" else ()
        method = methods["two_views" if name == "pairs" else name](of, loss, *given).double()
        data = list(graphs(24))
        for graph in data:
            graph.x = graph.x.double()
        sampler = random_pairs() if name == "pairs" else None
        order = torch.Generator().manual_seed(0)
        loader = ResidentLoader(data, 12, shuffle=True, generator=order, batch_sampler=sampler)
        made.append((method, loader, torch.Generator().manual_seed(1)))
    (method, loader, generator), (other, same, drawn) = made
    train(method, loader, *views, generator=generator, epochs=2, micro_batch=5, optimizer="sgd")
    optimiser = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        for view1, view2, ids in augmented(same, *other.augmentations(*views), drawn, torch.device("cpu"), 5):
            last = joined(view2) if name == "joao" else None  # which first asks what view 2 drew
            whole = joined(view1), last or joined(view2)  # drawn here, and never again
            whole[0].pair_weight = view1.get("pair_weight")
            optimiser.zero_grad()
            other(*whole, ids=ids, generator=drawn).loss.backward()
            optimiser.step()
            other.after_step()
        other.after_epoch()
    for one, two in zip(method.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=1e-9, atol=1e-11)


class Direct(Method):
    def forward(self, view1, view2, *, ids=None, generator=None):
        raise NotImplementedError


def test_methods_that_need_a_whole_batch_refuse():
    assert {name for name in methods if methods[name].in_pieces} == {
        "two_views", "joao", "joao_v2", "moco", "memory_bank", "simsiam", "byol"
    }  # fmt: skip
    with pytest.raises(InputError, match="`micro_batch` does not fit Direct"):
        train(Direct(model(), "infonce"), [batch()], Identity(), Identity(), micro_batch=2)
