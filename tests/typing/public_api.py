"""The public names as a strict type checker sees them: `mypy --strict tests/typing/public_api.py`, never run.

What is wrong on purpose says which error is wanted; a missing error is one too (an unused `ignore`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import assert_type

import graphcl
from graphcl.augment import Augmentation
from graphcl.evaluate import FoldScores
from graphcl.experiment.record.progress import TensorBoard
from graphcl.losses import adnce, barlow_twins, infonce, nt_xent
from graphcl.training.loop import Epoch


def the_readme() -> None:
    dataset = graphcl.load_dataset("PROTEINS", mirror="~/tu")
    loader = graphcl.ResidentLoader(dataset, batch_size=128, shuffle=True, generator=torch.Generator().manual_seed(0))
    model = graphcl.ContrastiveModel(graphcl.GIN(dataset.num_features, hidden_channels=32, num_layers=3))
    method, view = graphcl.TwoViews(model, graphcl.Loss("adnce", mu=0.7)), graphcl.NodeDrop(0.2)
    assert_type(graphcl.train(method, loader, view, graphcl.Subgraph(0.2), epochs=20), list[Epoch])
    h, y = graphcl.embed(model, graphcl.ResidentLoader(dataset, batch_size=1024))
    assert_type(h, Tensor)
    assert y is not None
    assert_type(graphcl.svm(h, y), FoldScores)
    assert_type(graphcl.svm(h, y).mean, float)
    assert_type(graphcl.make_config({"loss": "adnce"}).lr, float)
    with TensorBoard("folder", seed=0) as board:
        assert_type(board, TensorBoard)
        graphcl.train(method, loader, view, graphcl.random4(), callbacks=[board])
    graphcl.train(method, loader, view, 3)  # type: ignore[arg-type]
    graphcl.ResidentLoader(dataset, batch_size="many")  # type: ignore[arg-type]
    TensorBoard("folder", sed=0)  # type: ignore[call-arg]


def the_losses(z1: Tensor, z2: Tensor) -> None:
    assert_type(adnce(z1, z2, temperature=0.2), Tensor)
    assert_type(graphcl.losses.nt_xent(z1, z2, reduction="none"), Tensor)
    assert_type(graphcl.Loss("adnce", mu=0.5)(z1, z2), Tensor)
    assert_type(infonce.terms(graphcl.losses.compare(z1, z2), temperature=0.5), Tensor)
    adnce(z1, z2, 0.2)  # type: ignore[call-arg]
    adnce(z1, z2, temprature=0.2)  # type: ignore[call-arg]
    adnce(z1, z2, temperature="hot")  # type: ignore[arg-type]
    adnce(z1, z2, negatives="some")  # type: ignore[arg-type]
    adnce(z1)  # type: ignore[call-arg]
    nt_xent(z1, z2, negatives="all")  # type: ignore[call-arg]
    barlow_twins(z1, z2, off_diagonal="x")  # type: ignore[arg-type]
    graphcl.Loss("adnce")(z1)  # type: ignore[call-arg]
    graphcl.Loss(3)  # type: ignore[arg-type]


def the_augmentations(graph: int) -> None:
    pool: list[Augmentation] = [graphcl.NodeDrop(0.2), graphcl.Compose([graphcl.NodeDrop(0.2), graphcl.Subgraph(0.2)])]
    assert_type(graphcl.OneOf(pool), graphcl.OneOf)
    assert_type(graphcl.random4(0.1), graphcl.OneOf)
    assert_type(graphcl.NodeDrop(0.2)(graph), int)  # whatever kind of graph goes in, the same comes out
    graphcl.NodeDrop("0.2")  # type: ignore[arg-type]
    graphcl.NodeDrop(rate=0.2)  # type: ignore[call-arg]
    graphcl.random4(ration=0.2)  # type: ignore[call-arg]
    graphcl.Subgraph(0.2, growth="two_hop")  # type: ignore[arg-type]
    graphcl.NodeDrop(0.2)(graph, generator=0)  # type: ignore[arg-type]
