"""Score a trained encoder on another data set, frozen or fine-tuned, and an untrained one likewise."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import nn

from graphcl.config import Config
from graphcl.config.settings import TABLE
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.tables import write_invalid
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.evaluate.needs import usual
from graphcl.experiment.encoder_input import load_for, rows_of
from graphcl.experiment.finetune import (
    check_labels,
    finetune,
    fold_splits,
    refit,
    with_label_rate,
    with_outputs,
    with_training_part,
)
from graphcl.experiment.fingerprint import file_digest
from graphcl.experiment.output import OnFold, Output, Scores
from graphcl.experiment.record.progress import fold_bar
from graphcl.experiment.record.run_folder import unfinished
from graphcl.experiment.record.seed_files import Predicted, add_encoder, add_outputs, add_rows, write_predictions
from graphcl.experiment.runtime import pick_device
from graphcl.experiment.scoring import score_rows
from graphcl.loaders.loader import make_loader
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.saved import EncoderDescription, new_encoder, read_encoder, read_saved
from graphcl.references.rows import compared, scores_of
from graphcl.registry import encoders
from graphcl.report.summary import PLUS_MINUS, environment, protocol, protocol_line, table_lines, unit
from graphcl.system.files import MAX_METRICS, append_text, read_json, read_text, write_text
from graphcl.tasks.evaluation import with_usable_evaluation
from graphcl.tasks.task import EMBED_BATCH, Task, make_task
from graphcl.training.loop import embed
from graphcl.training.randomness import seeded

LABELS = {
    "probe": {"untrained": "untrained encoder", "trained": "trained encoder"},
    "finetune": {"untrained": "from scratch", "trained": "from trained"},
    "linear": {"untrained": "untrained, linear layer", "trained": "trained, linear layer"},
}
"""Mode -> row of the scores -> label of the row in the table."""


class Plan(NamedTuple):
    """One transfer.

    Attributes:
        mode: `probe`, `finetune` or `linear`, which trains the output layer only.
        config: data set, evaluators, device and folder; seeds and evaluators have other defaults.
        tuning: keywords of `graphcl.experiment.finetune.finetune` and `label_rate`; None for a probe.
        settings: settings of the command, to write into the folder.
    """

    mode: str
    config: Config
    tuning: Mapping[str, Any] | None
    settings: Mapping[str, Any]


def transfer(file: str, plan: Plan, loaded: GraphDataset | None = None) -> dict[str, Any]:
    """Run a transfer, write its folder, print its scores, and return the content of `result.json`.

    The folder is new, or holds an unfinished transfer with these settings, which is continued after its last seed.

    Args:
        file: the encoder, see `graphcl.load_encoder`.
        plan: what to run.
        loaded: the data set, if it is loaded already, see `load_target`.

    Raises:
        InputError: the folder cannot be created or is in use, or the encoder, the graphs and the settings do not match.
    """
    mode, config, tuning, settings = plan
    with unfinished(config.out, f"{Path(config.dataset).stem}-{mode}") as place:
        start, device = time.perf_counter(), pick_device(config.device)
        torch.set_num_threads(config.threads)
        description, weights = read_saved(file)
        several = len(weights) > 1  # then each seed uses its own encoder
        seeds = _seeds(file, config, tuning, description, list(weights))
        read_encoder(file)  # report an unusable file before loading the graphs, which may take long
        dataset = load_target(description, config) if loaded is None else loaded
        task = _usable_task(config, tuning, dataset, description)
        settings = {**settings, "seeds": seeds, **({"eval": task.config.eval} if tuning is None else {})}
        folder = place.start({**settings, "data": {**dataset.fingerprint(), **_digest(file)}})
        write_text(folder / "config.yaml", yaml.safe_dump(settings, sort_keys=False))
        invalid = write_invalid(dataset.invalid, folder / "invalid.csv")
        trained_on = f"{description.encoder.name}, trained on {description.dataset}"
        print(f"{dataset}, features: {dataset.features}; {trained_on}; device: {device}; {folder}/{invalid}")

        result = read_json(folder / "result.json") if (folder / "result.json").exists() else {}
        scores = scores_of(result)
        finished = seeds[: max((len(rows["trained"]) for rows in scores.values()), default=0)]
        _drop_unfinished(folder / "metrics.jsonl", finished)
        rate = 1.0 if tuning is None else tuning["label_rate"]
        split = None if dataset.benchmark is None else with_label_rate(dataset, rate, 0).benchmark
        start -= result.get("seconds", 0.0)
        for seed in seeds[len(finished) :]:
            trained, _ = read_encoder(file, seed if several else None)
            starts = {"untrained": untrained_encoder(description, seed).to(device), "trained": trained.to(device)}
            if tuning is None:
                outcome = _probe(task, starts, seed)
            else:
                outcome = _finetune(tuning, starts, dataset, seed, folder / "metrics.jsonl")
            if several or tuning is not None or seed == seeds[0]:
                add_encoder(folder, seed, finished, description.model_copy(update={"target": None}), [outcome.encoder])
                if tuning is None:
                    add_rows(folder, seed, finished, outcome.rows, dataset.y, dataset)
                else:
                    add_outputs(folder, seed, finished, outcome.rows, dataset)
            write_predictions(folder, seed, outcome.predicted, outcome.split, finished)
            finished.append(seed)
            for name, rows in outcome.scores.items():
                for row, of_seed in rows.items():
                    scores.setdefault(name, {}).setdefault(row, []).append(of_seed)
                means = [f"{label} {rows[row].mean:.2f}" for row, label in LABELS[mode].items()]
                print(f"seed {seed}: {', '.join(means)} {unit(rows['trained'].metric)} ({name})")
            folds = next(iter(scores.values()))["trained"][0].folds
            result = {
                "scores": {name: compared(rows) for name, rows in scores.items()},
                **protocol(folds, task.config.evaluation.inner_folds if tuning is None else None, split),
                **({"label_rate": rate} if rate < 1 else {}),
                "seconds": time.perf_counter() - start,
                **environment(device),
                "config": settings,
                "encoder": {**description.model_dump(), "seeds": list(weights)},
            }
            # write after each seed, so that an interruption loses no finished seed
            write_text(folder / "result.json", json.dumps(result, indent=2))
        place.finish()

    many = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}, {'an encoder each' if several else 'of one encoder'}"
    how = protocol_line(result, "C" if tuning is None else "epoch")
    print("\n".join([*table_lines(result, LABELS[mode]), f"{how}; mean over {many}. {PLUS_MINUS}"]))
    dense = encoders.fact(description.encoder.name, "form") == "dense"
    advice = f"; graphcl predict {folder} --dataset NAME predicts new graphs" if dense else ""
    print(f"saved in {folder}/; {result['seconds']:.1f} s{advice}")
    from graphcl.report.run_report import write_report  # matplotlib is loaded only here

    try:
        print(f"report: {write_report(folder)}")
    except InputError as error:
        print(f"no report.html: {error}")
    return result


def load_target(description: EncoderDescription, config: Config) -> GraphDataset:
    """Load the data set of a transfer, with the columns that the encoder expects."""
    print(f"loading {config.dataset} ...", flush=True)
    table = config.model_dump(include=TABLE)
    return load_for(description, config.dataset, config.data_root, config.mirror, **table)


def check(file: str, plan: Plan, dataset: GraphDataset) -> None:
    """Raise InputError unless a transfer to this data set can run."""
    description, weights = read_saved(file)
    _seeds(file, plan.config, plan.tuning, description, list(weights))
    _usable_task(plan.config, plan.tuning, dataset, description)


def untrained_encoder(description: EncoderDescription, seed: int) -> nn.Module:
    """Return an untrained encoder on the CPU, with the initial weights of a run with this seed."""
    with seeded(seed):
        return new_encoder(description)


def _seeds(file: str, config: Config, tuning: object, description: EncoderDescription, trained: list[int]) -> list[int]:
    """Return the seeds, by default those of several encoders; InputError for unknown seeds and unsuitable encoders."""
    several = len(trained) > 1
    seeds = config.seeds if "seeds" in config.model_fields_set else trained if several else [0, 1, 2]
    if several and (missing := [seed for seed in seeds if seed not in trained]):
        among = f"{file}, {', '.join(map(str, trained))}"
        raise InputError(f"`seeds` must be among those of {among}; got {missing[0]}.")
    rows = rows_of(description.settings)
    if rows != "graphs":
        raise InputError(f"{file} holds an encoder of {rows}, which transfer cannot score; use graphcl embed.")
    form = encoders.fact(description.encoder.name, "form")
    if tuning is not None and form != "dense":
        what = f"holds {description.encoder.name}, an encoder of {form} rows, which no layer can follow"
        raise InputError(f"{file} {what}; use --mode probe.")
    return seeds


def _digest(file: str) -> dict[str, str]:
    """Return the digest of the encoder's file; none of an installed encoder."""
    path = Path(file).expanduser()
    path = path / "encoder.pt" if path.is_dir() else path
    return {str(path): file_digest(path)} if path.is_file() else {}


