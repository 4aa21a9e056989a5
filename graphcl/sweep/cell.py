"""One cell of a sweep: train, embed, score; what comes out is a record for its file."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import torch

from graphcl.config.settings import Config
from graphcl.datasets import load_dataset
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import MOST, InputError, one_line
from graphcl.experiment.seed import (
    EMBED_BATCH,
    calibrated,
    make_model,
    reference_embeddings,
    rehearse,
    score_rows,
    settle,
    timed,
    train_seed,
    with_usable_evaluation,
)
from graphcl.experiment.summary import environment
from graphcl.training.loop import Epoch, embed


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
    # One worker of the sweep, one core: no threads within.
    score = functools.partial(score_rows, config, dataset, seed=seed, workers=config.threads)
    if not config.epochs and not config.steps:  # the reference rows, shared by all cells of this encoder and seed
        with timed(seconds, "embed"):
            rows = reference_embeddings(config, dataset, model, seed)
        with timed(seconds, "evaluate"):
            found = score(rows)
        references = {name: {row: vars(each) for row, each in scores.items()} for name, scores in found.items()}
        untrained = {name: scores["untrained"] for name, scores in references.items()}
        return {"status": "done", "scores": untrained, "references": references, "metrics": {}}
    rehearse(config, dataset)
    whole = make_loader(dataset, EMBED_BATCH, device=device)
    trajectory: dict[int, dict[str, Any]] = {}

    def embedded() -> dict[str, Any]:
        with timed(seconds, "embed"):
            trained = calibrated(config, dataset, model, seed) if config.precise_bn else model
            h, _ = embed(trained, whole)
        with timed(seconds, "evaluate"):
            return {name: vars(scores["trained"]) for name, scores in score({"trained": h}).items()}

    def on_epoch(epoch: Epoch) -> None:
        if config.score_every and epoch.epoch % config.score_every == 0:
            trajectory[epoch.epoch] = embedded()

    history = train_seed(config, dataset, model, seed, [on_epoch])
    seconds["train"] = sum(epoch.seconds for epoch in history)
    last = history[-1]
    metrics = {"epochs": last.epoch, "training_loss": last.loss, "alignment": last.alignment}
    metrics |= {"uniformity": last.uniformity, **last.diagnostics}
    scores = trajectory[last.epoch] if last.epoch in trajectory else embedded()
    return {"status": "done", "scores": scores, "metrics": metrics, **({"epochs": trajectory} if trajectory else {})}


@functools.lru_cache(maxsize=2)
def _dataset(name: str, root: str, mirror: str | None, features: str, max_degree: int) -> GraphDataset:
    return load_dataset(name, root, mirror, features, max_degree)
