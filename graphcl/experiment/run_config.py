"""Run a configuration: load the data set; train, embed and score every seed; write the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.config import Config
from graphcl.config.needs import warn_of_unused
from graphcl.config.settings import Evaluation
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.groups import describe_groups
from graphcl.distributed.launch import Ranks, launch
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Summary, best_row, summarise
from graphcl.evaluate.needs import is_by_copies, usual
from graphcl.experiment.build import setup_runtime
from graphcl.experiment.context import Clock
from graphcl.experiment.dry_run import try_settings, warn_of_columns
from graphcl.experiment.encoder_input import load_arguments, load_with_pairs
from graphcl.experiment.fingerprint import check_ranks, data_fingerprint
from graphcl.experiment.record.output import open_output
from graphcl.experiment.record.run_folder import name_of, new_folder
from graphcl.experiment.record.tracking import TRACKERS
from graphcl.experiment.scoring import with_usable_evaluation
from graphcl.experiment.seed import run_seed
from graphcl.experiment.vectors import warn_of_vectors
from graphcl.system.progress import showing
from graphcl.system.signals import lasting_streams


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
        return {
            name: {row: [FoldScores.of(seed[row]) for seed in each["per_seed"]] for row in each["per_seed"][0]}
            for name, each in self.summary.get("scores", {}).items()
        }

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
        dataset = _load(config, ranks)
        if ranks.size > 1:
            check_ranks(ranks, data_fingerprint(config, dataset))
        clock.lap("load")
        config = ranks.broadcast_object(_completed(config, dataset, ranks) if ranks.is_main else config)
        with open_output(config, dataset, device, ranks, clock.seconds) as output:
            for seed in ranks.broadcast_object(output.unfinished):
                with output.of_seed(seed) as context:
                    result = run_seed(config, dataset, seed, device, rows=output.rows, context=context)
                output.add(seed, result)  # weights, embeddings, scores
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


def _completed(config: Config, dataset: GraphDataset, ranks: Ranks) -> Config:
    """Return the settings adapted to the data set; raise InputError if they do not fit the data set."""
    if config.target and not dataset.scored:
        raise InputError(
            f"`target` {', '.join(config.target)} holds several tasks, numbers or missing cells, which cannot "
            "be scored on folds; pass --split scaffold or random."
        )
    if dataset.relation is not None:
        print(f"pairs: {len(dataset.relation.query)} of {dataset.relation.num_nodes} graphs")
    elif dataset.groups is not None:
        unused = "; --positives group trains on them" if config.positives == "views" else ""
        print(f"groups: {describe_groups(dataset.groups)}{unused}")
    config = config.model_copy(update={"features": dataset.features, **_without_labels(config, dataset)})
    try_settings(config, dataset, ranks=ranks.size)
    warn_of_columns(config, dataset)
    warn_of_vectors(config, dataset)
    return with_usable_evaluation(config, dataset, copies=True)


def _without_labels(config: Config, dataset: GraphDataset) -> dict[str, Any]:
    """Return the settings to update without labels: none with groups, else one seed by default, and scores by copies.

    Groups are scored only on request, as only their training part is then trained on.
    """
    if dataset.scored:
        return {}
    if dataset.groups is not None:
        return {} if "eval" in config.model_fields_set else {"eval": []}
    one = {} if "seeds" in config.model_fields_set else {"seeds": [0]}
    if dataset.rows == "nodes" or not config.eval:
        return one
    if "eval" in config.model_fields_set and (wrong := [name for name in config.eval if not is_by_copies(name)]):
        fitting = usual("copies")
        raise InputError(f"`eval` {wrong[0]} does not fit {dataset.name}, which has no classes; pass --eval {fitting}.")
    update = {**one, "eval": [usual("copies")]}
    warn_of_unused(config.model_copy(update=update), dict.fromkeys(("folds", "inner_folds", "scale", "place"), False))
    return {**update, "evaluation": Evaluation(sample=config.evaluation.sample)}
