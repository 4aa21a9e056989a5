"""One seed of a configuration: its model, its method, its training, its scores."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import two_views
from graphcl.config.settings import Config, build_augmentation
from graphcl.datasets.dataset import Benchmark, GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.distributed import ranks
from graphcl.distributed.batchnorm import synchronise
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS, SPLIT_EVALUATORS, FoldScores, majority, usable_folds
from graphcl.evaluate.pca import chosen, principal_plane
from graphcl.experiment.snapshot import GRAPHS, snapshot
from graphcl.graphs.statistics import graph_statistics
from graphcl.losses import Loss
from graphcl.losses.engine.checks import NonFiniteInputError
from graphcl.methods import Method
from graphcl.models.calibrate import calibrate, has_batchnorm
from graphcl.models.contrastive import ContrastiveModel, OwnEncoder, make_encoder, own_encoder, takes_categories
from graphcl.models.saved import EncoderDescription, EncoderName
from graphcl.registry import encoders, methods
from graphcl.system.optional import import_ogb
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.loop import Epoch, embed, train

TRAINING = {
    "views", "projection", "head", "loss", "method", "epochs", "steps", "batch_size", "shuffle_window", "lr",
    "weight_decay", "clip_norm", "amp", "non_finite",
}  # fmt: skip
"""The settings that an encoder's weights depend on, besides those of itself and of the data."""
EMBED_BATCH = 1024
"""Graphs in a batch when embedding."""
_LOOKED = 2**40
"""Where the seeds of looks begin, beyond those of training."""
_RANK = 2**41
"""How far apart the seeds of ranks are."""


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


def settle(config: Config, local: int | None = None) -> torch.device:
    """Settings of the whole process, made as a configuration wants them; gives its device.

    Args:
        config: the settings.
        local: number of this process on its machine, where there are several: each takes a CUDA device.
    """
    device = pick_device(config.device)
    if local is not None and device.type == "cuda":
        device = pick_device(f"cuda:{local}")
        torch.cuda.set_device(device)
    # Two threads gain a fifth on small graphs, but wait for each other many times a step: beside another busy program
    # they lose a hundredfold. One also gives the same figures whatever the number of cores. (The SVM uses all cores.)
    torch.set_num_threads(config.threads)
    if config.deterministic:
        # cuBLAS reads this when it is first used; what it holds already is the user's choice.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic)
    return device


