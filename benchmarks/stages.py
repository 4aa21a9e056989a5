"""Time the parts of a training step one by one, in milliseconds per step.

Batching makes both views' batches. Augmentations are timed on whole chunks, as `train` calls them: each alone on all
graphs, then `random4`, which draws one of the four for each graph. Encoder and projector run forward and backward on
both views, with random gradients; `forward` is the encoder's forward pass alone.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from ours import LEARNING_RATE, RATIO, Ours, take_apart
from timing import median, timed

from graphcl import AttributeMask, EdgePerturb, NodeDrop, Subgraph, embed, random4, svm

AUGMENTATIONS = {
    "node_drop": NodeDrop(RATIO),
    "subgraph": Subgraph(RATIO),
    "edge_perturb": EdgePerturb(RATIO),
    "attribute_mask": AttributeMask(RATIO),
    "random4": random4(RATIO),
}
COLUMNS = {
    "set": "set",
    "batching": "batching",
    "node_drop": "node drop",
    "subgraph": "subgraph",
    "edge_perturb": "edge perturb",
    "attribute_mask": "attribute mask",
    "random4": "random4",
    "forward": "encoder forward",
    "encoder": "encoder forward + backward",
    "projector": "projector",
    "loss": "loss",
    "optimiser": "optimiser",
    "step": "whole step",
}


def stages(run: Ours, limit: int | None, repeats: int, device: torch.device | str = "cpu") -> dict[str, float]:
    """Return the milliseconds per step of each part, over an epoch or about `limit` graphs of it.

    Also, per step, the nodes and edges of both views: `nodes1`, `edges1`, `nodes2`, `edges2`.
    """
    device = torch.device(device)
    run.loader.limit = limit
    run.method.train()
    chunks = list(run.loader.chunks())
    steps = sum(len(sizes) for _, sizes in chunks)

    def cut() -> None:
        for chunk, sizes in run.loader.chunks():
            take_apart(chunk, sizes), take_apart(chunk, sizes)

    found = {"batching": median(cut, repeats, device)}
    for name, augmentation in AUGMENTATIONS.items():

        def augment(augmentation=augmentation) -> None:
            for chunk, _ in chunks:
                augmentation(chunk, run.generator)

        found[name] = median(augment, repeats, device)

    pairs = []
    for chunk, sizes in chunks:
        view = AUGMENTATIONS["random4"](chunk, run.generator)
        pairs += zip(take_apart(chunk, sizes), take_apart(view, sizes), strict=True)
    model = run.model

    def autocast() -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=run.amp)

    def forward() -> None:
        for pair in pairs:
            with autocast():
                for view in pair:
                    model.encode(view)

    def encoder() -> None:
        for pair in pairs:
            with autocast():
                h = [model.encode(view) for view in pair]
            torch.autograd.backward(h, [slope[: len(each)].to(each.dtype) for each in h])
            model.zero_grad()

    with torch.no_grad():
        embeddings = [[model.encode(view).float() for view in pair] for pair in pairs]
        projections = [[model.projector(h) for h in pair] for pair in embeddings]
    slope = torch.randn(max(pair[0].num_graphs for pair in pairs), embeddings[0][0].size(1), device=device)

    def projector() -> None:
        for pair in embeddings:
            with autocast():
                z = [model.projector(h.requires_grad_()) for h in pair]
            torch.autograd.backward(z, [slope[: len(each)].to(each.dtype) for each in z])
            model.zero_grad()

    def loss() -> None:
        for pair in projections:
            run.method.loss(*(z.requires_grad_() for z in pair)).backward()

    weights = [each.detach().clone().requires_grad_() for each in model.parameters()]
    for each in weights:
        each.grad = torch.randn_like(each)
    optimiser = torch.optim.Adam(weights, lr=LEARNING_RATE, fused=True)

    def optimise() -> None:
        for _ in pairs:
            optimiser.step()

    actions = {"forward": forward, "encoder": encoder, "projector": projector, "loss": loss, "optimiser": optimise}
    for name, action in actions.items():
        found[name] = median(action, repeats, device)

    run.epoch(limit)
    found["step"] = statistics.median(_epoch(run, limit, device) for _ in range(repeats))
    found = {name: 1e3 * seconds / steps for name, seconds in found.items()}
    for number in (0, 1):
        found[f"nodes{number + 1}"] = sum(pair[number].num_nodes for pair in pairs) / steps
        found[f"edges{number + 1}"] = sum(pair[number].num_edges for pair in pairs) / steps
    return found


def _epoch(run: Ours, limit: int | None, device: torch.device) -> float:
    return timed(lambda: run.epoch(limit), device)


def evaluation(run: Ours, dataset: Any, threads: int) -> float:
    """Return the seconds for the embedding and its SVM score, with ten outer and five inner folds."""
    from graphcl import ResidentLoader

    def evaluate() -> None:
        h, y = embed(run.model, ResidentLoader(dataset, batch_size=1024))
        svm(h, y, workers=threads)

    return timed(evaluate)
