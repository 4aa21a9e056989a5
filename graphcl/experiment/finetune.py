"""Fine-tune an encoder with the labels of a split's training part.

Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), section 5.

Differs: the paper makes its own splits and applies dropout to the nodes in every layer. Here, the benchmark's split is
used, and dropout is applied to the embeddings, unless the encoder has an attribute `drop`, a function of node rows.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.errors import InputError
from graphcl.evaluate import LOWER, FoldScores
from graphcl.evaluate.folds import outer_folds
from graphcl.evaluate.on_split import PARTS, OnPredicted, check_metric, further_figures, task_mean
from graphcl.evaluate.scores import NUMBERS
from graphcl.loaders.loader import make_loader
from graphcl.loaders.samplers import EpochBatches
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.loop import NonFiniteLossError, embed_batches
from graphcl.training.randomness import seeded


def fold_splits(dataset: GraphDataset, seed: int, folds: int = 10) -> Iterator[GraphDataset]:
    """Yield one copy of the data set for each fold, split into training, validation and test graphs.

    Copy k has fold k as the test part, the next fold as the validation part, and the other folds as the training part.
    The folds are stratified and shuffled by the seed, as in `graphcl.evaluate.svm`; there are at most as many as graphs
    in the smallest class. The metric is the accuracy. The copies share the graphs in memory.

    Raises:
        InputError: the graphs have no classes, `folds` is below 3, or a class has fewer than 3 graphs.
    """
    if not dataset.labelled:
        raise InputError(f"{dataset.name} has no class labels to split by.")
    parts = [torch.from_numpy(held) for _, held in outer_folds(dataset.y.numpy(), seed, folds)]
    if len(parts) < 3:
        raise InputError(
            f"{dataset.name} needs 3 folds and 3 graphs of every class, for training, validation and test."
        )
    for k, test in enumerate(parts):
        valid = (k + 1) % len(parts)
        train = torch.cat([part for j, part in enumerate(parts) if j not in (k, valid)]).sort().values
        split = {"train": train, "valid": parts[valid], "test": test}
        divided, divided._data = copy.copy(dataset), copy.copy(dataset._data)
        divided._data.y = dataset.y[:, None].float()  # as in a benchmark's data set
        divided.benchmark, divided._data_list = Benchmark(split, "classification", "acc", 1), None
        yield divided


def with_label_rate(dataset: GraphDataset, rate: float, seed: int) -> GraphDataset:
    """Return a copy of the data set with a random subset of its training part, to simulate few labels.

    The subset has the fraction `rate` of the training graphs of each class, rounded, and at least one graph. For
    regression or several tasks, it has this fraction of all training graphs. The other parts do not change.
    """
    benchmark = dataset.benchmark
    assert benchmark is not None
    train, generator = benchmark.split["train"], torch.Generator().manual_seed(seed)
    single = benchmark.eval_metric == "acc" and benchmark.num_tasks == 1
    classes = dataset.y[train, 0] if single else torch.zeros(len(train))
    kept = []
    for value in classes.unique():
        members = train[classes == value]
        count = max(1, round(rate * len(members)))
        kept.append(members[torch.randperm(len(members), generator=generator)[:count]])
    return with_training_part(dataset, torch.cat(kept).sort().values)


def with_training_part(dataset: GraphDataset, graphs: Tensor) -> GraphDataset:
    """Return a copy of a data set with a split whose training part holds these graphs."""
    assert dataset.benchmark is not None
    changed = copy.copy(dataset)
    changed.benchmark = dataclasses.replace(dataset.benchmark, split={**dataset.benchmark.split, "train": graphs})
    return changed


def with_outputs(encoder: nn.Module, dataset: GraphDataset, seed: int = 0) -> ContrastiveModel:
    """Return `encoder` with a linear output layer, initialised with `seed`, for the benchmark of `dataset`.

    The layer has one output per task; if the metric is accuracy, one per class in the training part.

    Raises:
        InputError: see `benchmark_of`.
    """
    benchmark = benchmark_of(dataset)
    outputs = benchmark.num_tasks
    if benchmark.eval_metric == "acc":
        outputs = int(dataset.y[benchmark.split["train"]].nan_to_num(0).max()) + 1
    with seeded(seed):
        return ContrastiveModel(encoder, outputs, "linear")


def benchmark_of(dataset: GraphDataset) -> Benchmark:
    """Return the benchmark of `dataset`; InputError if it has none, or several tasks scored by accuracy."""
    benchmark = dataset.benchmark
    if benchmark is None:
        raise InputError(
            f"{dataset.name} has no split, but fine-tuning selects the epoch on a validation part; use `fold_splits`."
        )
    if benchmark.eval_metric == "acc" and benchmark.num_tasks > 1:
        raise InputError(f"{dataset.name} has {benchmark.num_tasks} classification tasks; fine-tuning supports one.")
    return benchmark


def check_labels(dataset: GraphDataset) -> None:
    """Raise InputError if `benchmark_of` does, or if the metric is undefined on the validation or test part."""
    benchmark = benchmark_of(dataset)
    check_metric(benchmark.eval_metric, dataset.y, benchmark.split)


def supervised_loss(out: Tensor, y: Tensor, metric: str) -> Tensor:
    r"""Return the mean loss over the known labels of a batch.

    $$\frac{\sum_{i,t} m_{it} \, \ell(o_{it}, y_{it})}{\sum_{i,t} m_{it}}$$

    where $o_{it}$ and $y_{it}$ are the output and the label of graph i for task t, and $m_{it}$ is 0 if the label is
    missing, else 1. The loss $\ell$ is the binary cross-entropy for ROC-AUC and AP, the cross-entropy for accuracy, and
    the squared error for RMSE, MAE and R2.

    Args:
        out: outputs `[B, tasks]`; for accuracy, logits `[B, classes]` of the only task.
        y: labels `[B, tasks]`; NaN for a missing label.
        metric: `rocauc`, `ap`, `acc`, `rmse`, `mae` or `r2`.

    Returns:
        A scalar; 0 if no label is known.

    Example:
        >>> y = torch.tensor([[1.0, float("nan")]])
        >>> round(supervised_loss(torch.zeros(1, 2), y, "rocauc").item(), 4)
        0.6931
    """
    labelled = ~y.isnan()
    targets = y.nan_to_num(0)
    if metric == "acc":
        losses = functional.cross_entropy(out, targets.long().flatten(), reduction="none")[:, None]
    elif metric in NUMBERS:
        losses = (out - targets).square()
    else:
        losses = functional.binary_cross_entropy_with_logits(out, targets, reduction="none")
    return (losses * labelled).sum() / labelled.sum().clamp(min=1)


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
    frozen: bool = False,
    callbacks: Iterable[Callable[[dict[str, float]], Any]] = (),
    on_predicted: OnPredicted | None = None,
) -> FoldScores:
    """Fine-tune an encoder and its output layer on a benchmark, and return the test score of the selected epoch.

    Adam trains both; labels that are missing do not contribute to the loss. The first epoch with the best metric on the
    validation part is selected. Only its weights are scored on the test part.

    Args:
        model: model from `with_outputs`, trained in place on its device; ends with the selected epoch's weights.
        dataset: graphs with a benchmark's split.
        seed: seed of the order of the graphs and of dropout.
        epochs: passes over the training part, >= 1.
        batch_size: graphs in a batch, >= 2.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        dropout: probability of dropping an entry of the embedding, in [0, 1).
        frozen: train the output layer only; the encoder stays in evaluation mode, and embeds each part once.
        callbacks: functions called after every epoch with a dict: `epoch`, mean `loss`, `valid` (the metric on the
            validation part) and `seconds`.
        on_predicted: called with the test graphs and their predictions.

    Returns:
        `FoldScores` with one fold: the test score, the selected epoch as `chosen`, and the score on the validation part
        as `inner`.

    Raises:
        InputError: see `benchmark_of` and `check_labels`.
        NonFiniteLossError: the loss or a prediction became NaN or infinite.
    """
    benchmark = benchmark_of(dataset)
    metric, device = benchmark.eval_metric, next(model.parameters()).device
    truth = {part: dataset.y[benchmark.split[part]].numpy() for part in PARTS}
    whole = {part: make_loader(dataset[benchmark.split[part]], 1024, device=device) for part in ("valid", "test")}
    fixed = {part: list(_embedded(model, loader)) for part, loader in whole.items()} if frozen else {}

    def predicted(part: str, epoch: int) -> np.ndarray:
        with torch.no_grad():
            rows = fixed[part] if frozen else _embedded(model, whole[part])
            out = torch.cat([model.projector(h) for h in rows]).cpu()
        _check_finite(out, f"the predictions for the {part} part", epoch)
        return (out.argmax(dim=1, keepdim=True) if metric == "acc" else out).numpy()

    best, chosen, weights, start = 0.0, 0, {}, time.perf_counter()
    for epoch, loss in _epochs(model, dataset, seed, epochs, batch_size, lr, weight_decay, dropout, frozen):
        valid = task_mean(metric, truth["valid"], predicted("valid", epoch))
        if not chosen or (valid < best if metric in LOWER else valid > best):
            best, chosen = valid, epoch
            weights = {key: value.clone() for key, value in model.state_dict().items()}
        for callback in callbacks:
            callback({"epoch": epoch, "loss": loss, "valid": valid, "seconds": time.perf_counter() - start})
        start = time.perf_counter()
    model.load_state_dict(weights)
    out = predicted("test", chosen)
    if on_predicted is not None:
        scores = metric in ("rocauc", "ap")
        on_predicted(benchmark.split["test"].numpy(), torch.from_numpy(out).sigmoid().numpy() if scores else out)
    score = task_mean(metric, truth["test"], out)
    figures = further_figures(metric, truth["test"], out, benchmark.tasks)
    return FoldScores(seed, (score,), (chosen,), (best,), 1, 1, metric, figures=figures)


def refit(model: ContrastiveModel, dataset: GraphDataset, seed: int = 0, **options: Any) -> None:
    """Fine-tune a model on the training part for all `epochs`, without a choice; `options` are those of `finetune`."""
    for _ in _epochs(model, dataset, seed, **options):
        pass


def _epochs(
    model: ContrastiveModel, dataset: GraphDataset, seed: int,
    epochs: int, batch_size: int, lr: float, weight_decay: float, dropout: float, frozen: bool = False,
) -> Iterator[tuple[int, float]]:  # fmt: skip
    """Train on the training part, and yield the epoch and the mean loss after each."""
    benchmark, device = benchmark_of(dataset), next(model.parameters()).device
    # separate generators, so that the order of the graphs does not depend on how many numbers dropout draws
    order, drops = torch.Generator().manual_seed(2 * seed), torch.Generator(device).manual_seed(2 * seed + 1)
    graphs = dataset[benchmark.split["train"]]
    sampler = EpochBatches(len(graphs), batch_size, True, order)
    trained = model.projector if frozen else model
    encoder: Any = model.encoder
    optimiser = torch.optim.Adam(trained.parameters(), lr=lr, weight_decay=weight_decay, fused=True)

    def drop(rows: Tensor) -> Tensor:
        kept = torch.rand(rows.shape, generator=drops, device=device) >= dropout
        return rows * kept / (1 - dropout)

    in_layers = hasattr(encoder, "drop")
    if in_layers:
        encoder.drop = drop
    if frozen:
        embeddings = torch.cat(list(_embedded(model, make_loader(graphs, 1024, device=device))))
        y = dataset.y[benchmark.split["train"]].to(device)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            return ((embeddings[rows], y[rows]) for rows in (rows.to(device) for rows in sampler.draw()))

    else:
        loader = make_loader(graphs, device=device, batch_sampler=sampler)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            return ((model.encode(batch), batch.y) for batch in (batch.to(device) for batch in loader))

    try:
        for epoch in range(1, epochs + 1):
            trained.train()
            encoder.train(not frozen)
            losses = []
            for h, labels in batches():
                h = h if in_layers else drop(h)
                loss = supervised_loss(model.projector(h), labels, benchmark.eval_metric)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                losses.append(loss.detach())
            mean = torch.stack(losses).mean().cpu()
            _check_finite(mean, "the loss", epoch)
            yield epoch, mean.item()
    finally:
        if in_layers:
            encoder.drop = None


def _embedded(model: ContrastiveModel, loader: Any) -> Iterator[Tensor]:
    """Yield the embeddings of each batch, also those that are not finite: `_check_finite` reports these."""
    return (h for h, _ in embed_batches(model, loader, finite=False))


def _check_finite(values: Tensor, name: str, epoch: int) -> None:
    if not values.isfinite().all():
        raise NonFiniteLossError(f"{name} became NaN or infinite in epoch {epoch}; try a smaller learning rate.")
