"""Test that `StreamingLoader` yields the batches of `ResidentLoader`, and that its thread ends."""

import gc
import threading
import time

import pytest
import torch

from graphcl.datasets import load_dataset, write_on_disk
from graphcl.loaders.loader import StreamingLoader, ahead_of, make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.samplers import EpochBatches
from tests.conftest import small_graphs
from tests.strategies import assert_same_batch, needs_cuda, seeded


@pytest.fixture(scope="module")
def dataset():
    return load_dataset(small_graphs(37, edge_attr=True))


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert threads() == []


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("graphcl-loader")]


def streaming(*args, **options):
    return StreamingLoader(ResidentLoader(*args, **options))


def assert_same_epochs(ahead, resident, chunks=(1, 10, 1000)):
    for got, expected in zip(ahead, resident, strict=True):
        assert_same_batch(got, expected)
    for least in chunks:
        for (got, sizes), (expected, wanted) in zip(ahead.chunks(least), resident.chunks(least), strict=True):
            assert sizes == wanted
            assert_same_batch(got, expected)
        for one, other in zip(ahead.batch_sampler.current, resident.batch_sampler.current, strict=True):
            assert torch.equal(one, other)


def test_batches_equal_those_of_the_resident_loader(dataset):
    for order in ((4,), (4, True), (4, True, None, 16), (100,)):
        samplers = [EpochBatches(len(dataset), *order) for _ in range(2)]
        for each in samplers:
            each.generator = seeded(0)
        makers = zip((ResidentLoader, streaming), samplers, strict=True)
        resident, ahead = (make(dataset, batch_sampler=each) for make, each in makers)
        assert len(ahead) == len(resident)
        assert_same_epochs(ahead, resident)


def test_the_order_is_drawn_by_the_caller(dataset):
    """The order is drawn when the iterator is created, and the thread leaves the generator unchanged."""
    generator = seeded(0)
    before = iter(streaming(dataset, 4, True, generator))
    state = generator.get_state()
    list(before)
    assert torch.equal(generator.get_state(), state)


def test_a_set_on_disk_streams_on_the_cpu(tmp_path, dataset):
    mapped = write_on_disk(dataset, tmp_path / "graphs")
    assert isinstance(make_loader(mapped, 4), StreamingLoader)
    assert isinstance(make_loader(dataset, 4), ResidentLoader)
    assert_same_epochs(*(make_loader(each, 4, True, seeded(0)) for each in (mapped, dataset)))


# -- the thread --------------------------------------------------------------------------------------------------------


def test_an_iterator_that_is_closed_or_forgotten_ends_its_thread(dataset):
    loader = streaming(dataset, 1)
    for _ in loader:
        assert len(threads()) == 1
        break
    gc.collect()
    assert threads() == []
    batches, unused = loader.chunks(1), (iter(loader), loader.chunks())
    assert threads() == []  # an unused iterator starts no thread
    next(batches)
    batches.close()
    assert threads() == []
    del unused


def test_an_exception_is_raised_in_order():
    def failing():
        yield 1
        yield 2
        raise RuntimeError("no disk")

    items = ahead_of(failing())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(RuntimeError, match="no disk"):
        next(items)
    assert threads() == []


def test_at_most_depth_items_are_made_ahead():
    for depth in (1, 5):
        made = []
        items = ahead_of((made.append(number) or number for number in range(100)), depth)
        assert made == []
        for taken in range(1, 10):
            assert next(items) == taken - 1
            time.sleep(0.002)
            assert taken <= len(made) <= taken + depth
        items.close()


# -- CUDA --------------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@needs_cuda
def test_a_set_that_does_not_fit_is_streamed_to_cuda(dataset, monkeypatch):
    on_cpu = ResidentLoader(dataset, 4, True, seeded(0))
    on_cuda = StreamingLoader(ResidentLoader(dataset, 4, True, seeded(0)), "cuda")
    for _ in range(3):
        assert_same_epochs(on_cuda, on_cpu, (8,))
        assert all(value.is_cuda for value in next(iter(on_cuda))._store.values() if isinstance(value, torch.Tensor))
        list(on_cpu)
    monkeypatch.setattr("graphcl.loaders.loader._free_memory", lambda device: 1000)
    assert isinstance(make_loader(dataset, 4, device="cuda"), StreamingLoader)
    monkeypatch.undo()
    assert isinstance(make_loader(dataset, 4, device="cuda"), ResidentLoader)
