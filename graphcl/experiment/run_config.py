"""Run a configuration: load the data set; train, embed and score every seed; write the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.distributed.launch import Ranks, launch
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Summary, best_row, summarise
from graphcl.evaluate.needs import is_by_copies
from graphcl.experiment.encoder_input import load_arguments, load_with_pairs
from graphcl.experiment.fingerprint import check_ranks, data_fingerprint
from graphcl.experiment.output import Clock
from graphcl.experiment.record.output import open_output
from graphcl.experiment.record.progress import TRACKERS
from graphcl.experiment.record.run_folder import name_of, new_folder
from graphcl.experiment.runtime import setup_runtime
from graphcl.experiment.trial import Trial, warn_of_columns
from graphcl.references.rows import scores_of
from graphcl.system.progress import showing
from graphcl.system.signals import lasting_streams
from graphcl.tasks.evaluation import with_usable_evaluation
from graphcl.tasks.task import make_task


@dataclass(frozen=True)
class RunResult:
    """Result of a run; on ranks other than 0, `folder` is None and `summary` is empty.

    Attributes:
        folder: path of the run folder.
        summary: content of `result.json`.
    """

    folder: Path | None
    summary: Mapping[str, Any]

    def __repr__(self) -> str:
        shown = {name: "trained" if "trained" in rows else best_row(rows) for name, rows in self.scores.items()}
        means = [f"{name}: {row} {summarise(self.scores[name][row])}" for name, row in shown.items()]
        return f"{type(self).__name__}({', '.join([str(self.folder), *means])})"

    @property
    def scores(self) -> dict[str, dict[str, list[FoldScores]]]:
        """Evaluator -> row, such as `majority`, `untrained` or `trained` -> one `FoldScores` per seed."""
        return scores_of(self.summary)

    @property
    def rows(self) -> dict[str, Summary]:
        """Row -> mean and deviation over seeds of the first evaluator's scores, in percent or the unit of the error."""
        first: dict[str, list[FoldScores]] = next(iter(self.scores.values()), {})
        return {row: summarise(scores) for row, scores in first.items()}

    @property
    def accuracy(self) -> float:
        """Mean test score of the trained encoder by the first evaluator of labels or groups; InputError without any."""
        return summarise(self._trained).mean

    @property
    def validation(self) -> float:
        """Mean score of the trained encoder on inner folds; select settings by this score, not by a test score."""
        return float(np.mean([score.inner for score in self._trained]))

    @property
    def _trained(self) -> list[FoldScores]:
        """Scores of the trained encoder by the first evaluator of labels or groups, one per seed."""
        rows = next((rows for name, rows in self.scores.items() if not is_by_copies(name)), None)
        if rows is None:
            raise InputError("the graphs have no class labels, so there is no accuracy; use the files in `folder`.")
        scores = rows.get("trained")
        if not scores:
            raise InputError("nothing was trained, as `epochs` is 0; `rows` has the scores without training.")
        return scores


def run(config: Config) -> RunResult:
    """Run every seed of a configuration and return the result.

    Raises:
        InputError: the settings cannot be used.
    """
    clock = Clock()
    with launch(config.rank_timeout) as ranks, lasting_streams(), showing():
        device = setup_runtime(config, ranks.local_rank)
        task = make_task(config, _load(config, ranks))
        trial: Trial | None = None
        if ranks.size > 1:
            check_ranks(ranks, data_fingerprint(config, task.dataset))
        clock.lap("load")
        if ranks.is_main:
            if line := task.describe():
                print(line)
            task = task.completed()
            task.check(ranks.size)
            task = with_usable_evaluation(task, copies=True)
            trial = Trial(task, task.config.seeds[0], device, ranks=ranks, checked=True)
            trial.try_step()
            warn_of_columns(task)
        task = task.with_settings(ranks.broadcast_object(task.config))
        with open_output(task, device, ranks, clock.seconds) as output:
            for seed in ranks.broadcast_object(output.unfinished):
                with output.of_seed(seed):
                    if trial is None or trial.seed != seed:
                        trial = Trial(task, seed, device, ranks=ranks, checked=True)
                    result = trial.run(output.rows, output)
                output.add(trial, result)  # weights, embeddings, scores
                trial = None  # frees its memory before the next one
            return RunResult(output.path, output.finish())  # summary and report.html


def _load(config: Config, ranks: Ranks) -> GraphDataset:
    """Load and return the data set; rank 0 loads it first, so that only rank 0 downloads."""
    if ranks.is_main:
        if not config.resume:
            new_folder(config.out, name_of(config), create=False)
        for name in config.track:
            TRACKERS[name].library()  # report a missing library before any work
        print(f"loading {config.dataset} ...", flush=True)
    else:
        ranks.barrier()
    dataset = load_with_pairs(**load_arguments(config))
    if ranks.is_main:
        ranks.barrier()
    return dataset
