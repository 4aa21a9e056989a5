"""Test encoders inside other modules: compiled, parallel, scripted, and wrappers of the user."""

import functools
from contextlib import contextmanager

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch_geometric import nn as pyg
from torch_geometric.data import Batch

from graphcl import GIN, ContrastiveModel, Pooled, load_encoder, save_encoder
from graphcl.datasets import load_dataset
from graphcl.models.gin import GINE
from graphcl.models.saved import EncoderDescription
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line

BATCH = Batch.from_data_list(small_graphs(6, edge_attr=True))
BATCH.edge_weight = torch.rand(BATCH.num_edges, generator=torch.Generator().manual_seed(0)) + 0.5
PLAIN = Batch.from_data_list(small_graphs(6))


class Required(nn.Module):
    """An encoder of the user, whose `forward` has no default for `edge_attr`."""

    def __init__(self):
        super().__init__()
        self.out_channels, self.lin = 3, nn.Linear(2, 3)

    def forward(self, x, edge_index, batch, edge_attr):
        rows = x.index_add(0, edge_index[1], self.lin(edge_attr))
        return torch.zeros(6, 3).index_add(0, batch, rows)


class PassedOn(nn.Module):
    """A wrapper of the user."""

    def __init__(self, inner):
        super().__init__()
        self.inner = nn.ModuleList([nn.Dropout(0.0), inner])

    def forward(self, *args, **kwargs):
        return self.inner[1](*args, **kwargs)


class PooledByUser(nn.Module):
    """A wrapper of the user that pools the rows of an encoder of nodes."""

    out_channels = 8

    def __init__(self, nodes):
        super().__init__()
        self.nodes = nodes

    def forward(self, x, edge_index, batch, **attributes):
        return pyg.global_add_pool(self.nodes(x, edge_index, **attributes), batch)


def decorated(encoder):
    """Replace `forward`, as `accelerate` does."""
    forward = encoder.forward
    encoder.forward = functools.wraps(forward)(lambda *args, **kwargs: forward(*args, **kwargs))
    return encoder


def inherited(encoder):
    """Return the encoder as an instance of a subclass of the user, which passes everything on."""

    class Inherited(type(encoder)):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    encoder.__class__ = Inherited
    return encoder


def hooked(encoder):
    encoder.register_forward_hook(lambda module, args, kwargs, out: out, with_kwargs=True)
    return encoder


def compiled(encoder):
    return torch.compile(encoder, backend="eager")


ENCODERS = {
    "gin": lambda: GIN(3, 8, 2),
    "gine": lambda: GINE(3, 2, 8, 2),
    "required": Required,
    "gat": lambda: Pooled(pyg.GAT(3, 8, 2, edge_dim=2)),
    "gcn": lambda: Pooled(pyg.GCN(3, 8, 2)),
}
WRAPPERS = {
    "compiled": compiled,
    "compiled in place": lambda encoder: encoder.compile(backend="eager") or encoder,
    "data parallel": nn.DataParallel,
    "averaged": AveragedModel,
    "of the user": PassedOn,
    "inherited": inherited,
    "two": lambda encoder: PassedOn(compiled(encoder)),
    "decorated": decorated,
    "hooked": hooked,
}


@contextmanager
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ENCODERS)
def test_rows_equal_those_of_the_bare_encoder(name, wrapper):
    model = ContrastiveModel(seeded(ENCODERS[name]))
    around = ContrastiveModel(WRAPPERS[wrapper](seeded(ENCODERS[name])).eval())
    h = model.encode(BATCH)
    assert around.width == model.width
    assert torch.equal(around.encode(BATCH), h)
    for rows in around.encode_views(BATCH, BATCH):
        torch.testing.assert_close(rows, h)
    if name in ("gin", "gcn"):
        assert torch.equal(around.encode(PLAIN), model.encode(PLAIN))


def test_distributed_data_parallel():
    with one_rank():
        around = ContrastiveModel(DistributedDataParallel(seeded(ENCODERS["gine"])))
        assert torch.equal(around.eval().encode(BATCH), ContrastiveModel(seeded(ENCODERS["gine"])).encode(BATCH))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_of_torchscript_and_fx():
    encoder = seeded(Required)
    h = ContrastiveModel(encoder).encode(BATCH)
    values = BATCH.x, BATCH.edge_index, BATCH.batch, BATCH.edge_attr
    for module in (torch.jit.script(encoder), torch.jit.trace(encoder, values), torch.fx.symbolic_trace(encoder)):
        assert torch.equal(ContrastiveModel(module, out_channels=3).encode(BATCH), h)


