"""Test the training loop: learning, reproducibility, non-finite steps, clipping, bfloat16, encoders and loaders."""

import copy
import functools
import math
from unittest import mock

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import ToUndirected

from graphcl import (
    GRACE,
    Identity,
    InputError,
    MoCo,
    NodeDrop,
    ResidentLoader,
    TwoViews,
    embed,
    load_dataset,
    random4,
    train,
)
from graphcl.errors import InputWarning
from graphcl.loaders.loader import make_loader
from graphcl.losses import Loss, infonce
from graphcl.training.diagnostics import diagnose
from graphcl.training.loop import NonFiniteLossError
from tests.methods.small import graphs, make_model
from tests.training.helpers import equal


def run(data, epochs=4, model=None, **options):
    model = model or make_model()
    loader = ResidentLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(0))
    options = {"loss": infonce, "view": random4(), "generator": torch.Generator().manual_seed(1), **options}
    method = TwoViews(model, options.pop("loss"))
    history = train(method, loader, Identity(), options.pop("view"), epochs=epochs, **options)
    return model, history


def test_it_learns_and_calls_back_after_each_epoch():
    seen = []
    _, history = run(graphs(40), epochs=np.int64(15), view=NodeDrop(0.1), callbacks=[seen.append], diagnostics=True)
    assert seen == history
    assert history[-1].loss < 0.85 * history[0].loss
    assert [record.epoch for record in history] == list(range(1, 16))
    assert all(0 < record.data_seconds < record.seconds for record in history)
    assert set(diagnose(*torch.eye(3).expand(3, 3, 3), 0.2)) <= set(history[0].metrics())


def test_embed_drops_the_projector_and_keeps_the_order_and_the_model():
    data, model = graphs(20), make_model().train()
    before = copy.deepcopy(model)
    h, y = embed(model, ResidentLoader(data, 7))
    assert model.training
    assert equal(model, before)
    assert h.shape == (20, 16)
    assert not h.requires_grad
    assert y.tolist() == [graph.y.item() for graph in data]
    one = Batch.from_data_list([data[3]])
    assert torch.allclose(h[3:4], model.eval().encoder(one.x, one.edge_index, one.batch), atol=1e-4)
    for y in ({}, {"y": {"energy": 0.5}}, {"y": "a"}):
        assert embed(model, make_loader([Data(x=g.x, edge_index=g.edge_index, **y) for g in data], 7))[1] is None


class NonFinite:
    """Loss that is infinite, or has a NaN gradient, at the given calls, counted from 1."""

    def __init__(self, *calls, gradient=False):
        self.calls, self.gradient, self.called = calls, gradient, 0

    def __call__(self, z1, z2, queue=None, **others):
        self.called += 1
        value = infonce(z1, z2, queue=queue)
        if self.called in self.calls and self.gradient:
            value.register_hook(lambda grad: grad * torch.nan)
        return value * torch.inf if self.called in self.calls and not self.gradient else value


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("make_method", [TwoViews, functools.partial(MoCo, momentum=0.5, queue_size=100)])
def test_a_skipped_step_changes_nothing(make_method, gradient):
    """Skipping the second of three batches gives the state of training on the other two batches only."""
    data, order = graphs(48), [[*range(16)], [*range(16, 32)], [*range(32, 48)]]

    def go(batches, loss, **options):
        torch.manual_seed(0)
        method = make_method(make_model(), loss)
        loader = DataLoader(data, batch_sampler=batches)
        return method, train(method, loader, Identity(), Identity(), epochs=1, **options)

    method, history = go(order, NonFinite(2, gradient=gradient), non_finite="skip")
    assert history[0].diagnostics["skipped"] == 1
    for options in ({}, {"non_finite": "skip", "clip_norm": 1e9}):
        wanted, _ = go([order[0], order[2]], NonFinite(), **options)
        assert equal(method, wanted)


