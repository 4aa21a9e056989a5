"""Write the output of a run: printed lines, progress bars, tracker logs, and the files in the run folder."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.config import Config
from graphcl.datasets.tables import write_invalid
from graphcl.distributed.launch import Ranks
from graphcl.errors import InputError, Stopped
from graphcl.evaluate.needs import is_by_copies, takes, usual
from graphcl.experiment.fingerprint import data_fingerprint
from graphcl.experiment.output import Clock, Output, Scores, SeedResult
from graphcl.experiment.record.progress import Tracker, TrainingBar, fold_bar, tracking
from graphcl.experiment.record.run_folder import RunFolder
from graphcl.experiment.record.seed_files import write_predictions
from graphcl.experiment.record.snapshot import report_arrays
from graphcl.experiment.scoring import describe_copies, sampled
from graphcl.experiment.trial import Trial
from graphcl.losses import Loss
from graphcl.models.saved import read_saved
from graphcl.references.rows import compared, row_labels, scores_of, without_training
from graphcl.registry import encoders, registering_modules
from graphcl.report.summary import card, environment, protocol, score_lines, unit
from graphcl.system.files import write_text, write_whole
from graphcl.system.memory import release_freed_memory
from graphcl.tasks.task import Task
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.diagnostics import max_variance_ratio
from graphcl.training.epoch import Epoch
from graphcl.training.state import Training

_MAX_RATIO = 0.9
"""If one column holds at least this fraction of the variance, a warning is printed; usual values are about 0.05."""


class RunOutput(Output):
    """Output of rank 0, which writes the run folder, prints lines, and logs to trackers.

    `seconds` maps each stage so far to its wall time.
    """

    config: Config

    def __init__(self, task: Task, device: torch.device, ranks: Ranks, seconds: Mapping[str, float]) -> None:
        config = task.config
        super().__init__(config, quiet=False)
        self.rows = tuple(row_labels()) if config.trains else without_training()
        self.task, self.device, self.ranks = task, device, ranks
        self.folder = RunFolder(config, data_fingerprint(config, task.dataset))
        self.path = self.folder.path
        self._predicted: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._snapshots: dict[str, Any] = {}
        self._trackers: list[Tracker] = []
        self._seconds = _added(seconds, self.folder.result.get("seconds", {}))
        invalid = write_invalid(task.dataset.invalid, self.path / "invalid.csv")
        print(f"{task.dataset}; {self._how()}; {self.path}/{invalid}")
        if config.resume and self.folder.is_new:
            print(f"{self.path} did not exist: this is a new run")
        for seed in self.folder.finished:
            print(f"seed {seed}: finished before")
            self.checkpoints_of(seed).keep_last()
        self.unfinished = tuple(seed for seed in config.seeds if seed not in self.folder.finished)

    def _how(self) -> str:
        """Return encoder, method, loss, device and ranks in words."""
        config, name = self.config, self.config.encoder["name"]
        dense = encoders.fact(name, "form") == "dense"
        unused = dense and self.task.dataset.num_edge_features and "edge_dim" not in encoders.arguments(name).required
        encoder = f"{name}{' (does not use edge_attr, gine does)' if unused else ''}"
        ranks = f"; ranks: {self.ranks.size}" if self.ranks.size > 1 else ""
        method = f"method: {config.method['name']}; loss: {Loss(**config.loss)}"
        return f"encoder: {encoder}; {method}; device: {self.device}{ranks}"

    def checkpoints_of(self, seed: int) -> Checkpoints:
        """Return the checkpoints of `seed`."""
        checkpoints = super().checkpoints_of(seed)
        assert checkpoints is not None
        return checkpoints

    @contextmanager
    def of_seed(self, seed: int) -> Iterator[None]:
        """Surround the trial of a seed, with its trackers and progress; training defers signals."""
        self.checkpoints, self.clock, self._snapshots, self._predicted = self.checkpoints_of(seed), Clock(), {}, {}
        self._bar = TrainingBar(seed, self.config, self.stop, self.task.has_batches)
        settings = self.config.model_dump()
        with tracking(self.config.track, self.folder.path, seed, settings) as trackers, fold_bar(seed) as on_fold:
            self._seed, self._trackers, self.on_fold = seed, trackers, on_fold
            yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """Surround training: show its progress, and defer signals to a checkpoint."""
        with self.stop.deferred(), self._bar, super().training():
            yield
        release_freed_memory()

    def on_embeddings(self, when: str, trial: Trial, h: Any) -> None:
        """Take a snapshot for the report before and after the training of the first seed."""
        super().on_embeddings(when, trial, h)
        release_freed_memory()
        config = self.config
        if config.report and trial.seed == config.seeds[0] and h is not None and (when == "before" or config.trains):
            arrays = report_arrays(trial, h)
            self._snapshots |= {f"{when}_{name}": values for name, values in arrays.items()}
            if when == "after" or not config.trains:
                file = self.folder.path / "report.npz"
                write_whole(file, lambda file: np.savez_compressed(file, **self._snapshots))
        self.clock.lap("report")

    def on_step(self, training: Training) -> None:
        """Show a finished step."""
        self._bar.step(training)

    def on_epoch(self, epoch: Epoch) -> None:
        """Log and show a finished epoch."""
        self.folder.epochs.add(self._seed, epoch)
        self._bar.epoch(epoch)
        for tracker in self._trackers:
            tracker(epoch)

    def on_predicted(self, name: str, rows: np.ndarray, predicted: np.ndarray) -> None:
        """Keep predictions for `predictions.csv`."""
        self._predicted[name] = rows, predicted

    def on_scores(self, scores: Scores) -> None:
        """Print and track the scores."""
        super().on_scores(scores)
        release_freed_memory()
        for name, rows in scores.items():
            means = ", ".join(f"{row} {score.mean:.2f}" for row, score in rows.items())
            print(f"seed {self._seed}: {means} {unit(next(iter(rows.values())).metric)} ({name})")
            logged = {f"score/{name}" + ("" if row == "trained" else f"_{row}"): s.mean for row, s in rows.items()}
            for tracker in self._trackers:
                tracker.add_scores(logged)

    def add(self, trial: Trial, result: SeedResult) -> None:
        """Write the encoder, the embeddings and the scores of a seed into the run folder."""
        config, folder, task, seed = self.config, self.folder, self.task, trial.seed
        dataset = task.dataset
        if warning := _one_column(config, result.h):
            print(f"graphcl: seed {seed}: {warning}", file=sys.stderr)
        for epoch in result.history:  # restore rows of resumed epochs that the log has lost
            folder.epochs.add(seed, epoch)
        description = trial.task.description(result.model)
        folder.add_seed(seed, result.model, description, task.queries(result.h), result.y, dataset)
        write_predictions(folder.path, seed, self._predicted, dataset, folder.finished)
        self._seconds = _added(self._seconds, result.seconds)

        seeds = [*folder.finished, seed]
        scores, earlier = {}, scores_of(folder.result)
        for name, rows in result.scores.items():
            before = earlier.get(name, {})
            scores[name] = compared({row: [*before.get(row, []), score] for row, score in rows.items()})
        epoch_scores = dict(folder.result.get("epoch_scores", {}))
        if result.epoch_scores:
            epoch_scores[str(seed)] = {
                epoch: {name: vars(score) for name, score in of_epoch.items()}
                for epoch, of_epoch in result.epoch_scores.items()
            }
        history = folder.epochs.history(seeds)
        needs = {task.need_of(name) for name in config.eval}
        how = task.group_protocol()
        if "copies" in needs:
            part = sampled(task, seed)
            how["copies"] = describe_copies(part) | ({} if part is task else {"of": len(dataset)})
        if needs - {"groups", "copies"}:
            how |= protocol(config.evaluation.folds, config.evaluation.inner_folds, dataset.benchmark)
        total = sum(epoch.seconds for epoch in history)
        folder.add_result({
            "seeds": seeds,
            **({"scores": scores, **how} if scores else {}),
            **({"epoch_scores": epoch_scores} if epoch_scores else {}),
            "epochs": max((epoch.epoch for epoch in history), default=0),
            "seconds": self._seconds,
            "epoch_seconds": statistics.median(epoch.seconds for epoch in history) if history else 0.0,
            "data_share": sum(epoch.data_seconds for epoch in history) / total if history else 0.0,
            **environment(self.device),
            "config": config.model_copy(update={"resume": False}).model_dump(),
            "ranks": self.ranks.size,
        })  # fmt: skip
        self.checkpoints_of(seed).keep_last()

    def finish(self) -> dict[str, Any]:
        """Print the summary, write the report, and return the content of `result.json`."""
        result = self.folder.result
        if self.task.is_scored:
            print("\n".join(score_lines(result)))
        else:
            why = "`eval` is none" if not self.config.eval else f"these {self.task.rows} have no class labels"
            advice = "" if self.task.dataset.groups is None else f" --eval {usual('groups')} scores groups."
            print(f"The embeddings are saved but not scored, as {why}.{advice}")
        encoder, _ = read_saved(self.folder.path)
        kind = f"{encoder.encoder.name}, embeddings of {encoder.out_channels} columns"
        write_text(self.folder.path / "card.md", card(result, str(self.task.dataset), kind))
        spent = ", ".join(f"{stage} {value:.1f} s" for stage, value in self._seconds.items())
        print(f"saved in {self.path}/; {spent}; median epoch {result['epoch_seconds']:.3f} s")
        if self.config.report:
            from graphcl.report.run_report import write_report  # matplotlib is loaded only here

            try:
                print(f"report: {write_report(self.folder.path)}")
            except InputError as error:
                print(f"no report.html: {error}")
        by_labels = [name for name in result.get("scores", {}) if not is_by_copies(name)]
        # a command would not know a script's loss
        if self.config.seeds == [0] and by_labels and not registering_modules():
            print(f"one seed of five: graphcl run --resume {self.path} --seeds 0-4 adds the others")
        if better := _next_try(self.task, result):
            print(better)
        return result


@contextmanager
def open_output(task: Task, device: torch.device, ranks: Ranks, seconds: Mapping[str, float]) -> Iterator[Output]:
    """Yield the output of this rank. On an interruption or a full disk, raise an error that tells how to resume."""
    if not ranks.is_main:
        other = Output(task.config)
        with other.stop.listening():
            try:
                yield other
            except Stopped:
                raise Stopped from None  # rank 0 prints where the run is saved
        return
    output = RunOutput(task, device, ranks, seconds)
    path = output.folder.path
    with output.folder, output.stop.listening():
        try:
            yield output
        except KeyboardInterrupt as interrupt:
            line = f"{str(interrupt) or 'finished results are saved'}; `--resume {path}` continues the run"
            raise type(interrupt)(line) from None
        except BrokenPipeError:
            line = f"the output was closed; finished results are saved; `--resume {path}` continues the run"
            raise Stopped(line) from None
        except OSError as error:
            what = f"{error.strerror or error}: {error.filename or path}"
            raise InputError(f"{what}; earlier results are saved; resume with `--resume {path}`.") from None


def _added(seconds: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return stage -> sum of both times."""
    return {stage: seconds.get(stage, 0.0) + more.get(stage, 0.0) for stage in {**seconds, **more}}