def _usable_task(config: Config, tuning: object, dataset: GraphDataset, description: EncoderDescription) -> Task:
    """Return what is scored; raise InputError for a data set that the mode cannot use."""
    if config.target and not dataset.scored:
        raise InputError(f"{dataset.name} has numbers as targets, but no parts to score them on; pass --split random.")
    if tuning is not None:
        check_labels(dataset if dataset.benchmark is not None else next(fold_splits(dataset, 0)))
        return make_task(config, dataset)
    if not dataset.scored:
        raise InputError(f"{dataset.name} has no class labels to score embeddings by; use graphcl embed.")
    if "eval" not in config.model_fields_set:
        config = config.model_copy(update={"eval": [usual("labels" if dataset.benchmark is None else "targets")]})
    config = config.model_copy(update={"encoder": {"name": description.encoder.name}})  # as to the form of its rows
    return with_usable_evaluation(make_task(config, dataset))


def _drop_unfinished(log: Path, finished: Collection[int]) -> None:
    """Drop the lines of other seeds than the `finished` ones from `metrics.jsonl`, if it exists."""
    if log.exists():
        starts = tuple(f'{{"seed": {seed}, ' for seed in finished)
        lines = read_text(log, MAX_METRICS).splitlines(keepends=True)
        write_text(log, "".join(line for line in lines if line.startswith(starts)))