def test_encoders_of_nodes():
    for make in (
        lambda: pyg.GCN(3, 8, 2),
        lambda: pyg.GAT(3, 8, 2, edge_dim=2),
        lambda: pyg.GraphSAGE(3, 8, 2, norm="graph_norm"),
    ):
        h, rows = ContrastiveModel(Pooled(seeded(make))).encode_nodes(BATCH)
        for wrap in (compiled, PassedOn, inherited):
            for found, wanted in zip(
                ContrastiveModel(Pooled(wrap(seeded(make)))).encode_nodes(BATCH), (h, rows), strict=True
            ):
                assert torch.equal(found, wanted)
        if make().norms is not None:  # PyG passes `batch` to this norm
            continue
        torch.testing.assert_close(ContrastiveModel(PooledByUser(seeded(make))).encode(BATCH), h)
        found = ContrastiveModel(compiled(Pooled(seeded(make)))).encode_nodes(BATCH)
        assert torch.equal(found[1], rows)


def test_what_a_wrapper_may_keep_to_itself():
    """An attribute that a `partial` has fixed, and defaults of attributes that the graphs lack, are the encoder's."""
    encoder, ones = seeded(ENCODERS["gine"]), torch.ones_like(BATCH.edge_attr)
    fixed = seeded(ENCODERS["gine"])
    fixed.forward = functools.partial(fixed.forward, edge_attr=ones)
    changed = BATCH.clone().update({"edge_attr": ones})
    assert torch.equal(ContrastiveModel(fixed).encode(BATCH), ContrastiveModel(encoder).encode(changed))

    class Defaults(PooledByUser):
        def forward(self, x, edge_index, batch, edge_weight=2.0):
            return pyg.global_add_pool(x, batch) * edge_weight

    model = ContrastiveModel(Defaults(None), out_channels=3)
    assert torch.equal(model.encode(PLAIN), 2 * pyg.global_add_pool(PLAIN.x, PLAIN.batch))


def test_a_wrapper_that_cannot_pass_an_attribute_on_gets_a_line():
    class OfNodes(nn.Module):
        out_channels = 3

        def forward(self, x, edge_index):
            return x

    class Hidden(PooledByUser):
        """Hold a module that is not registered as a child."""

        out_channels = 3

        def __init__(self):
            super().__init__([OfNodes()])

        def forward(self, x, edge_index, batch, **attributes):
            return pyg.global_add_pool(self.nodes[0](x, edge_index, **attributes), batch)

    model = ContrastiveModel(Hidden())
    assert model.encode(PLAIN).shape == (6, 3)
    one_line(lambda: model.encode(BATCH), "Hidden passes `edge_attr` on to a module that does not take it; name the")

    class Without(PooledByUser):
        def forward(self, x, edge_index, batch):
            return self.nodes(x, edge_index, batch)

    model = ContrastiveModel(Without(GINE(3, 2, 4, 2)))
    one_line(lambda: model.encode(BATCH), "GINE needs `edge_attr`, but got none; use gin, or name it in the module")


def test_what_no_encoder_can_do_is_one_line():
    one_line(lambda: ContrastiveModel(Required()).encode(PLAIN), "Required needs `edge_attr`, which the graphs lack (")

    class NamesOnly(PooledByUser):
        def forward(self, **attributes):
            return self.nodes(**attributes)

    one_line(lambda: ContrastiveModel(NamesOnly(None)), "NamesOnly.forward takes no `edge_index` and no `batch`;")


def test_weights_of_a_compiled_encoder_fit_the_bare_one_and_back(tmp_path):
    dataset = load_dataset(small_graphs(6, edge_attr=True))
    bare, around = seeded(ENCODERS["gine"]), compiled(seeded(ENCODERS["gine"]))
    h = ContrastiveModel(bare).encode(BATCH)
    for trained, other in ((bare, around), (around, bare)):
        description = EncoderDescription.of(trained, dataset)
        assert description.edge_dim == 2
        save_encoder(tmp_path / "encoder.pt", description, {0: trained.state_dict()})
        loaded, _ = load_encoder(tmp_path / "encoder.pt", encoder=other)
        assert torch.equal(ContrastiveModel(loaded).encode(BATCH), h)