def test_the_learning_rate_rises_and_falls():
    rates = []
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    try:
        run(graphs(40), lr=0.1, epochs=4, schedule="cosine", warmup=0.25)  # three steps an epoch
        run(graphs(40), lr=0.1, steps=4, warmup=0.5)
    finally:
        hook.remove()
    falling = [0.1 * (1 + math.cos(math.pi * step / 9)) / 2 for step in range(9)]
    assert rates == pytest.approx([0.1 / 3, 0.2 / 3, 0.1, *falling, 0.05, 0.1, 0.1, 0.1])


def test_patience_counts_epochs_without_a_lower_loss():
    losses = iter([3.0, 2.0, 2.5, 2.1, 1.0])  # one step an epoch
    _, history = run(graphs(16), epochs=5, patience=2, loss=lambda z1, z2: infonce(z1, z2) * 0 + next(losses))
    assert len(history) == 4


def test_the_epoch_of_the_highest_score_is_kept_and_patience_counts_from_it():
    scores = iter([1.0, 3.0, 2.0, 3.0, 9.0])
    kept, history = run(graphs(16), epochs=5, patience=2, score=lambda: next(scores))
    assert [record.diagnostics["valid"] for record in history] == [1, 3, 2, 3]
    until, _ = run(graphs(16), epochs=2)
    torch.testing.assert_close(kept.state_dict(), until.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_each_optimizer_is_torchs(kind):
    ours, _ = run(graphs(16), steps=1, lr=0.1, weight_decay=0.5, optimizer=kind.__name__.lower())
    start = make_model()
    for each, trained in zip(start.parameters(), ours.parameters(), strict=True):
        each.grad = trained.grad
    kind(start.parameters(), lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close([*ours.parameters()], [*start.parameters()])


def test_a_learned_temperature_is_logged_and_has_no_weight_decay():
    """The L2 penalty would pull it to 1. The reference steps on a copy without a penalty."""
    for decay in (0.0, 1e6):
        loss = Loss("infonce", temperature="learn")
        _, (record,) = run(graphs(16), steps=1, lr=0.1, weight_decay=decay, optimizer="sgd", loss=loss)
        start = torch.tensor(-math.log(0.2))
        torch.testing.assert_close(loss.log_scale.detach(), start - 0.1 * loss.log_scale.grad)
        assert loss.log_scale.grad != 0
        assert record.diagnostics["temperature"] == pytest.approx(loss.setting("temperature").item())


def batched(*parts):
    return DataLoader(graphs(9), batch_sampler=parts)


def test_a_last_batch_of_one_graph_is_skipped_with_one_warning():
    """As with `drop_last=True`. Nodes of one graph have negatives."""
    one, other = (TwoViews(make_model(), "infonce") for _ in range(2))
    with pytest.warns(InputWarning, match=r"^batches of one graph are skipped, .*`drop_last=True`") as caught:
        history = train(one, batched([0, 1, 2, 3], [4]), "identity", "identity", epochs=2)
    assert len(caught) == 1
    expected = train(other, batched([0, 1, 2, 3]), "identity", "identity", epochs=2)
    assert [each.loss for each in history] == [each.loss for each in expected]
    assert equal(one, other)
    assert [method.rows for method in (one, GRACE(one.model, "nt_xent"))] == ["graphs", "nodes"]


def test_a_first_batch_of_one_graph_is_refused():
    with pytest.raises(InputError, match=r"^(a contrastive loss|BatchNorm) needs at least .*`?drop_last=True"):
        train(TwoViews(make_model(), "infonce"), batched([0], [1, 2]), "identity", "identity")


def test_clipping_bounds_the_gradient():
    model, _ = run(graphs(16), epochs=1, loss=lambda z1, z2: 1e6 * infonce(z1, z2), clip_norm=0.5)
    total = torch.stack([each.grad.norm() for each in model.parameters()]).norm()
    assert total == pytest.approx(0.5, rel=1e-3)


def test_bfloat16_trains_and_the_loss_stays_float32():
    loss = mock.Mock(side_effect=infonce)
    _, history = run(graphs(20), epochs=8, view=NodeDrop(0.1), loss=loss, amp=True)
    z1, z2 = loss.call_args.args
    assert z1.dtype == torch.bfloat16
    assert infonce(z1, z2).dtype == torch.float32
    assert history[-1].loss < history[0].loss


POISONED = graphs(40)
POISONED[5].x[0, 0] = torch.inf


def of(loader, **options):
    return train(TwoViews(make_model(), infonce), loader, "identity", "identity", **options)


REFUSED = {
    "a model": (lambda: train(make_model(), [], "identity", "identity"),
                r"got ContrastiveModel; pass a method, such as TwoViews\(model, \"infonce\"\)"),
    "a data set": (lambda: embed(make_model(), load_dataset(graphs(4))),
                   r"`loader` must give batches, got \w+; use ResidentLoader\(dataset, 1024\)"),
    "nothing to embed": (lambda: embed(make_model(), iter([])),
                         r"^`loader` gave no batch; it must give all batches each time it is iterated"),
    "an exhausted loader": (lambda: of(iter(list(ResidentLoader(graphs(40), 16))), epochs=2),
                            "`loader` gave no batch in epoch 2"),
    "no length": (lambda: of(iter([]), warmup=0.5),
                  r"^`schedule` and `warmup` need a loader with a length; pass `steps`"),
    "infinite embedding": (lambda: embed(make_model(), ResidentLoader(POISONED, 4)),
                           "the embedding of graph 5 is NaN or infinite; look for NaN or very large values in its"),
    "infinite feature": (lambda: run(POISONED),
                         r"the projections became NaN or infinite \(`z1` is not finite in row \d+\) at epoch 1, "
                         r"step \d of 3, graphs \d+, .*try a smaller"),
    "infinite loss": (lambda: run(graphs(40), loss=NonFinite(1)),
                      r"the loss became inf at epoch 1, step 1 of 3, graphs \d+, "),
    "non-finite gradient": (lambda: run(graphs(40), loss=NonFinite(3, gradient=True)),
                            r"the gradient, and with it the weights, became NaN .* at epoch 1, "),
    "all skipped": (lambda: run(graphs(40), loss=NonFinite(1, 2, 3), non_finite="skip"),
                    r"all 3 steps of the epoch were skipped, .* at epoch 1"),
}  # fmt: skip
for name, value, line in [
    ("generator", 3, r"`generator` must be of type Generator, got 3\."),
    ("callbacks", [3], r"`callbacks.0` must be a function, got 3\."),
    ("view", random4, r"`second` must be an augmentation; call random4, as in random4\(\)\."),
    (
        "view",
        ToUndirected(),
        r"`second` must be an augmentation of whole batches, got PyG's ToUndirected; wrap it",
    ),
    ("loss", lambda *z, **given: infonce(*z).detach(), r"the loss has no gradient; compute it from the projections"),
    ("model", make_model().requires_grad_(False), "all parameters of the method are frozen; let some of them"),
    ("momentum", 0.9, r"`train` has no argument `momentum`; .*(choose from: |there are \d+ names)"),
    ("callback", [], r"`train` has no argument `callback`; did you mean callbacks\?"),
    ("callbacks", 3, r"`callbacks` must be a list, got 3\."),
    ("on_step", 3, r"`on_step` must be a function, got 3\."),
    ("unpack", 3, r"`unpack` must be a function, got 3\."),
]:
    REFUSED[f"{name}={value}"] = (functools.partial(run, graphs(40), **{name: value}), f"^{line}")


def test_mistakes_and_non_finite_values_get_one_line():
    for name, (call, line) in REFUSED.items():
        with pytest.raises(InputError, match=line) as caught:
            call()
        assert isinstance(caught.value, NonFiniteLossError) == ("epoch 1" in line), name