def make_model(
    config: Config, dataset: GraphDataset, seed: int = 0, encoder: OwnEncoder | None = None
) -> ContrastiveModel:
    """The untrained model of a seed, on the CPU; torch's global generator is left as it was.

    Args:
        config: names the encoder, and the projector's form.
        dataset: gives the numbers of columns.
        seed: of the weights.
        encoder: a module of one's own, or what makes one, in place of the named encoder.

    Raises:
        InputError: the encoder needs edge attributes and the graphs have none, or it takes numbers and their features
            are categories.
    """
    name, columns, edge_dim = config.encoder["name"], dataset.num_features, edge_columns(dataset)
    if encoder is None and not dataset[0].x.is_floating_point() and not takes_categories(name):
        raise InputError(
            f"encoder `{name}` computes with `x`, and that of {dataset.name} numbers categories; use "
            "encoder molecule_gine, or features degree."
        )
    if encoder is None and edge_dim is None and "edge_dim" in encoders.arguments(name).required:
        raise InputError(f"encoder `{name}` needs `edge_attr`, {dataset.name} has none; use gin.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if encoder is not None:
            module = own_encoder(encoder, columns)
        else:
            module = make_encoder(name, _arguments(config.encoder), columns, edge_dim)
        return ContrastiveModel(module, config.projection, config.head)


def edge_columns(dataset: GraphDataset) -> int | None:
    """How many columns the edge attributes have; None where there are none."""
    values = dataset[0].get("edge_attr")
    if not isinstance(values, Tensor):
        return None
    return 1 if values.dim() == 1 else values.size(1)


def describe(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, encoder: OwnEncoder | None = None
) -> EncoderDescription:
    """What is kept with the weights of a model that `make_model` made of the same arguments."""
    if encoder is None:
        name = EncoderName(name=config.encoder["name"], arguments=_arguments(config.encoder))
    else:
        name = EncoderName(name=type(model.encoder).__name__)
    return EncoderDescription(
        encoder=name,
        in_channels=dataset.num_features,
        out_channels=model.width,
        edge_dim=edge_columns(dataset) if model.takes("edge_attr") else None,
        dataset=dataset.name,
        features=cast(Any, dataset.features),  # of which there are four
        max_degree=config.max_degree,
        label_columns=dataset.num_features - dataset.degree_columns if "labels" in dataset.features else 0,
        settings=config.model_dump(include=TRAINING),
    )


def _arguments(named: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in named.items() if key != "name"}


def make_method(config: Config, dataset: Sized, model: ContrastiveModel, seed: int = 0) -> Method:
    """The method of a seed around its model; torch's global generator is left as it was.

    Raises:
        InputError: a loss that does not fit the method.
    """
    arguments = _arguments(config.method)
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


def rehearse(config: Config, dataset: GraphDataset, encoder: OwnEncoder | None = None) -> None:
    """One step on two graphs, without consequences: what it refuses is refused before anything is written.

    Args:
        config: the settings.
        dataset: the graphs.
        encoder: see `make_model`.

    Raises:
        InputError: loss, method, views, encoder and data set do not fit together, or the features hold NaN.
    """
    batch = Batch.from_data_list([dataset[0], dataset[1]])
    generator = torch.Generator().manual_seed(0)
    method = make_method(config, dataset, make_model(config, dataset, encoder=encoder))
    first, second = build_augmentation(config.views.first), build_augmentation(config.views.second)
    views = two_views(batch, *method.augmentations(first, second), generator)
    with torch.no_grad():
        try:
            method(*views, ids=torch.arange(2), generator=generator)
        except NonFiniteInputError:
            raise InputError(
                f"the untrained encoder already gives NaN or infinity; look for them in the features of {dataset.name}."
            ) from None
        except RuntimeError as error:
            if encoder is None or dataset[0].x.is_floating_point():
                raise
            raise InputError(
                f"the encoder cannot take the `x` of {dataset.name}, which numbers categories ({error}); give it a "
                "torch.nn.Embedding for each column, or take features='degree'."
            ) from None


def train_seed(
    config: Config,
    dataset: GraphDataset,
    model: ContrastiveModel,
    seed: int = 0,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
    method: Method | None = None,
    checkpoints: Checkpoints | None = None,
) -> list[Epoch]:
    """Train the model of a seed in place, by its method, made anew or given; one record an epoch.

    Dropout and the like draw from torch's global generators, which are seeded here and left as they were.
    """
    device = next(model.parameters()).device
    with _seeded(seed, device), _deterministic_refused(config.deterministic):
        # Two streams a seed, so that the order of the graphs and their views are independent of each other.
        order = torch.Generator().manual_seed(2 * seed)
        views = torch.Generator(device).manual_seed(2 * seed + 1 + ranks.rank() * _RANK)
        method = make_method(config, dataset, model, seed) if method is None else method
        if config.sync_batchnorm:
            synchronise(method)
        share = (ranks.rank(), ranks.size())
        loader = make_loader(dataset, config.batch_size, True, order, device, config.shuffle_window, share)
        return train(
            method,
            loader,
            build_augmentation(config.views.first),
            build_augmentation(config.views.second),
            epochs=config.epochs,
            steps=config.steps,
            lr=config.lr,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
            amp=config.amp,
            non_finite=config.non_finite,
            diagnostics=config.diagnostics,
            generator=views,
            callbacks=callbacks,
            checkpoints=checkpoints,
        )


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators, of each rank its own; after the block they are as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed + ranks.rank() * _RANK)
        yield


@contextmanager
def _deterministic_refused(asked: bool) -> Iterator[None]:
    """What PyTorch says of an operation that has no deterministic form, as one line."""
    try:
        yield
    except RuntimeError as error:
        if not asked or "deterministic" not in str(error):
            raise
        operation = str(error).partition(".")[0]
        raise InputError(f"{operation}; choose another loss or method, or leave --deterministic out.") from None


def look(config: Config, dataset: GraphDataset, method: Method, h: Tensor, seed: int = 0) -> dict[str, np.ndarray]:
    """What a report shows of a moment: similarities and weights (`snapshot`), and a map of the embeddings h `[n, H]`.

    The map is `map [m, 2]` with the variance's `shares [2]`, of the graphs that `evaluate.pca.chosen` gives. All is
    drawn from a stream of its own, so training goes on as if nobody had looked.
    """
    device = next(method.parameters()).device
    order, views = torch.Generator().manual_seed(_LOOKED + seed), torch.Generator(device).manual_seed(_LOOKED + seed)
    loader = make_loader(dataset, min(config.batch_size, GRAPHS), True, order, device, config.shuffle_window)
    first, second = build_augmentation(config.views.first), build_augmentation(config.views.second)
    points, shares = principal_plane(h.numpy()[chosen(h.size(0))])
    return {**snapshot(method, loader, first, second, views), "map": points.astype(np.float32), "shares": shares}


