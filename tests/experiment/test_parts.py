"""Test splits by folds, and training parts with few labels."""

import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.experiment.finetune import fold_splits, with_label_rate
from tests.conftest import small_graphs

DATASET = load_dataset(small_graphs(n=60, classes=3))


def test_every_fold_is_the_test_part_once_and_the_data_set_is_unchanged():
    copies = list(fold_splits(DATASET, seed=4, folds=5))
    reference = StratifiedKFold(5, shuffle=True, random_state=4).split(DATASET.y, DATASET.y)
    for k, (copy, (_, test)) in enumerate(zip(copies, reference, strict=True)):
        split = copy.benchmark.split
        assert split["test"].tolist() == test.tolist()
        assert split["valid"].tolist() == copies[(k + 1) % 5].benchmark.split["test"].tolist()
        assert sorted(torch.cat(list(split.values())).tolist()) == list(range(60))
        part = copy[split["train"]]
        assert torch.equal(part.y[:, 0].long(), DATASET.y[split["train"]])
        assert torch.equal(part[0].x, DATASET[int(split["train"][0])].x)
    assert (DATASET.benchmark, DATASET.y.shape, copies[0].y.shape) == (None, (60,), (60, 1))


def test_each_class_keeps_its_rate_of_labels():
    one = next(fold_splits(DATASET, seed=0))
    for rate, each in ((1.0, 16), (0.5, 8), (0.1, 2), (0.001, 1)):
        few = with_label_rate(one, rate, seed=3)
        train = few.benchmark.split["train"]
        assert torch.bincount(DATASET.y[train]).tolist() == [each] * 3, rate
        assert set(train.tolist()) <= set(one.benchmark.split["train"].tolist()), rate
        assert few.benchmark.split["test"] is one.benchmark.split["test"], rate
        assert torch.equal(train, with_label_rate(one, rate, seed=3).benchmark.split["train"]), rate


def test_messages():
    with pytest.raises(InputError, match="own has no class labels to split by"):
        next(fold_splits(load_dataset(small_graphs(labelled=False)), 0))
    with pytest.raises(InputError, match="own needs 3 folds and 3 graphs of every class"):
        next(fold_splits(DATASET, 0, folds=2))
