"""`python -m graphcl.run`: train, embed, evaluate, report."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from graphcl.config.command_line import command, parse, wants
from graphcl.config.settings import Config
from graphcl.datasets import load_dataset
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.order import check_share
from graphcl.datasets.resident import make_loader
from graphcl.distributed.processes import Processes, processes, said_once
from graphcl.distributed.ranks import across
from graphcl.errors import InputError, Stopped
from graphcl.evaluate import FoldScores
from graphcl.experiment.run_folder import RunFolder, check_folder
from graphcl.experiment.seed import (
    EMBED_BATCH,
    calibrated,
    describe,
    look,
    make_method,
    make_model,
    reference_embeddings,
    rehearse,
    score_rows,
    settle,
    timed,
    train_seed,
    with_usable_evaluation,
)
from graphcl.experiment.summary import compared, environment, protocol, score_lines, unit
from graphcl.experiment.tracking import Tracker, check_trackers, tracking
from graphcl.losses import Loss
from graphcl.methods import Method
from graphcl.system.memory import keep_freed_memory
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.diagnostics import widest_share
from graphcl.training.loop import Epoch, embed

_WIDEST = 0.9
"""Share of the variance in one column, beyond which there is a word; sound trainings have some 0.05."""
Scores = dict[str, dict[str, list[FoldScores]]]  # by evaluator and row, a seed each


@command("the run folder, if one was made, keeps what had finished")
def main(words: Sequence[str]) -> None:
    """The command line; returns the exit code."""
    if text := wants(words):
        print(text, end="")
        return
    with said_once():
        config = parse(words)
    if config is not None:
        keep_freed_memory()
        run(config)


def run(config: Config) -> dict[str, Any]:
    """Everything a configuration asks for; returns what `result.json` holds, on other ranks than the first nothing."""
    with processes(config.rank_timeout) as ranks:
        return _follow(config, ranks) if ranks is not None and ranks.rank else _lead(config, ranks)


def _follow(config: Config, ranks: Processes) -> dict[str, Any]:
    """What another rank than the first does: its part in the training."""
    device = settle(config, ranks.local)
    ranks.wait()  # for the data set to be there
    dataset = load_dataset(config.dataset, config.data_root, config.mirror, config.features, config.max_degree)
    config, seeds, path = ranks.share(None)
    stop = Stop(quiet=True)
    with stop.listening():
        for seed in seeds:
            model = make_model(config, dataset, seed).to(device)
            method = make_method(config, dataset, model, seed)
            checkpoints = Checkpoints(path, config.checkpoint.epochs, config.checkpoint.minutes, stop)
            try:
                ranks.wait()
                with stop.deferred(), across(ranks.group):
                    train_seed(config, dataset, model, seed, method=method, checkpoints=checkpoints)
            except Stopped:
                raise Stopped from None  # without a word: rank 0 says where it is saved
    return {}


def _lead(config: Config, ranks: Processes | None) -> dict[str, Any]:
    """What the first rank does, or the only one: all that is read, scored and kept."""
    seconds: dict[str, float] = {}
    check_folder(config)
    check_trackers(config.track)
    device = settle(config, ranks.local if ranks else None)
    with timed(seconds, "load"):
        dataset = load_dataset(config.dataset, config.data_root, config.mirror, config.features, config.max_degree)
    config = config.model_copy(update={"features": dataset.features})
    # What does not fit together is refused before anything is written.
    rehearse(config, dataset)
    config = with_usable_evaluation(config, dataset)
    if ranks:
        check_share((ranks.rank, ranks.size), config.batch_size, len(dataset))
    stop = Stop()
    with RunFolder(config) as folder, stop.listening():
        told = f"method: {config.method['name']}; loss: {Loss(**config.loss)}; device: {device}"
        told += f"; ranks: {ranks.size}" if ranks else ""
        print(f"{dataset}, features: {dataset.features}; {told}; {folder.path}/")
        if ranks:
            ranks.wait()
            ranks.share((config, [seed for seed in config.seeds if seed not in folder.finished], str(folder.path)))
        try:
            result = _seeds(config, dataset, device, folder, stop, seconds, ranks)
        except KeyboardInterrupt as interrupt:
            line = f"{str(interrupt) or 'what had finished is kept'}; `--resume {folder.path}` goes on"
            raise type(interrupt)(line) from None
        except BrokenPipeError:
            line = f"nobody reads its output; what had finished is kept; `--resume {folder.path}` goes on"
            raise Stopped(line) from None
        except OSError as error:
            what = error.strerror or str(error)
            raise InputError(
                f"{what}, in {folder.path}; what was saved is kept, `--resume {folder.path}` goes on."
            ) from None
    if dataset.scored:
        print("\n".join(score_lines(result)))
    else:
        print("These graphs have no class labels, so the embedding is kept but not scored.")
    spent = ", ".join(f"{stage} {value:.1f} s" for stage, value in seconds.items())
    print(f"kept in {folder.path}/; {spent}; median epoch {result['epoch_seconds']:.3f} s")
    if config.report:
        print(_draw(folder))
    return result


def _seeds(
    config: Config,
    dataset: GraphDataset,
    device: torch.device,
    folder: RunFolder,
    stop: Stop,
    seconds: dict[str, float],
    ranks: Processes | None,
) -> dict[str, Any]:
    """Train, embed and score each seed that is not finished yet; what `result.json` holds."""
    history = folder.history()
    scores: Scores = {name: folder.scores(name) for name in config.eval}
    for stage, spent in folder.result.get("seconds", {}).items():
        seconds[stage] = seconds.get(stage, 0.0) + spent
    result = folder.result
    for seed in config.seeds:
        checkpoints = folder.checkpoints(config, seed, stop)
        if seed in folder.finished:
            print(f"seed {seed}: finished before")
            checkpoints.clear()
            continue
        model = make_model(config, dataset, seed).to(device)
        whole = make_loader(dataset, EMBED_BATCH, device=device)
        with timed(seconds, "embed"):
            rows = reference_embeddings(config, dataset, model, seed)
        method = make_method(config, dataset, model, seed)
        looked = config.report and seed == config.seeds[0]
        if looked:
            with timed(seconds, "report"):
                start = look(config, dataset, method, rows["untrained"], seed)
        with tracking(config.track, folder.path, seed, config.model_dump()) as trackers:
            if ranks:
                ranks.wait()
            with timed(seconds, "train"), stop.deferred(), across(ranks.group if ranks else None):
                history += _train(config, dataset, method, seed, folder, trackers, checkpoints)
            with timed(seconds, "embed"):
                if config.precise_bn:
                    model.load_state_dict(calibrated(config, dataset, model, seed).state_dict())
                h, y = embed(model, whole)
            if told := _one_column(config, h):
                print(f"graphcl: seed {seed}: {told}", file=sys.stderr)
            folder.add_seed(seed, model.encoder, describe(config, dataset, model), h, y)
            if looked:
                with timed(seconds, "report"):
                    folder.add_moments(before=start, after=look(config, dataset, method, h, seed))
            if dataset.scored:
                with timed(seconds, "evaluate"), _evaluation_bar(f"seed {seed}") as on_fold:
                    of_seed = score_rows(config, dataset, {**rows, "trained": h}, seed, on_fold=on_fold)
                for name, found in of_seed.items():
                    for row, each in found.items():
                        scores[name].setdefault(row, []).append(each)
                    told = ", ".join(f"{row} {each.mean:.2f}" for row, each in found.items())
                    print(f"seed {seed}: {told} {unit(found['trained'].metric)} ({name})")
                    for tracker in trackers:
                        means = {f"score/{name}_{row}": each.mean for row, each in found.items() if row != "trained"}
                        tracker.add_scores({f"score/{name}": found["trained"].mean, **means})
        # After each seed, so that no score is lost with a later one.
        finished = [*folder.finished, seed]
        result = _result(config, dataset, finished, scores, history, seconds, device)
        result["ranks"] = ranks.size if ranks else 1
        folder.add_result(result)
        checkpoints.clear()
    return result


def _one_column(config: Config, h: Tensor) -> str | None:
    """What is to be said where an SVM on the unscaled embedding would see one column alone."""
    share = float(widest_share(h))
    if share < _WIDEST or h.size(1) < 8 or "svm" not in config.eval or config.evaluation.scale:
        return None
    return (
        f"one column holds {100 * share:.1f} % of the embedding's variance, and the SVM sees little else; "
        "`--evaluation.scale` lets all columns count alike (docs/protocols.md)."
    )


def _train(
    config: Config,
    dataset: GraphDataset,
    method: Method,
    seed: int,
    folder: RunFolder,
    trackers: Sequence[Tracker],
    checkpoints: Checkpoints,
) -> list[Epoch]:
    with _progress(f"seed {seed}", config, checkpoints.stop) as show:
        callbacks = [lambda epoch: folder.add_epoch(seed, epoch), show, *trackers]
        history = train_seed(config, dataset, method.model, seed, callbacks, method, checkpoints)
    for epoch in history:  # those before a checkpoint whose lines were lost
        folder.add_epoch(seed, epoch)
    return history


def _draw(folder: RunFolder) -> str:
    """What there is to say of the report, which is not worth a run's failing."""
    from graphcl.experiment.viz.run_report import write_report  # not before there is something to draw

    try:
        return f"report: {write_report(folder.path)}"
    except InputError as error:
        return f"no report.html: {error}"


