"""Test the training loop: learning, reproducibility, non-finite steps, clipping, bfloat16, encoders and loaders."""

import copy
import functools
import math

import pytest
import torch
import torch_geometric
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from graphcl.augment import Identity, NodeDrop, random4
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import Loss, infonce
from graphcl.methods import MoCo, TwoViews
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.loop import NonFiniteLossError, embed, train
from tests.methods.small import graphs, make_model


def run(data, epochs=4, model=None, **options):
    model = model or make_model()
    loader = ResidentLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(0))
    options = {"loss": infonce, "view": random4(), "generator": torch.Generator().manual_seed(1), **options}
    method = TwoViews(model, options.pop("loss"))
    history = train(method, loader, Identity(), options.pop("view"), epochs=epochs, **options)
    return model, history


def test_it_learns_and_calls_back_after_each_epoch():
    seen = []
    _, history = run(graphs(40), epochs=20, view=NodeDrop(0.1), callbacks=[seen.append])
    assert seen == history
    assert history[-1].loss < 0.85 * history[0].loss
    assert [record.epoch for record in history] == list(range(1, 21))
    assert all(0 < record.data_seconds < record.seconds for record in history)


def test_embed_drops_the_projector_and_keeps_the_order():
    data = graphs(40)
    model, _ = run(data)
    h, y = embed(model, ResidentLoader(data, 7))
    assert h.shape == (40, 16)
    assert y.tolist() == [graph.y.item() for graph in data]
    model.eval()
    one = Batch.from_data_list([data[3]])
    assert torch.allclose(h[3:4], model.encoder(one.x, one.edge_index, one.batch), atol=1e-4)
    assert embed(model, ResidentLoader([Data(x=g.x, edge_index=g.edge_index) for g in data], 7))[1] is None


def test_embed_restores_the_mode_and_keeps_the_statistics():
    model, _ = run(graphs(40))
    model.train()
    before = copy.deepcopy(model.state_dict())
    h, _ = embed(model, ResidentLoader(graphs(40), 8))
    assert model.training
    assert not h.requires_grad
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


class NonFinite:
    """Loss that is infinite, or has a NaN gradient, at the given calls, counted from 1."""

    def __init__(self, *calls: int, gradient: bool = False) -> None:
        self.calls, self.gradient, self.called = calls, gradient, 0

    def __call__(self, z1, z2):
        self.called += 1
        value = infonce(z1, z2)
        if self.called not in self.calls:
            return value
        if self.gradient:
            value.register_hook(lambda grad: grad * torch.nan)
            return value
        return value * torch.inf


@pytest.mark.parametrize("gradient", [False, True])
def test_a_skipped_step_changes_nothing(gradient):
    """Skipping the second of three batches gives the state of training on the other two batches only."""
    data, order = graphs(48), [[*range(16)], [*range(16, 32)], [*range(32, 48)]]

    def go(batches, loss, **options):
        model = make_model()
        loader = DataLoader(data, batch_sampler=batches)
        history = train(TwoViews(model, loss), loader, Identity(), Identity(), epochs=1, **options)
        return model.state_dict(), history

    found, history = go(order, NonFinite(2, gradient=gradient), non_finite="skip")
    wanted, _ = go([order[0], order[2]], infonce)
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert history[0].diagnostics["skipped"] == 1
    clipped, _ = go([order[0], order[2]], infonce, non_finite="skip", clip_norm=1e9)
    assert all(torch.equal(clipped[key], wanted[key]) for key in wanted)


def test_a_skipped_step_changes_no_momentum_encoder_and_no_queue():
    data = graphs(48)

    def go(loss, **options):
        model = make_model()
        torch.manual_seed(0)
        method = MoCo(model, loss, momentum=0.5, queue_size=100)
        loader = DataLoader(data, batch_size=16)
        train(method, loader, Identity(), Identity(), epochs=1, **options)
        return method

    def loss(z1, z2, queue=None, symmetric=False, **ids):
        calls.append(1)
        return infonce(z1, z2, queue=queue, symmetric=symmetric) * (torch.nan if len(calls) == 3 else 1.0)

    calls: list[int] = []
    method = go(loss, non_finite="skip")
    assert len(method.queue) == 32
    data, calls = data[:32], []
    wanted = go(loss)
    assert all(torch.equal(one, other) for one, other in zip(method.parameters(), wanted.parameters(), strict=True))


