"""Write the output of a run: printed lines, progress bars, tracker logs, and the files in the run folder."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.invalid import write_invalid
from graphcl.distributed.launch import Ranks
from graphcl.errors import InputError, Stopped
from graphcl.evaluate.needs import is_by_copies, need_of, takes, usual
from graphcl.experiment.build import describe
from graphcl.experiment.context import Context, OnFold, Scores
from graphcl.experiment.copies import describe_copies, sampled
from graphcl.experiment.fingerprint import data_fingerprint
from graphcl.experiment.parts import run_parts, split_column
from graphcl.experiment.record.progress import TrainingBar, fold_bar
from graphcl.experiment.record.run_folder import RunFolder
from graphcl.experiment.record.seed_files import write_predictions
from graphcl.experiment.record.snapshot import report_arrays
from graphcl.experiment.record.tracking import Tracker, tracking
from graphcl.experiment.scoring import is_scored, offered
from graphcl.experiment.seed import SeedResult
from graphcl.losses import Loss
from graphcl.methods import Method
from graphcl.models.saved import read_saved
from graphcl.references.rows import compared, row_labels, without_training
from graphcl.registry import encoders, registering_modules
from graphcl.report.summary import card, environment, protocol, score_lines, unit
from graphcl.system.files import write_text, write_whole
from graphcl.system.memory import release_freed_memory
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.diagnostics import max_variance_ratio
from graphcl.training.epoch import Epoch
from graphcl.training.state import Training

_MAX_RATIO = 0.9
"""If one column holds at least this fraction of the variance, a warning is printed; usual values are about 0.05."""


class Output:
    """Output of a rank other than 0, which writes no files and prints nothing. Base class of `RunOutput`."""

    rows: tuple[str, ...] = ()
    unfinished: tuple[int, ...] = ()
    path: Path | None = None

    def __init__(self, config: Config, ranks: Ranks) -> None:
        self.config, self.ranks, self.stop = config, ranks, Stop(quiet=not ranks.is_main)

    def checkpoints(self, seed: int) -> Checkpoints:
        """Return the checkpoints of `seed`, which rank 0 reads and writes."""
        rule = self.config.checkpoint
        folder = (self.path or Path("unused")) / "checkpoints" / f"seed-{seed}"
        return Checkpoints(folder, rule.epochs, rule.minutes, self.stop)

    @contextmanager
    def of_seed(self, seed: int) -> Iterator[Context]:
        """Yield the context for training a seed."""
        with self.stop.deferred():
            yield Context(self.ranks, self.checkpoints(seed))

    def add(self, seed: int, result: SeedResult) -> None:
        """Write the result of a seed; here, do nothing."""

    def finish(self) -> dict[str, Any]:
        """Finish the run and return the content of `result.json`; here, return an empty dict."""
        return {}


class RunOutput(Output):
    """Output of rank 0, which writes the run folder, prints lines, and logs to trackers.

    `seconds` maps each stage so far to its wall time.
    """

    def __init__(
        self, config: Config, dataset: GraphDataset, device: torch.device, ranks: Ranks, seconds: Mapping[str, float]
    ) -> None:
        super().__init__(config, ranks)
        self.rows = tuple(row_labels()) if config.trains else without_training()
        self.dataset, self.device = dataset, device
        self.folder = RunFolder(config, data_fingerprint(config, dataset))
        self.path = self.folder.path
        self.predicted: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.seconds = _added(seconds, self.folder.result.get("seconds", {}))
        name = config.encoder["name"]
        dense = encoders.fact(name, "form") == "dense"
        unused = dataset.num_edge_features and dense and "edge_dim" not in encoders.arguments(name).required
        how = f"encoder: {name}{' (does not use edge_attr, gine does)' if unused else ''}"
        how += f"; method: {config.method['name']}; loss: {Loss(**config.loss)}; device: {device}"
        invalid = write_invalid(dataset.invalid, self.path / "invalid.csv")
        print(f"{dataset}; {how}{f'; ranks: {ranks.size}' if ranks.size > 1 else ''}; {self.path}/{invalid}")
        if config.resume and self.folder.is_new:
            print(f"{self.path} did not exist: this is a new run")
        for seed in self.folder.finished:
            print(f"seed {seed}: finished before")
            self.checkpoints(seed).keep_last()

    @property
    def unfinished(self) -> tuple[int, ...]:  # type: ignore[override]
        """Seeds that are not finished yet."""
        return tuple(seed for seed in self.config.seeds if seed not in self.folder.finished)

    @contextmanager
    def of_seed(self, seed: int) -> Iterator[Context]:
        """Yield the context for training a seed; it defers signals during training."""
        settings = self.config.model_dump()
        with tracking(self.config.track, self.folder.path, seed, settings) as trackers, fold_bar(seed) as on_fold:
            yield _RunContext(self, seed, trackers, on_fold)

    def add(self, seed: int, result: SeedResult) -> None:
        """Write the encoder, the embeddings and the scores of a seed into the run folder."""
        config, folder, dataset = self.config, self.folder, self.dataset
        if warning := _one_column(config, result.h):
            print(f"graphcl: seed {seed}: {warning}", file=sys.stderr)
        for epoch in result.history:  # restore rows of resumed epochs that the log has lost
            folder.epochs.add(seed, epoch)
        description = describe(config, dataset, result.model)
        folder.add_seed(seed, result.model, description, result.h[: len(dataset.ids)], result.y, dataset)
        write_predictions(folder.path, seed, self.predicted, dataset, folder.finished)
        self.seconds = _added(self.seconds, result.seconds)

        seeds = [*folder.finished, seed]
        scores = {}
        for name, rows in result.scores.items():
            before = folder.scores(name)
            scores[name] = compared({row: [*before.get(row, []), score] for row, score in rows.items()})
        epoch_scores = dict(folder.result.get("epoch_scores", {}))
        if result.epoch_scores:
            epoch_scores[str(seed)] = {
                epoch: {name: vars(score) for name, score in each.items()}
                for epoch, each in result.epoch_scores.items()
            }
        history = folder.epochs.history(seeds)
        how, needs = dict[str, Any](), {need_of(name, dataset.rows, offered(dataset)) for name in config.eval}
        if "groups" in needs and (parts := run_parts(config, dataset)) is not None:
            how |= {"group_split": {part: len(each) for part, each in parts.items()}, "split_by": split_column(dataset)}
        if "copies" in needs:
            part = sampled(config, dataset, seed)
            how["copies"] = describe_copies(config, part) | ({} if part is dataset else {"of": len(dataset)})
        if needs - {"groups", "copies"}:
            how |= protocol(config.evaluation.folds, config.evaluation.inner_folds, dataset.benchmark)
        total = sum(epoch.seconds for epoch in history)
        folder.add_result({
            "seeds": seeds,
            **({"scores": scores, **how} if scores else {}),
            **({"epoch_scores": epoch_scores} if epoch_scores else {}),
            "epochs": max((epoch.epoch for epoch in history), default=0),
            "seconds": self.seconds,
            "epoch_seconds": statistics.median(epoch.seconds for epoch in history) if history else 0.0,
            "data_share": sum(epoch.data_seconds for epoch in history) / total if history else 0.0,
            **environment(self.device),
            "config": config.model_copy(update={"resume": False}).model_dump(),
            "ranks": self.ranks.size,
        })  # fmt: skip
        folder.read_back(seed)
        self.checkpoints(seed).keep_last()

    def finish(self) -> dict[str, Any]:
        """Print the summary, write the report, and return the content of `result.json`."""
        result = self.folder.result
        if is_scored(self.config, self.dataset):
            print("\n".join(score_lines(result)))
        else:
            why = "`eval` is none" if not self.config.eval else f"these {self.dataset.rows} have no class labels"
            advice = "" if self.dataset.groups is None else f" --eval {usual('groups')} scores groups."
            print(f"The embeddings are saved but not scored, as {why}.{advice}")
        encoder, _ = read_saved(self.folder.path)
        kind = f"{encoder.encoder.name}, embeddings of {encoder.out_channels} columns"
        write_text(self.folder.path / "card.md", card(result, str(self.dataset), kind))
        spent = ", ".join(f"{stage} {value:.1f} s" for stage, value in self.seconds.items())
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
        if better := _next_try(self.config, self.dataset, result):
            print(better)
        return result


class _RunContext(Context):
    """Context of one seed on rank 0: log epochs and scores, show progress, and take snapshots for the report."""

    def __init__(self, output: RunOutput, seed: int, trackers: list[Tracker], on_fold: OnFold) -> None:
        super().__init__(output.ranks, output.checkpoints(seed))
        self.output, self.seed, self.trackers, self.on_fold = output, seed, trackers, on_fold
        self._snapshots: dict[str, Any] = {}
        output.predicted = {}
        self._bar: TrainingBar

    def on_embeddings(self, when: str, method: Method, whole: Iterable[Batch], h: Tensor | None) -> None:
        super().on_embeddings(when, method, whole, h)
        release_freed_memory()
        config = self.output.config
        if config.report and self.seed == config.seeds[0] and h is not None and (when == "before" or config.trains):
            found = report_arrays(config, self.output.dataset, method, h, self.seed, whole)
            self._snapshots |= {f"{when}_{name}": each for name, each in found.items()}
            if when == "after" or not config.trains:
                file = self.output.folder.path / "report.npz"
                write_whole(file, lambda file: np.savez_compressed(file, **self._snapshots))
        self.clock.lap("report")

    @contextmanager
    def training(self, method: Method, seed: int, device: torch.device) -> Iterator[None]:
        stop = self.output.stop
        self._bar = TrainingBar(seed, self.output.config, stop)
        with stop.deferred(), self._bar, super().training(method, seed, device):
            yield
        release_freed_memory()

    def on_step(self, training: Training) -> None:
        self._bar.step(training)

    def on_epoch(self, epoch: Epoch) -> None:
        self.output.folder.epochs.add(self.seed, epoch)
        self._bar.epoch(epoch)
        for tracker in self.trackers:
            tracker(epoch)

    def on_predicted(self, name: str, rows: np.ndarray, predicted: np.ndarray) -> None:
        self.output.predicted[name] = rows, predicted

    def on_slow_scoring(self, expected: float, trained: float) -> None:
        took = f"about {expected:.0f} s, training took {trained:.0f} s"
        print(f"seed {self.seed}: scoring takes {took}; --eval none leaves it out", flush=True)

    def on_scores(self, scores: Scores) -> None:
        super().on_scores(scores)
        release_freed_memory()
        for name, rows in scores.items():
            means = ", ".join(f"{row} {score.mean:.2f}" for row, score in rows.items())
            print(f"seed {self.seed}: {means} {unit(next(iter(rows.values())).metric)} ({name})")
            logged = {f"score/{name}" + ("" if row == "trained" else f"_{row}"): s.mean for row, s in rows.items()}
            for tracker in self.trackers:
                tracker.add_scores(logged)


@contextmanager
def open_output(
    config: Config, dataset: GraphDataset, device: torch.device, ranks: Ranks, seconds: Mapping[str, float]
) -> Iterator[Output]:
    """Yield the output of this rank. On an interruption or a full disk, raise an error that tells how to resume."""
    if not ranks.is_main:
        other = Output(config, ranks)
        with other.stop.listening():
            try:
                yield other
            except Stopped:
                raise Stopped from None  # rank 0 prints where the run is saved
        return
    output = RunOutput(config, dataset, device, ranks, seconds)
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


def _next_try(config: Config, dataset: GraphDataset, result: Mapping[str, Any]) -> str | None:
    """Return advice if no evaluator scores the trained encoder above the best row without training, else None."""
    of_labels = (each for name, each in result.get("scores", {}).items() if not is_by_copies(name))
    scores = [each for each in of_labels if "trained" in each]
    if not scores or any(each["gain_over_best"]["mean"] > 0 for each in scores) or dataset.rows != "graphs":
        return None
    recipe = [] if config.name == "best" or config.positives != "views" else ["--config best"]
    own = "graphs that belong together as pairs, by an attribute `group` (docs/data.md)"
    pairs = own if dataset.groups is None else "--positives group, which trains on its pairs"
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