def _next_try(task: Task, result: Mapping[str, Any]) -> str | None:
    """Return advice if no evaluator scores the trained encoder above the best row without training, else None."""
    config = task.config
    of_labels = (entry for name, entry in result.get("scores", {}).items() if not is_by_copies(name))
    scores = [entry for entry in of_labels if "trained" in entry]
    if not scores or any(entry["gain_over_best"]["mean"] > 0 for entry in scores) or task.rows != "graphs":
        return None
    recipe = [] if config.name == "best" or config.positives != "views" else ["--config best"]
    members = "graphs that belong together as pairs, by an attribute `group` (docs/data.md)"
    pairs = members if task.dataset.groups is None else "--positives group, which trains on its pairs"
    tries = recipe + ([pairs] if config.positives == "views" else [])
    (best,) = row_labels([scores[0]["best_reference"]]).values()
    above = f"the trained encoder is not above the best row without training ({best})"
    return f"{above}; next, try {' or '.join(tries)}" if tries else None


def _one_column(config: Config, h: Any) -> str | None:
    """Return a warning if one column of `h [n, H]` holds nearly all variance, so that an unscaled SVM uses only it."""
    if not isinstance(h, Tensor):
        return None
    unscaled = not config.evaluation.scale and any(takes(name, "scale") for name in config.eval)
    if h.size(1) < 8 or not unscaled or (ratio := float(max_variance_ratio(h))) < _MAX_RATIO:
        return None
    return (
        f"one column holds {100 * ratio:.1f} % of the embedding's variance, so the SVM uses little else; "
        "`--evaluation.scale` gives all columns equal weight (docs/protocols.md)."
    )