def rates_of(**options):
    """Return the learning rate of each step, and the number of epochs."""
    rates = []

    def note(optimizer, args, kwargs):
        rates.append(optimizer.param_groups[0]["lr"])

    hook = register_optimizer_step_pre_hook(note)
    try:
        _, history = run(graphs(40), lr=0.1, **options)  # three steps an epoch
    finally:
        hook.remove()
    return rates, len(history)


def test_the_learning_rate_rises_and_falls():
    rates, _ = rates_of(epochs=4, schedule="cosine", warmup=0.25)
    wanted = [0.1 * (1 + math.cos(math.pi * step / 9)) / 2 for step in range(9)]
    assert rates == pytest.approx([0.1 / 3, 0.2 / 3, 0.1, *wanted])
    assert rates_of(steps=4, warmup=0.5)[0] == pytest.approx([0.05, 0.1, 0.1, 0.1])


def test_patience_counts_epochs_without_a_lower_loss():
    losses = iter([3.0] * 3 + [2.0] * 3 + [2.5] * 3 + [2.1] * 3 + [1.0] * 3)

    def loss(z1, z2):
        return infonce(z1, z2) * 0 + next(losses)

    assert rates_of(epochs=5, patience=2, loss=loss)[1] == 4


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_each_optimizer_is_torchs(name):
    def model_after(**options):
        return run(graphs(16), epochs=1, steps=1, lr=0.1, weight_decay=0.5, **options)[0]

    start, ours = make_model(), model_after(optimizer=name)
    gradients = [each.grad for each in ours.parameters()]
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    reference = kinds[name](start.parameters(), lr=0.1, weight_decay=0.5)
    for each, gradient in zip(start.parameters(), gradients, strict=True):
        each.grad = gradient
    reference.step()
    for got, expected in zip(ours.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(got, expected)


def test_names_stand_for_losses_and_augmentations():
    by_name = run(graphs(40), loss="infonce", view="node_drop")[0].state_dict()
    by_object = run(graphs(40), loss=Loss("infonce"), view=NodeDrop())[0].state_dict()
    assert all(torch.equal(by_name[key], by_object[key]) for key in by_object)


def test_clipping_bounds_the_gradient():
    norms = []

    def watch(z1, z2):
        value = 1e6 * infonce(z1, z2)
        value.register_hook(lambda grad: norms.append(grad))
        return value

    model, _ = run(graphs(40), epochs=1, loss=watch, clip_norm=0.5)
    total = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert total <= 0.5 + 1e-4
    assert norms


def test_bfloat16_trains_and_the_loss_stays_float32():
    dtypes = []

    def watch(z1, z2):
        value = infonce(z1, z2)
        dtypes.extend([z1.dtype, value.dtype])
        return value

    _, history = run(graphs(40), epochs=20, view=NodeDrop(0.1), loss=watch, amp=True)
    assert dtypes[:2] == [torch.bfloat16, torch.float32]
    assert history[-1].loss < history[0].loss


def test_zero_epochs_change_nothing():
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    assert run(graphs(40), epochs=0, model=model)[1] == []
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


class MeanGCN(torch.nn.Module):
    """Custom encoder with PyG's usual call signature and no `out_channels`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 6)

    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.conv(x, edge_index).relu(), batch)


def test_any_pyg_encoder_and_loader():
    torch.manual_seed(0)
    model = ContrastiveModel(MeanGCN(), projection=5, out_channels=6)
    loader = DataLoader(graphs(40), batch_size=16, shuffle=True)
    history = train(TwoViews(model, Loss("adnce")), loader, NodeDrop(0.2), random4(), epochs=2)
    assert len(history) == 2
    assert embed(model, DataLoader(graphs(40), batch_size=16))[0].shape == (40, 6)


def infinite_feature():
    data = graphs(40)
    data[5].x[0, 0] = float("inf")
    return run(data)


def infinite_embedding():
    data, model = graphs(8), make_model()
    data[5].x[0, 0] = 1e38
    for parameter in model.parameters():
        parameter.data.mul_(100)
    return embed(model, ResidentLoader(data, 4))


def of(loader, **options):
    return train(TwoViews(make_model(), infonce), loader, "identity", "identity", **options)


REFUSED = {
    "a model": (lambda: train(make_model(), [], "identity", "identity"),
                r"got ContrastiveModel; pass a method, such as TwoViews\(model, \"infonce\"\)"),
    "a data set": (lambda: embed(make_model(), load_dataset("synthetic")),
                   r"`loader` must give batches, got \w+; use ResidentLoader\(dataset, 1024\)"),
    "a class": (lambda: TwoViews(make_model(), Loss), "`loss` must be a Loss, its name, or a function"),
    "an encoder of nodes": (lambda: run(graphs(40), model=ContrastiveModel(torch_geometric.nn.GCN(4, 6, 2, 6))),
                            r"one row per graph, got \[\d+, 6\] for 16 graphs; .*Pooled\(GCN"),
    "no width": (lambda: ContrastiveModel(MeanGCN()),
                 r"MeanGCN has no `out_channels`; pass it: Contrastive.*, out_channels=64\)"),
    "nothing to embed": (lambda: embed(make_model(), iter([])),
                         r"^`loader` gave no batch; it must give all batches each time it is iterated"),
    "an exhausted loader": (lambda: of(iter(list(ResidentLoader(graphs(40), 16))), epochs=2),
                            "`loader` gave no batch in epoch 2"),
    "no length": (lambda: of(iter([]), warmup=0.5),
                  r"^`schedule` and `warmup` need a loader with a length; pass `steps`"),
    "infinite embedding": (infinite_embedding, "the embedding of graph 5 is NaN or infinite; look for NaN or very lar"),
    "infinite feature": (infinite_feature,
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
    ("non_finite", "ignore", r"`non_finite` must be 'stop' or 'skip', got 'ignore'\."),
    ("clip_norm", -1.0, r"`clip_norm` must be in \(0, inf\), got -1\.0\."),
    ("lr", -1, r"`lr` must be in \(0, inf\), got -1"),
    ("weight_decay", float("nan"), r"`weight_decay` must be in \[0, inf\), got nan\."),
    ("schedule", "step", r"`schedule` must be 'constant' or 'cosine', got 'step'\."),
    ("optimizer", "lbfgs", r"`optimizer` must be 'adam', 'adamw' or 'sgd', got 'lbfgs'\."),
    ("warmup", 1.0, r"`warmup` must be in \[0, 1\), got 1\.0\."),
    ("view", random4, r"`second` must be an augmentation; call random4, as in random4\(\)\."),
    ("momentum", 0.9, r"`train` has no argument `momentum`; .*choose from: "),
]:
    REFUSED[name] = (functools.partial(run, graphs(40), **{name: value}), f"^{line}")


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_and_non_finite_values_get_one_line(name):
    call, line = REFUSED[name]
    with pytest.raises(InputError, match=line) as caught:
        call()
    assert isinstance(caught.value, NonFiniteLossError) == ("epoch 1" in line)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda():
    model = make_model().cuda()
    loader = ResidentLoader(graphs(40), 16, shuffle=True, generator=torch.Generator().manual_seed(0), device="cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    history = train(TwoViews(model, infonce), loader, Identity(), random4(), epochs=15, generator=generator)
    assert history[-1].loss < history[0].loss - 0.2
    assert embed(model, loader)[0].device.type == "cpu"
