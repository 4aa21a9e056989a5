"""One seed of a configuration: its model, its method, its training, its scores."""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import two_views
from graphcl.config import Config, build_augmentation
from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS, SPLIT_EVALUATORS, FoldScores, usable_folds
from graphcl.losses import Loss
from graphcl.losses.checks import NonFiniteInputError
from graphcl.methods import Method
from graphcl.model import ContrastiveModel
from graphcl.registry import encoders, methods
from graphcl.train import Epoch, train


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one.

    Raises:
        InputError: CUDA is asked for and there is none of that number.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        raise InputError(f"`device` is {name}, but torch sees {seen} CUDA devices; pass --device cpu.")
    return device


def make_model(config: Config, dataset: GraphDataset, seed: int = 0) -> ContrastiveModel:
    """The untrained model of a seed, on the CPU; torch's global generator is left as it was.

    Raises:
        InputError: the encoder needs edge attributes and the graphs have none, or it takes numbers and their features
            are categories.
    """
    arguments = {key: value for key, value in config.encoder.items() if key != "name"}
    graph = dataset[0]
    if not graph.x.is_floating_point() and encoders.facts(config.encoder["name"]).get("x") != "categories":
        raise InputError(
            f"encoder `{config.encoder['name']}` computes with `x`, and that of {dataset.name} numbers categories; use "
            "--encoder molecule_gine, or --features degree."
        )
    if "edge_dim" in encoders.arguments(config.encoder["name"]).required:
        if graph.get("edge_attr") is None:
            raise InputError(f"encoder `{config.encoder['name']}` needs `edge_attr`, {dataset.name} has none; use gin.")
        arguments["edge_dim"] = 1 if graph.edge_attr.dim() == 1 else graph.edge_attr.size(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = encoders[config.encoder["name"]](graph.x.size(1), **arguments)
        return ContrastiveModel(encoder, config.projection, config.head)


def make_method(config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int = 0) -> Method:
    """The method of a seed around its model; torch's global generator is left as it was.

    Raises:
        InputError: a loss that does not fit the method.
    """
    arguments = {key: value for key, value in config.method.items() if key != "name"}
    wanted = methods.arguments(config.method["name"]).required
    known = {"num_graphs": len(dataset), "first": config.views.first, "second": config.views.second}
    for name, value in known.items():
        if name in wanted:
            arguments[name] = build_augmentation(value) if isinstance(value, dict) else value
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        method: Method = methods[config.method["name"]](model, Loss(**config.loss), **arguments)
    return method.to(device)


def rehearse(config: Config, dataset: GraphDataset) -> None:
    """One step on two graphs, without consequences: what it refuses is refused before anything is written.

    Raises:
        InputError: loss, method, views, encoder and data set do not fit together, or the features hold NaN.
    """
    batch = Batch.from_data_list([dataset[0], dataset[1]])
    generator = torch.Generator().manual_seed(0)
    method = make_method(config, dataset, make_model(config, dataset))
    first, second = build_augmentation(config.views.first), build_augmentation(config.views.second)
    views = two_views(batch, *method.augmentations(first, second), generator)
    with torch.no_grad():
        try:
            method(*views, ids=torch.arange(2), generator=generator)
        except NonFiniteInputError:
            raise InputError(
                f"the untrained encoder already gives NaN or infinity; look for them in the features of {dataset.name}."
            ) from None


def train_seed(
    config: Config,
    dataset: GraphDataset,
    model: ContrastiveModel,
    seed: int = 0,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
) -> list[Epoch]:
    """Train the model of a seed in place; one record an epoch."""
    device = next(model.parameters()).device
    # Two streams a seed, so that the order of the graphs and their views are independent of each other.
    order = torch.Generator().manual_seed(2 * seed)
    views = torch.Generator(device).manual_seed(2 * seed + 1)
    loader = make_loader(dataset, config.batch_size, True, order, device, config.shuffle_window)
    return train(
        make_method(config, dataset, model, seed),
        loader,
        build_augmentation(config.views.first),
        build_augmentation(config.views.second),
        epochs=config.epochs,
        steps=config.steps,
        lr=config.lr,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        amp=config.amp,
        diagnostics=config.diagnostics,
        generator=views,
        callbacks=callbacks,
    )


def score(
    config: Config,
    name: str,
    h: Tensor,
    y: Tensor,
    seed: int = 0,
    workers: int | None = None,
    benchmark: Benchmark | None = None,
) -> FoldScores:
    """The score of an embedding `[n, H]` by the evaluator `name`, under the protocol of the configuration.

    What a `benchmark` prescribes is for the evaluators that score by its split.
    """
    evaluator = EVALUATORS[name] if name in EVALUATORS else SPLIT_EVALUATORS[name]
    taken = inspect.signature(evaluator).parameters  # `scale` is for the SVM only
    known = {**config.evaluation.model_dump(), **(vars(benchmark) if benchmark is not None else {})}
    settings = {key: value for key, value in known.items() if key in taken}
    return evaluator(h, y, seed=seed, workers=workers, **settings)


def with_usable_evaluation(config: Config, dataset: GraphDataset) -> Config:
    """The settings with as many folds as the smallest class allows; a note says so where those are fewer.

    Raises:
        InputError: an evaluator that the data set's labels do not fit.
    """
    if not dataset.scored:
        return config
    fitting = EVALUATORS if dataset.benchmark is None else SPLIT_EVALUATORS
    if unfit := [name for name in config.eval if name not in fitting]:
        why = "has no split of its own" if dataset.benchmark is None else "is scored on its own split"
        raise InputError(f"`eval` {unfit[0]} does not fit {dataset.name}, which {why}; pass --eval {max(fitting)}.")
    return config if dataset.benchmark is not None else _with_usable_folds(config, dataset)


def _with_usable_folds(config: Config, dataset: GraphDataset) -> Config:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        folds, inner = usable_folds(dataset.y, config.evaluation.folds, config.evaluation.inner_folds)
    for note in notes:
        print(f"graphcl: {note.message}", file=sys.stderr)
    evaluation = config.evaluation.model_copy(update={"folds": folds, "inner_folds": inner})
    return config.model_copy(update={"evaluation": evaluation})


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the wall time of the block to a stage's."""
    start = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start
