"""Training an encoder with the labels of a benchmark's training part.

- The encoder and a linear layer on its embeddings are trained together, by Adam; entries of the embedding are dropped.
- Labels that are missing count neither for nor against anything.
- The epoch that is best on the validation part by the set's metric is kept, the first of equals; only its weights are
  scored on the test part.

Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), section 5.

Differs: they drop entries of the nodes in every layer, not of the embedding, and split each set themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import InputError
from graphcl.evaluate import LOWER, FoldScores
from graphcl.evaluate.ogb import PARTS, measure_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.loop import NonFiniteLossError, embed_batches


def with_outputs(encoder: nn.Module, dataset: GraphDataset, seed: int = 0) -> ContrastiveModel:
    """The encoder with a linear layer for a benchmark's targets, whose weights depend on the seed only.

    It has an output for each task; for classes (accuracy) one for each class of the training part.

    Raises:
        InputError: see `benchmark_of`.
    """
    benchmark = benchmark_of(dataset)
    outputs = benchmark.num_tasks
    if benchmark.eval_metric == "acc":
        outputs = int(dataset.y[benchmark.split["train"]].nan_to_num(0).max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ContrastiveModel(encoder, outputs, "linear")


def benchmark_of(dataset: GraphDataset) -> Benchmark:
    """What a benchmark prescribes for the data set.

    Raises:
        InputError: none prescribes anything, or several tasks of classes.
    """
    benchmark = dataset.benchmark
    if benchmark is None:
        raise InputError(
            f"{dataset.name} has no split of its own, whose validation part would choose the epoch of --mode finetune; "
            "pass --mode probe."
        )
    if benchmark.eval_metric == "acc" and benchmark.num_tasks > 1:
        raise InputError(f"{dataset.name} has {benchmark.num_tasks} tasks of classes; fine-tuning takes one.")
    return benchmark


def check_labels(dataset: GraphDataset) -> None:
    """Refuse a split on whose parts nothing can be measured, such as those with one class only.

    Raises:
        InputError: so it is; see `benchmark_of`; or ogb is not installed.
    """
    benchmark = benchmark_of(dataset)
    measure = measure_of(benchmark.name, benchmark.eval_metric)
    for part in ("valid", "test"):
        targets = dataset.y[benchmark.split[part]].numpy()
        measure(targets, np.zeros_like(targets))


def supervised_loss(out: Tensor, y: Tensor, metric: str) -> Tensor:
    r"""The mean loss over the labels that are there, of a batch.

    $$\frac{\sum_{i,t} m_{it} \, \ell(o_{it}, y_{it})}{\sum_{i,t} m_{it}}$$

    where m is 0 if a label is missing, else 1, and the loss is the binary cross-entropy for ROC-AUC and AP, the
    cross-entropy for accuracy, the squared error for RMSE.

    Args:
        out: `[B, tasks]`; for accuracy `[B, classes]`, of one task.
        y: `[B, tasks]`, NaN where a label is missing.
        metric: `rocauc`, `ap`, `acc` or `rmse`.

    Returns:
        A scalar; 0 where no label is there.

    Example:
        >>> y = torch.tensor([[1.0, float("nan")]])
        >>> round(supervised_loss(torch.zeros(1, 2), y, "rocauc").item(), 4)
        0.6931
    """
    there = ~y.isnan()
    known = y.nan_to_num(0)
    if metric == "acc":
        losses = functional.cross_entropy(out, known.long().flatten(), reduction="none")[:, None]
    elif metric == "rmse":
        losses = (out - known).square()
    else:
        losses = functional.binary_cross_entropy_with_logits(out, known, reduction="none")
    return (losses * there).sum() / there.sum().clamp(min=1)


def finetune(
    model: ContrastiveModel,
    dataset: GraphDataset,
    seed: int = 0,
    *,
    epochs: int = 100,
    batch_size: int = 32,
    lr: float = 0.001,
    weight_decay: float = 0.0,
    dropout: float = 0.5,
    callbacks: Iterable[Callable[[dict[str, float]], Any]] = (),
) -> FoldScores:
    """Train an encoder and its outputs with the labels of a benchmark's training part; the head of this file says how.

    Args:
        model: see `with_outputs`; trained in place, on its device, and left with the weights of the chosen epoch.
        dataset: graphs with a benchmark's split.
        seed: of the order of the graphs, and of what is dropped.
        epochs: passes over the training part, >= 1.
        batch_size: graphs in a batch, >= 2.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        dropout: the share of the embedding's entries that are dropped, in [0, 1).
        callbacks: each is called after every epoch with its `epoch`, `loss`, `valid` (the metric) and `seconds`.

    Returns:
        `FoldScores` of one fold: the test score, the epoch `chosen`, the `inner` score on the validation part.

    Raises:
        InputError: see `benchmark_of`; or nothing can be measured on a part, see `check_labels`.
        NonFiniteLossError: the loss or a prediction became NaN or infinite.
    """
    benchmark = benchmark_of(dataset)
    metric, device = benchmark.eval_metric, next(model.parameters()).device
    measure = measure_of(benchmark.name, metric)
    # Two streams a seed, so that the order of the graphs and what is dropped are independent of each other.
    order, drops = torch.Generator().manual_seed(2 * seed), torch.Generator(device).manual_seed(2 * seed + 1)
    parts = {part: dataset[benchmark.split[part]] for part in PARTS}
    loader = make_loader(parts["train"], batch_size, True, order, device)
    whole = {part: make_loader(parts[part], 1024, device=device) for part in ("valid", "test")}

    def measured(part: str, epoch: int) -> float:
        predicted = _predict(model, whole[part])
        _refuse_non_finite(bool(predicted.isfinite().all()), f"the predictions for the {part} part", epoch)
        if metric == "acc":
            predicted = predicted.argmax(dim=1, keepdim=True)
        return measure(dataset.y[benchmark.split[part]].numpy(), predicted.numpy())

    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
    best, chosen, weights = 0.0, 0, {}
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        model.train()
        losses = []
        for batch in loader:
            batch = batch.to(device)
            h = model.encode(batch)
            kept = torch.rand(h.shape, generator=drops, device=device) >= dropout
            loss = supervised_loss(model.projector(h * kept / (1 - dropout)), batch.y, metric)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean().item()
        _refuse_non_finite(math.isfinite(mean), "the loss", epoch)
        valid = measured("valid", epoch)
        if not chosen or (valid < best if metric in LOWER else valid > best):
            best, chosen = valid, epoch
            weights = {key: value.clone() for key, value in model.state_dict().items()}
        for callback in callbacks:
            callback({"epoch": epoch, "loss": mean, "valid": valid, "seconds": time.perf_counter() - start})
    model.load_state_dict(weights)
    return FoldScores(seed, (measured("test", chosen),), (chosen,), (best,), 1, 1, metric)


@torch.no_grad()
def _predict(model: ContrastiveModel, loader: Iterable[Batch]) -> Tensor:
    """The outputs for all graphs, in evaluation mode, on the CPU."""
    return torch.cat([model.projector(h) for h, _ in embed_batches(model, loader)]).cpu()


def _refuse_non_finite(finite: bool, what: str, epoch: int) -> None:
    if not finite:
        raise NonFiniteLossError(f"{what} became NaN or infinite in epoch {epoch}; try a smaller learning rate.")