class Outcome(NamedTuple):
    """Scores of the two encoders of a seed, and what `graphcl predict` needs of the trained one.

    `rows` are its embeddings, or the arrays of `add_outputs` if it was fine-tuned; `predicted` holds the predictions
    for the test part of `split`, or for all test parts of the folds.
    """

    scores: Scores
    encoder: nn.Module
    rows: Any
    predicted: Predicted
    split: GraphDataset


class _Probe(Output):
    """Hooks of a probe: show the progress, and keep the test predictions."""

    def __init__(self, on_fold: OnFold) -> None:
        super().__init__()
        self.on_fold = on_fold
        self.predicted: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def on_predicted(self, name: str, rows: np.ndarray, predicted: np.ndarray) -> None:
        self.predicted[name] = rows, predicted


def _probe(task: Task, starts: Mapping[str, nn.Module], seed: int) -> Outcome:
    """Score the embeddings by frozen encoders."""
    device = next(starts["trained"].parameters()).device
    loader = make_loader(task.dataset, EMBED_BATCH, device=device)
    embeddings: dict[str, Any] = {row: embed(encoder, loader)[0] for row, encoder in starts.items()}
    with fold_bar(seed) as on_fold:
        output = _Probe(on_fold)
        scores = score_rows(task, embeddings, seed, output)
    return Outcome(scores, starts["trained"], embeddings["trained"], output.predicted, task.dataset)


def _finetune(
    tuning: Mapping[str, Any], starts: Mapping[str, nn.Module], dataset: GraphDataset, seed: int, log: Path
) -> Outcome:
    """Fine-tune copies of encoders on the split, or on each fold, and log the epochs.

    For `graphcl predict`, the trained encoder is fine-tuned on all graphs of the folds, for the median number of epochs
    that they chose; of a split, the model that was scored is kept.
    """
    options, device = dict(tuning), next(starts["trained"].parameters()).device
    rate, scores = options.pop("label_rate"), dict[str, FoldScores]()
    tests: dict[str, list[Any]] = {row: [] for row in starts}

    def started(encoder: nn.Module, split: GraphDataset) -> tuple[ContrastiveModel, GraphDataset]:
        few = with_label_rate(split, rate, seed)
        return with_outputs(copy.deepcopy(encoder), few, seed).to(device), few

    splits = list(fold_splits(dataset, seed)) if dataset.benchmark is None else [dataset]
    for row, encoder in starts.items():
        parts = []
        for fold, split in enumerate(splits):
            place = {"seed": seed, "start": row, "fold": fold}
            write = [lambda epoch, place=place: append_text(log, json.dumps(place | epoch) + "\n")]
            model, few = started(encoder, split)
            keep: dict[str, Any] = {"callbacks": write, "on_predicted": lambda *test, row=row: tests[row].append(test)}
            parts.append(finetune(model, few, seed, **keep, **options))
        scores[row] = FoldScores.joined(parts)
    epochs = int(scores["trained"].chosen[0])
    if dataset.benchmark is None:
        epochs = int(np.median(scores["trained"].chosen))
        model, few = started(starts["trained"], with_training_part(split, torch.arange(len(split))))
        refit(model, few, seed, **options | {"epochs": epochs})
    assert few.benchmark is not None
    layer: Any = model.projector
    arrays = {name: getattr(layer[0], name).detach().cpu().numpy() for name in ("weight", "bias")}
    arrays |= {"graphs": len(few.benchmark.split["train"]), "epochs": epochs}
    rows, values = (np.concatenate(columns) for columns in zip(*tests["trained"], strict=True))
    return Outcome({"finetune": scores}, model.encoder, arrays, {"finetune": (rows, values)}, split)