def _result(
    config: Config,
    dataset: GraphDataset,
    seeds: list[int],
    found: Scores,
    history: list[Epoch],
    seconds: dict[str, float],
    device: torch.device,
) -> dict[str, Any]:
    scores = {name: compared(rows) for name, rows in found.items() if rows}
    how = protocol(config.evaluation.folds, config.evaluation.inner_folds, dataset.benchmark)
    total = sum(epoch.seconds for epoch in history)
    return {
        "seeds": seeds,
        **({"scores": scores, **how} if scores else {}),
        "epochs": max((epoch.epoch for epoch in history), default=0),
        "seconds": dict(seconds),
        "epoch_seconds": statistics.median(epoch.seconds for epoch in history) if history else 0.0,
        "data_share": sum(epoch.data_seconds for epoch in history) / total if history else 0.0,
        **environment(device),
        "config": config.model_copy(update={"resume": False}).model_dump(),
    }


@contextmanager
def _evaluation_bar(label: str) -> Iterator[Callable[[str, int, int], object] | None]:
    """Show finished folds on a terminal, as in "seed 0, svm, untrained: 3/10"; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=label, leave=False) as bar:

        def show(row: str, done: int, total: int) -> None:
            bar.set_description_str(f"{label}, {row}")
            bar.total, bar.n = total, done
            bar.refresh()

        yield show


@contextmanager
def _progress(label: str, config: Config, stop: Stop) -> Iterator[Any]:
    """A progress bar on a terminal, a log line an epoch elsewhere; a stop is wanted when nobody reads that any more."""
    from tqdm import tqdm

    line = "loss {0.loss:.4f}, alignment {0.alignment:.3f}, uniformity {0.uniformity:.3f}, {0.seconds:.2f} s"
    if not sys.stderr.isatty():

        def log(epoch: Epoch) -> None:
            try:
                print(f"{label}, epoch {epoch.epoch}: {line.format(epoch)}", flush=True)
            except BrokenPipeError:
                stop.wanted = True

        yield log
        return
    with tqdm(total=None if config.steps else config.epochs, desc=label, leave=False) as bar:

        def show(epoch: Epoch) -> None:
            bar.update(epoch.epoch - bar.n)  # a resumed training has epochs behind it
            bar.set_postfix_str(line.format(epoch))

        yield show


if __name__ == "__main__":
    sys.exit(main())