def reference_embeddings(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int
) -> dict[str, Tensor]:
    """Return what the reference rows score, by row: graph statistics and the untrained encoder's embeddings."""
    device = next(model.parameters()).device
    whole = make_loader(dataset, EMBED_BATCH, device=device)
    found = {"statistics": graph_statistics(whole, config.max_degree), "untrained": embed(model, whole)[0]}
    if has_batchnorm(model.encoder):
        found["calibrated"] = embed(calibrated(config, dataset, model, seed), whole)[0]
    return found


def calibrated(config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int) -> ContrastiveModel:
    """Return a copy of a model with BatchNorm statistics over all graphs, in shuffled batches."""
    device = next(model.parameters()).device
    order = torch.Generator().manual_seed(_LOOKED + seed)
    return calibrate(model, make_loader(dataset, EMBED_BATCH, True, order, device, config.shuffle_window))


def score_rows(
    config: Config,
    dataset: GraphDataset,
    rows: Mapping[str, Tensor],
    seed: int = 0,
    workers: int | None = None,
    on_fold: Callable[[str, int, int], object] | None = None,
) -> dict[str, dict[str, FoldScores]]:
    """Return the scores of a seed by evaluator and row: the majority class, then each of `rows`.

    Args:
        config: the settings.
        dataset: a data set with labels.
        rows: embeddings `[n, H]` by row; the majority class is added where `statistics` is among them.
        seed: of the folds.
        workers: threads.
        on_fold: called with "EVALUATOR, ROW", the finished folds and all folds.
    """
    found: dict[str, dict[str, FoldScores]] = {name: {} for name in config.eval}
    for name, scores in found.items():
        if "statistics" in rows:
            scores["majority"] = _majority(config, dataset, name, seed)
        for row, h in rows.items():
            report = None if on_fold is None else functools.partial(on_fold, f"{name}, {row}")
            scores[row] = score(config, name, h, dataset.y, seed, workers, dataset.benchmark, report)
    return found


def _majority(config: Config, dataset: GraphDataset, name: str, seed: int) -> FoldScores:
    """Return the score of predicting the largest class; on a benchmark's split, of a probe that sees a constant."""
    if dataset.benchmark is None:
        folds, inner = config.evaluation.folds, config.evaluation.inner_folds
        return majority(dataset.y, seed=seed, folds=folds, inner_folds=inner)
    return score(config, name, torch.zeros(len(dataset), 1), dataset.y, seed, 1, dataset.benchmark)


def score(
    config: Config,
    name: str,
    h: Tensor,
    y: Tensor,
    seed: int = 0,
    workers: int | None = None,
    benchmark: Benchmark | None = None,
    on_fold: Callable[[int, int], object] | None = None,
) -> FoldScores:
    """Return the score of an embedding `[n, H]` by the evaluator `name`, under the protocol of the configuration.

    Evaluators that score by a benchmark's split take it from `benchmark`.
    """
    evaluator = EVALUATORS[name] if name in EVALUATORS else SPLIT_EVALUATORS[name]
    taken = inspect.signature(evaluator).parameters  # `scale` is for the SVM only
    known = {"on_fold": on_fold, **config.evaluation.model_dump(), **(vars(benchmark) if benchmark is not None else {})}
    settings = {key: value for key, value in known.items() if key in taken}
    return evaluator(h, y, seed=seed, workers=workers, **settings)


def with_usable_evaluation(config: Config, dataset: GraphDataset) -> Config:
    """The settings with as many folds as the smallest class allows; a note says so where those are fewer.

    Raises:
        InputError: an evaluator that the data set's labels do not fit, or ogb is not installed for one of its sets.
    """
    if not dataset.scored:
        return config
    fitting = EVALUATORS if dataset.benchmark is None else SPLIT_EVALUATORS
    if unfit := [name for name in config.eval if name not in fitting]:
        why = "has no split of its own" if dataset.benchmark is None else "is scored on its own split"
        raise InputError(f"`eval` {unfit[0]} does not fit {dataset.name}, which {why}; pass --eval {max(fitting)}.")
    if dataset.benchmark is None:
        return _with_usable_folds(config, dataset)
    import_ogb()  # by which it is scored, though what lies packed on disk is read without
    return config


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
