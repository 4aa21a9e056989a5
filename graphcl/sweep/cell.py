"""One cell of a sweep: train, embed, score; what comes out is a record for its file."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import torch

from graphcl.config import Config
from graphcl.datasets import load_dataset
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import MOST, InputError, one_line
from graphcl.experiment import make_model, rehearse, score, settle, timed, train_seed, with_usable_evaluation
from graphcl.report import environment
from graphcl.train import embed


def run_cell(config: Config, device: str = "auto") -> dict[str, Any]:
    """The record of one seed: `status` done, with `scores` by evaluator, or failed, with the `error`."""
    seconds: dict[str, float] = {}
    place = torch.device("cpu")
    try:
        place = settle(config.model_copy(update={"device": device if config.device == "auto" else config.device}))
        found = _run(config, seconds, place)
    except InputError as error:
        found = {"status": "failed", "error": one_line(error, MOST)}
    except Exception as error:  # of whatever kind: the other cells go on, and the file tells
        found = {
            "status": "failed",
            "error": f"{type(error).__name__}: {one_line(error, MOST)}",
            "traceback": traceback.format_exc(),
        }
    return {**found, "seconds": seconds, **environment(place), "config": config.model_dump()}


def _run(config: Config, seconds: dict[str, float], device: torch.device) -> dict[str, Any]:
    (seed,) = config.seeds
    with timed(seconds, "load"):
        dataset = _dataset(config.dataset, config.data_root, config.mirror, config.features, config.max_degree)
    if not dataset.scored:
        raise InputError(f"{dataset.name} has no class labels, so there is nothing to compare by.")
    config = with_usable_evaluation(config, dataset)
    model = make_model(config, dataset, seed).to(device)
    metrics: dict[str, Any] = {}
    if config.epochs or config.steps:
        rehearse(config, dataset)
        with timed(seconds, "train"):
            history = train_seed(config, dataset, model, seed)
        last = history[-1]
        metrics = {"epochs": last.epoch, "training_loss": last.loss, "alignment": last.alignment}
        metrics |= {"uniformity": last.uniformity, **last.diagnostics}
    with timed(seconds, "embed"):
        h, y = embed(model, make_loader(dataset, 1024, device=device))
    assert y is not None
    scores = {}
    for name in config.eval:
        with timed(seconds, "evaluate"):
            # One worker of the sweep, one core: no threads within.
            scores[name] = vars(score(config, name, h, y, seed, config.threads, dataset.benchmark))
    return {"status": "done", "scores": scores, "metrics": metrics}


@functools.lru_cache(maxsize=2)
def _dataset(name: str, root: str, mirror: str | None, features: str, max_degree: int) -> GraphDataset:
    return load_dataset(name, root, mirror, features, max_degree)
