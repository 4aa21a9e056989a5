"""Run one cell of a sweep, which is one seed of one configuration."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import torch

from graphcl.config import Config
from graphcl.datasets import GraphDataset, load_dataset
from graphcl.errors import MAX_LINE, InputError, one_line
from graphcl.experiment.build import dry_run, setup_runtime
from graphcl.experiment.context import Clock, Context
from graphcl.experiment.encoder_input import load_arguments
from graphcl.experiment.fingerprint import data_fingerprint
from graphcl.experiment.scores import REFERENCES, with_usable_evaluation
from graphcl.experiment.seed import run_seed
from graphcl.report.summary import environment


def run_cell(config: Config, device: str = "auto") -> dict[str, Any]:
    """Run one cell, and return its record: `status` "done" with `scores`, or `status` "failed" with `error`."""
    clock, place = Clock(), torch.device("cpu")
    try:
        place = setup_runtime(
            config.model_copy(update={"device": device if config.device == "auto" else config.device})
        )
        found = _run(config, clock, place)
    except InputError as error:
        found = {"status": "failed", "error": one_line(error, MAX_LINE)}
    except Exception as error:  # record the error, so that the other cells continue
        found = {
            "status": "failed",
            "error": f"{type(error).__name__}: {one_line(error, MAX_LINE)}",
            "traceback": traceback.format_exc(),
        }
    return {"seconds": clock.seconds, **found, **environment(place), "config": config.model_dump()}


def _run(config: Config, clock: Clock, device: torch.device) -> dict[str, Any]:
    (seed,) = config.seeds
    dataset = _load(**load_arguments(config))
    data = data_fingerprint(config, dataset)
    clock.lap("load")
    config = with_usable_evaluation(config, dataset)
    trains = bool(config.epochs or config.steps)
    if trains:
        dry_run(config, dataset)
    # separate cells compute the reference rows, once for each encoder and seed
    rows = ("trained",) if trains else REFERENCES
    result = run_seed(config, dataset, seed, device, rows=rows, context=Context(workers=config.threads))
    kept = {name: {row: vars(score) for row, score in scores.items()} for name, scores in result.scores.items()}
    record: dict[str, Any] = {"status": "done", "seconds": {**clock.seconds, **result.seconds}, "metrics": {}}
    record["data"] = data
    record["scores"] = {name: scores["trained" if trains else "untrained"] for name, scores in kept.items()}
    if not trains:
        return {**record, "references": kept}
    last = result.history[-1]
    record["metrics"] = {"epochs": last.epoch, "training_loss": last.loss, "alignment": last.alignment}
    record["metrics"] |= {"uniformity": last.uniformity, **last.diagnostics}
    if result.epoch_scores:
        record["epoch_scores"] = {
            epoch: {name: vars(score) for name, score in scores.items()}
            for epoch, scores in result.epoch_scores.items()
        }
    return record


def load_scored(**arguments: Any) -> GraphDataset:
    """Load and return a data set, see `load_dataset`; raise InputError if it has no labels to score by."""
    dataset = load_dataset(**arguments)
    if not dataset.scored:
        raise InputError(f"{dataset.name} has no class labels, so a sweep cannot score it; use graphcl run.")
    return dataset


_load = functools.lru_cache(maxsize=2)(load_scored)
"""`load_scored` with a cache of two data sets, for the next cells of this process."""
