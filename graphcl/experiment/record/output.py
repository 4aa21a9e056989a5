"""Write the output of a run: printed lines, progress bars, tracker logs, and the files in the run folder."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.distributed.launch import Group
from graphcl.errors import InputError, Stopped
from graphcl.experiment.build import describe
from graphcl.experiment.context import Context, Scores
from graphcl.experiment.fingerprint import data_fingerprint
from graphcl.experiment.record.progress import epoch_bar, fold_bar
from graphcl.experiment.record.run_folder import RunFolder
from graphcl.experiment.record.snapshot import report_arrays
from graphcl.experiment.record.tracking import Tracker, tracking
from graphcl.experiment.seed import SeedResult
from graphcl.losses import Loss
from graphcl.methods import Method
from graphcl.registry import encoders
from graphcl.report.summary import ROWS, compared, environment, protocol, score_lines, unit
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.diagnostics import max_variance_ratio
from graphcl.training.epoch import Epoch

_MAX_RATIO = 0.9
"""If one column holds at least this fraction of the variance, a warning is printed; usual values are about 0.05."""


class Output:
    """Output of a rank other than 0, which writes no files and prints nothing. Base class of `RunOutput`."""

    rows: tuple[str, ...] = ()
    unfinished: tuple[int, ...] = ()
    path: Path | None = None

    def __init__(self, config: Config, group: Group) -> None:
        self.config, self.group, self.stop = config, group, Stop(quiet=True)

    @contextmanager
    def of_seed(self, seed: int) -> Iterator[Context]:
        """Yield the context for training a seed."""
        rule = self.config.checkpoint
        kept = Checkpoints("unused: rank 0 reads and writes", rule.epochs, rule.minutes, self.stop)
        with self.stop.deferred():
            yield Context(self.group, kept)

    def add(self, seed: int, result: SeedResult) -> None:
        """Write the result of a seed; here, do nothing."""

    def finish(self) -> dict[str, Any]:
        """Finish the run and return the content of `result.json`; here, return an empty dict."""
        return {}


class RunOutput(Output):
    """Output of rank 0, which writes the run folder, prints lines, and logs to trackers.

    Args:
        config: settings of the run.
        dataset: graphs of the run.
        device: device of the model.
        group: ranks that train together.
        seconds: stage -> wall time so far in seconds; updated in place.
    """

    rows = tuple(ROWS)

    def __init__(
        self, config: Config, dataset: GraphDataset, device: torch.device, group: Group, seconds: dict[str, float]
    ) -> None:
        super().__init__(config, group)
        self.dataset, self.device, self.seconds = dataset, device, seconds
        self.stop = Stop()
        self.folder = RunFolder(config, data_fingerprint(config, dataset))
        self.path = self.folder.path
        self.history = self.folder.history()
        self.scores = {name: self.folder.scores(name) for name in config.eval}
        self.epoch_scores: dict[str, Any] = self.folder.result.get("epoch_scores", {})
        self._add_seconds(self.folder.result.get("seconds", {}))
        ranks = f"; ranks: {group.size}" if group.size > 1 else ""
        name = config.encoder["name"]
        unused = dataset.num_edge_features and "edge_dim" not in encoders.arguments(name).required
        how = f"encoder: {name}{' (does not use edge_attr, gine does)' if unused else ''}"
        how += f"; method: {config.method['name']}; loss: {Loss(**config.loss)}; device: {device}{ranks}"
        print(f"{dataset}; {how}; {self.folder.path}/")
        if config.resume and self.folder.is_new:
            print(f"{self.folder.path} did not exist: this is a new run")
        for seed in self.folder.finished:
            print(f"seed {seed}: finished before")
            self.folder.checkpoints(config, seed, self.stop).clear()

    @property
    def unfinished(self) -> tuple[int, ...]:  # type: ignore[override]
        """Seeds that are not finished yet."""
        return tuple(seed for seed in self.config.seeds if seed not in self.folder.finished)

    @contextmanager
    def of_seed(self, seed: int) -> Iterator[Context]:
        """Yield the context for training a seed; it defers signals during training."""
        config, folder = self.config, self.folder
        with ExitStack() as stack:
            trackers = stack.enter_context(tracking(config.track, folder.path, seed, config.model_dump()))
            context = _RunContext(self, seed, trackers, stack)
            yield context
            context.finish()

    def add(self, seed: int, result: SeedResult) -> None:
        """Write the encoder, the embeddings and the scores of a seed into the run folder."""
        config, folder, dataset = self.config, self.folder, self.dataset
        if warning := _one_column(config, result.h):
            print(f"graphcl: seed {seed}: {warning}", file=sys.stderr)
        for epoch in result.history:  # restore rows of resumed epochs that the log has lost
            folder.add_epoch(seed, epoch)
        folder.add_seed(seed, result.model.encoder, describe(config, dataset, result.model), result.h, result.y)
        for name, rows in result.scores.items():
            for row, score in rows.items():
                self.scores[name].setdefault(row, []).append(score)
        if result.epoch_scores:
            found = {
                epoch: {name: vars(score) for name, score in each.items()}
                for epoch, each in result.epoch_scores.items()
            }
            self.epoch_scores[str(seed)] = found
        self.history += result.history
        self._add_seconds(result.seconds)
        folder.add_result(self._summary([*folder.finished, seed]))
        folder.checkpoints(config, seed, self.stop).clear()

    def finish(self) -> dict[str, Any]:
        """Print the summary, write the report, and return the content of `result.json`."""
        result = self.folder.result
        if self.dataset.scored:
            print("\n".join(score_lines(result)))
        else:
            print("These graphs have no class labels, so the embeddings are saved but not scored.")
        spent = ", ".join(f"{stage} {value:.1f} s" for stage, value in self.seconds.items())
        print(f"saved in {self.folder.path}/; {spent}; median epoch {result['epoch_seconds']:.3f} s")
        if self.config.report:
            print(_write_report(self.folder))
        if self.config.seeds == [0]:
            print(f"one seed of five: graphcl run --resume {self.folder.path} --seeds 0-4 adds the others")
        return result

    def _add_seconds(self, spent: dict[str, float]) -> None:
        for stage, value in spent.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + value

    def _summary(self, seeds: list[int]) -> dict[str, Any]:
        config, history = self.config, self.history
        scores = {name: compared(rows) for name, rows in self.scores.items() if rows}
        how = protocol(config.evaluation.folds, config.evaluation.inner_folds, self.dataset.benchmark)
        total = sum(epoch.seconds for epoch in history)
        return {
            "seeds": seeds,
            **({"scores": scores, **how} if scores else {}),
            **({"epoch_scores": self.epoch_scores} if self.epoch_scores else {}),
            "epochs": max((epoch.epoch for epoch in history), default=0),
            "seconds": dict(self.seconds),
            "epoch_seconds": statistics.median(epoch.seconds for epoch in history) if history else 0.0,
            "data_share": sum(epoch.data_seconds for epoch in history) / total if history else 0.0,
            **environment(self.device),
            "config": config.model_copy(update={"resume": False}).model_dump(),
            "ranks": self.group.size,
        }


class _RunContext(Context):
    """Context of one seed on rank 0: log epochs and scores, show progress, and take snapshots for the report."""

    def __init__(self, output: RunOutput, seed: int, trackers: list[Tracker], stack: ExitStack) -> None:
        super().__init__(output.group, output.folder.checkpoints(output.config, seed, output.stop))
        self.output, self.seed, self.trackers = output, seed, trackers
        self._snapshots: dict[str, Any] = {}
        self._training = stack.enter_context(ExitStack())
        self.on_fold = stack.enter_context(fold_bar(f"seed {seed}"))
        self._show: Callable[[Epoch], None] = lambda epoch: None

    def before_training(self, method: Method, h: Tensor | None) -> None:
        self._snapshot("before", method, h)
        config, stop = self.output.config, self.output.stop
        self._training.enter_context(stop.deferred())
        self._show = self._training.enter_context(epoch_bar(f"seed {self.seed}", config, stop))

    def on_epoch(self, epoch: Epoch) -> None:
        self.output.folder.add_epoch(self.seed, epoch)
        self._show(epoch)
        for tracker in self.trackers:
            tracker(epoch)

    def on_scores(self, scores: Scores) -> None:
        for name, rows in scores.items():
            means = ", ".join(f"{row} {score.mean:.2f}" for row, score in rows.items())
            print(f"seed {self.seed}: {means} {unit(rows['trained'].metric)} ({name})")
            logged = {f"score/{name}" + ("" if row == "trained" else f"_{row}"): s.mean for row, s in rows.items()}
            for tracker in self.trackers:
                tracker.add_scores(logged)

    def after_training(self, method: Method, h: Tensor) -> None:
        self._training.close()
        self._snapshot("after", method, h)

    def finish(self) -> None:
        """Write the snapshots for the report into the run folder."""
        if self._snapshots:
            self.output.folder.add_snapshots(**self._snapshots)

    def _snapshot(self, when: str, method: Method, h: Tensor | None) -> None:
        config = self.output.config
        if config.report and self.seed == config.seeds[0] and h is not None:
            self._snapshots[when] = report_arrays(config, self.output.dataset, method, h, self.seed)


@contextmanager
def open_output(
    config: Config, dataset: GraphDataset, device: torch.device, group: Group, seconds: dict[str, float]
) -> Iterator[Output]:
    """Yield the output of this rank. On an interruption or a full disk, raise an error that tells how to resume."""
    if not group.is_main:
        output = Output(config, group)
        with output.stop.listening():
            try:
                yield output
            except Stopped:
                raise Stopped from None  # rank 0 prints where the run is saved
        return
    main = RunOutput(config, dataset, device, group, seconds)
    path = main.folder.path
    with main.folder, main.stop.listening():
        try:
            yield main
        except KeyboardInterrupt as interrupt:
            line = f"{str(interrupt) or 'finished results are saved'}; `--resume {path}` continues the run"
            raise type(interrupt)(line) from None
        except BrokenPipeError:
            line = f"the output was closed; finished results are saved; `--resume {path}` continues the run"
            raise Stopped(line) from None
        except OSError as error:
            what = error.strerror or str(error)
            raise InputError(f"{what}, in {path}; earlier results are saved; resume with `--resume {path}`.") from None


def _one_column(config: Config, h: Tensor) -> str | None:
    """Return a warning if one column of `h [n, H]` holds nearly all variance, else None.

    An SVM on unscaled columns effectively uses this column only.
    """
    ratio = float(max_variance_ratio(h))
    if ratio < _MAX_RATIO or h.size(1) < 8 or "svm" not in config.eval or config.evaluation.scale:
        return None
    return (
        f"one column holds {100 * ratio:.1f} % of the embedding's variance, so the SVM uses little else; "
        "`--evaluation.scale` gives all columns equal weight (docs/protocols.md)."
    )


def _write_report(folder: RunFolder) -> str:
    """Write report.html and return a status line; a failure to draw the report does not fail the run."""
    from graphcl.report.run_report import write_report  # matplotlib is loaded only here

    try:
        return f"report: {write_report(folder.path)}"
    except InputError as error:
        return f"no report.html: {error}"
