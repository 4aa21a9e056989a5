"""`graphcl transfer`: evaluate a trained encoder on another data set.

- Probe: the encoder is frozen, and its embeddings are scored as in a run; so are those of an untrained encoder (same
  architecture, initialised with the seed).
- Fine-tuning (`graphcl.experiment.finetune`): once from the trained and once from the untrained weights, with the same
  linear layer, order of graphs and dropout masks for a given seed. A data set without a split is fine-tuned in ten
  folds: each is the test part once, the next one is then the validation part, the others the training part.
- `--label-rate 0.01` trains on 1 % of the labels of every class, as in the semi-supervised protocol of You et al. (who
  select the epoch on the test folds).
- If the file contains encoders of several seeds, each seed uses its own encoder, and the deviation `± seeds` includes
  the variation of pretraining. If it contains one encoder, all seeds use it, and `± seeds` covers the transfer only.

Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), section 5; You et al.,
"Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
"""

from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import Field

from graphcl.arguments import Count, NonNegative, Positive, Ratio, interval
from graphcl.cli.command_line import Command, flag
from graphcl.config import Config, make_config
from graphcl.config.settings import TABLE, DatasetName, EncoderFile, Evaluators, Hardware, Imports, Place, Seeds
from graphcl.datasets.invalid import write_invalid
from graphcl.datasets.settings import SplitTable
from graphcl.errors import InputError
from graphcl.registry import encoders
from graphcl.system.files import MAX_METRICS, append_text, read_json, read_text, write_text
from graphcl.system.memory import keep_freed_memory

if TYPE_CHECKING:  # help texts need no torch
    from torch import nn

    from graphcl.datasets.dataset import GraphDataset
    from graphcl.evaluate import FoldScores
    from graphcl.experiment.record.transferred import TransferFiles
    from graphcl.experiment.record.unfinished import Unfinished
    from graphcl.models.saved import EncoderDescription


class Transfer(Hardware, Place, SplitTable, Imports):
    """Use a trained encoder on another data set: probe its frozen embeddings and those of an untrained encoder, or
    fine-tune it with labels and train the same architecture from scratch.
    """

    encoder: EncoderFile
    dataset: DatasetName
    mode: Literal["probe", "finetune"]
    """probe the frozen embeddings, or finetune the encoder with labels"""
    seeds: Annotated[Seeds | None, Field(title="N ...", description="seeds; default: the file's, or 0 1 2")] = None
    eval: Annotated[Evaluators | None, Field(title="NAME ...")] = None
    """probe: svm, logreg, knn, or ogb for a split; default: svm or ogb"""
    epochs: Count = Field(100, description="fine-tuning: passes over the training part")
    batch_size: Annotated[int, interval("[2, 1e9)", "BatchNorm needs several nodes")] = 32
    """fine-tuning: graphs in a batch"""
    lr: Positive = Field(0.001, description="fine-tuning: Adam's learning rate")
    weight_decay: NonNegative = Field(0.0, description="fine-tuning: Adam's L2 penalty")
    dropout: Ratio = Field(0.5, description="fine-tuning: dropout ratio of the embedding, in [0, 1)")
    label_rate: Annotated[float, interval("(0, 1]")] = 1.0
    """fine-tuning: fraction of the training part's labels to use"""
    out: str | None = Field(None, title="FOLDER", description="new or unfinished folder; default: runs/NAME-MODE-N")

    def config(self) -> Config:
        """Return a run's `Config` with this transfer's data set, seeds, evaluators and device."""
        return make_config(self.model_dump(include={"dataset", "seeds", "eval", "device"}, exclude_none=True))


COMMAND = Command(
    "graphcl transfer ENCODER --dataset NAME --mode probe|finetune [--KEY VALUE ...]", Transfer, positional="encoder"
)

MODE_SETTINGS = {
    "probe": ("eval",),
    "finetune": ("epochs", "batch_size", "lr", "weight_decay", "dropout", "label_rate"),
}
"""Mode -> settings that only this mode uses."""
LABELS = {
    "probe": {"untrained": "untrained encoder", "trained": "trained encoder"},
    "finetune": {"untrained": "from scratch", "trained": "from trained"},
}
"""Mode -> row of the scores -> label of the row in the table."""
Scores = dict[str, "FoldScores"]
"""Evaluator -> score of one seed."""


def run(settings: Transfer) -> None:
    """Check that the settings belong to the mode, and run the transfer."""
    for mode, names in MODE_SETTINGS.items():
        if mode != settings.mode and (idle := [flag(name) for name in names if name in settings.model_fields_set]):
            raise InputError(f"{', '.join(idle)}: for --mode {mode} only.")
    if settings.mode == "probe" and settings.eval == []:
        raise InputError("a probe scores embeddings, got `eval` none; name an evaluator, or use graphcl embed.")
    keep_freed_memory()
    transfer(settings)


main = COMMAND.main(run, "finished results are in the folder, if it was created")


def transfer(settings: Transfer) -> dict[str, Any]:
    """Run a transfer, write its folder, and return the content of `result.json`.

    The folder is new, or holds an unfinished transfer with these settings, which is continued after its last seed.

    Raises:
        InputError: the folder cannot be created or is in use, or the encoder, the graphs and the settings do not match.
    """
    from graphcl.experiment.record.unfinished import unfinished

    with unfinished(settings.out, f"{Path(settings.dataset).stem}-{settings.mode}") as place:
        return _transfer(settings, place)


def _transfer(settings: Transfer, place: Unfinished) -> dict[str, Any]:
    import torch

    from graphcl.experiment.build import pick_device
    from graphcl.experiment.encoder_input import load_for
    from graphcl.experiment.parts import with_label_rate
    from graphcl.experiment.record.transferred import TransferFiles
    from graphcl.models.saved import read_encoder, read_saved
    from graphcl.references.rows import compared
    from graphcl.report.summary import environment, protocol

    start = time.perf_counter()
    config = settings.config()
    device = pick_device(settings.device)
    torch.set_num_threads(settings.threads)
    description, weights = read_saved(settings.encoder)
    several = len(weights) > 1  # then each seed uses its own encoder
    seeds = _seeds(settings, description, list(weights))
    read_encoder(settings.encoder)  # report an unusable file before loading the graphs, which may take long
    print(f"loading {settings.dataset} ...", flush=True)
    table = settings.model_dump(include=TABLE)
    dataset = load_for(description, settings.dataset, settings.data_root, settings.mirror, **table)
    config = _usable_config(config, settings, dataset, description)
    kept = settings.model_dump(exclude=set().union(*MODE_SETTINGS.values()) - set(MODE_SETTINGS[settings.mode]))
    kept |= {"seeds": seeds, **({"eval": config.eval} if settings.mode == "probe" else {})}
    folder = place.start({**kept, "data": _data(settings, dataset)})
    write_text(folder / "config.yaml", yaml.safe_dump(kept, sort_keys=False))
    encoder_text = f"{description.encoder.name}, trained on {description.dataset}; device: {device}"
    invalid = write_invalid(dataset.invalid, folder / "invalid.csv")
    print(f"{dataset}, features: {dataset.features}; {encoder_text}; {folder}/{invalid}")
    inner_folds = config.evaluation.inner_folds if settings.mode == "probe" else None
    few = dataset if dataset.benchmark is None else with_label_rate(dataset, settings.label_rate, 0)
    result, found = _finished(folder, seeds)
    job = Job(settings, config, description, dataset, several, folder, TransferFiles(folder, description, dataset))
    job.files.resume(seeds[: len(found["trained"])])
    start -= result.get("seconds", 0.0)
    for seed in seeds[len(found["trained"]) :]:
        for row, new in _score_seed(job, seed).items():
            found[row].append(new)
        result = {
            "scores": {
                name: compared({row: [of_seed[name] for of_seed in scores] for row, scores in found.items()})
                for name in new
            },
            **protocol(next(iter(new.values())).folds, inner_folds, few.benchmark),
            **({"label_rate": settings.label_rate} if settings.label_rate < 1 else {}),
            "seconds": time.perf_counter() - start,
            **environment(device),
            "config": kept,
            "encoder": {**description.model_dump(), "seeds": list(weights)},
        }
        # write after each seed, so that an interruption loses no finished seed
        write_text(folder / "result.json", json.dumps(result, indent=2))

    place.finish()
    _print_end(settings.mode, result, several, folder, _form(description) == "dense")
    return result


def _print_end(mode: str, result: Mapping[str, Any], several: bool, folder: Path, dense: bool) -> None:
    """Print the table of scores, and what to do next."""
    from graphcl.report.summary import PLUS_MINUS, protocol_line, table_lines

    how = protocol_line(result, "C" if mode == "probe" else "epoch")
    seeds = result["config"]["seeds"]
    many = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}, {'an encoder each' if several else 'of one encoder'}"
    print("\n".join([*table_lines(result, LABELS[mode]), f"{how}; mean over {many}. {PLUS_MINUS}"]))
    advice = f"; graphcl predict {folder} --dataset NAME predicts new graphs" if dense else ""
    print(f"saved in {folder}/; {result['seconds']:.1f} s{advice}")
    from graphcl.report.run_report import write_report  # matplotlib is loaded only here

    try:
        print(f"report: {write_report(folder)}")
    except InputError as error:
        print(f"no report.html: {error}")


def _data(settings: Transfer, dataset: GraphDataset) -> dict[str, Any]:
    """Return digests of the graphs and of the encoder's file."""
    from graphcl.experiment.fingerprint import file_digest

    file = Path(settings.encoder).expanduser()
    file = file / "encoder.pt" if file.is_dir() else file
    digests = {str(file): file_digest(file)} if file.is_file() else {}  # else an installed encoder
    return {**dataset.fingerprint(), **digests}


def _finished(folder: Path, seeds: Sequence[int]) -> tuple[dict[str, Any], dict[str, list[Scores]]]:
    """Return the result so far, and the scores by row of the finished seeds; drop other seeds from the log."""
    from graphcl.evaluate import FoldScores

    result = read_json(folder / "result.json") if (folder / "result.json").exists() else {}
    scores = {name: each["per_seed"] for name, each in result.get("scores", {}).items()}
    done = len(next(iter(scores.values()), []))
    if (log := folder / "metrics.jsonl").exists():
        rows = tuple(f'{{"seed": {seed}, ' for seed in seeds[:done])
        lines = read_text(log, MAX_METRICS).splitlines(keepends=True)
        write_text(log, "".join(line for line in lines if line.startswith(rows)))
    return result, {
        row: [{name: FoldScores.of(each[k][row]) for name, each in scores.items()} for k in range(done)]
        for row in ("untrained", "trained")
    }


def _seeds(settings: Transfer, description: EncoderDescription, known: list[int]) -> list[int]:
    """Return the seeds, by default those of several encoders; InputError for unknown seeds and unsuitable encoders."""
    from graphcl.experiment.encoder_input import contrasts_nodes

    several = len(known) > 1
    seeds = settings.seeds or (known if several else [0, 1, 2])
    if several and (missing := [seed for seed in seeds if seed not in known]):
        among = f"{settings.encoder}, {', '.join(map(str, known))}"
        raise InputError(f"`seeds` must be among those of {among}; got {missing[0]}.")
    if contrasts_nodes(description.settings):
        what = "holds an encoder of nodes, which transfer cannot score"
        raise InputError(f"{settings.encoder} {what}; use graphcl embed.")
    if settings.mode == "finetune" and _form(description) != "dense":
        what = f"holds {description.encoder.name}, an encoder of {_form(description)} rows, which no layer can follow"
        raise InputError(f"{settings.encoder} {what}; use --mode probe.")
    return seeds


@dataclass(frozen=True)
class Job:
    """What is the same for all seeds of a transfer; `several` is whether each seed has its own encoder."""

    settings: Transfer
    config: Config
    description: EncoderDescription
    dataset: GraphDataset
    several: bool
    folder: Path
    files: TransferFiles


def _score_seed(job: Job, seed: int) -> dict[str, Scores]:
    """Score the untrained and the trained encoder of a seed, write the latter, and return row -> scores."""
    from graphcl.experiment.build import pick_device
    from graphcl.models.saved import read_encoder
    from graphcl.report.summary import unit

    trained, _ = read_encoder(job.settings.encoder, seed if job.several else None)
    found, split = {}, job.dataset
    for row, encoder in (("untrained", untrained_encoder(job.description, seed)), ("trained", trained)):
        encoder.to(pick_device(job.settings.device))
        if job.settings.mode == "probe":
            found[row] = _probe(job, encoder, seed, row)
        else:
            found[row], split = _finetune(job, encoder, seed, row)
    job.files.write(seed, split)
    for name, new in found["trained"].items():
        means = [f"{label} {found[row][name].mean:.2f}" for row, label in LABELS[job.settings.mode].items()]
        print(f"seed {seed}: {', '.join(means)} {unit(new.metric)} ({name})")
    return found


def untrained_encoder(description: EncoderDescription, seed: int) -> nn.Module:
    """Return an untrained encoder on the CPU, with the initial weights of a run with this seed."""
    from graphcl.models.saved import new_encoder
    from graphcl.training.randomness import seeded

    with seeded(seed):
        return new_encoder(description)


def _usable_config(
    config: Config, settings: Transfer, dataset: GraphDataset, description: EncoderDescription
) -> Config:
    """Return the settings of the evaluation; raise InputError for a data set that the mode cannot use."""
    from graphcl.evaluate.needs import usual
    from graphcl.experiment.finetune import check_labels
    from graphcl.experiment.parts import fold_splits
    from graphcl.experiment.scoring import with_usable_evaluation

    if settings.target and not dataset.scored:
        raise InputError(f"{dataset.name} has numbers as targets, but no parts to score them on; pass --split random.")
    if settings.mode == "finetune":
        check_labels(dataset if dataset.benchmark is not None else next(fold_splits(dataset, 0)))
        return config
    if not dataset.scored:
        raise InputError(f"{dataset.name} has no class labels to score embeddings by; use graphcl embed.")
    if settings.eval is None:
        config = config.model_copy(update={"eval": [usual("labels" if dataset.benchmark is None else "targets")]})
    if _form(description) != "dense":
        config = config.model_copy(update={"encoder": {"name": description.encoder.name}})
    return with_usable_evaluation(config, dataset)


def _form(description: EncoderDescription) -> str:
    """Return the form of the encoder's rows."""
    return encoders.fact(description.encoder.name, "form")


def _probe(job: Job, encoder: nn.Module, seed: int, row: str) -> Scores:
    from graphcl.evaluate.needs import takes
    from graphcl.experiment.record.progress import fold_bar
    from graphcl.experiment.scoring import score
    from graphcl.loaders.loader import make_loader
    from graphcl.training.loop import embed

    h, _ = embed(encoder, make_loader(job.dataset, 1024, device=next(encoder.parameters()).device))
    if row == "trained" and (job.several or not job.files.seeds):
        job.files.add_rows(seed, encoder, h)
    found = {}
    with fold_bar(seed) as show:
        for name in job.config.eval:
            report, keep = functools.partial(show, f"{name}, {row}"), functools.partial(job.files.keep, name)
            kept = {"on_predicted": keep} if row == "trained" and takes(name, "on_predicted") else {}
            found[name] = score(job.config, name, h, job.dataset, seed, None, report, **kept)
    return found


def _finetune(job: Job, encoder: nn.Module, seed: int, start: str) -> tuple[Scores, GraphDataset]:
    """Fine-tune copies of an encoder on all folds; return `{"finetune": score}` and the last split.

    The epochs are logged to `metrics.jsonl`. Of the trained encoder, the model of a split is kept; of folds, one that
    is fine-tuned on all graphs, for the median number of epochs that the folds chose.
    """
    from graphcl.evaluate import FoldScores
    from graphcl.experiment.finetune import finetune, refit, with_outputs
    from graphcl.experiment.parts import fold_splits, whole_split, with_label_rate

    settings, dataset = job.settings, job.dataset
    options = settings.model_dump(include=set(MODE_SETTINGS["finetune"]) - {"label_rate"})
    device, scores = next(encoder.parameters()).device, []
    keep: dict[str, Any] = {"on_predicted": functools.partial(job.files.keep, "finetune")} if start == "trained" else {}
    for fold, split in enumerate(fold_splits(dataset, seed) if dataset.benchmark is None else [dataset]):
        place = {"seed": seed, "start": start, "fold": fold}
        log = [lambda epoch, place=place: append_text(job.folder / "metrics.jsonl", json.dumps(place | epoch) + "\n")]
        few = with_label_rate(split, settings.label_rate, seed)
        model = with_outputs(copy.deepcopy(encoder), few, seed).to(device)
        scores.append(finetune(model, few, seed, callbacks=log, **options, **keep))
    found = FoldScores.joined(scores)
    epochs = int(found.chosen[0])
    if start == "trained" and len(scores) > 1:
        few, epochs = with_label_rate(whole_split(split), settings.label_rate, seed), int(np.median(found.chosen))
        model = with_outputs(copy.deepcopy(encoder), few, seed).to(device)
        refit(model, few, seed, **options | {"epochs": epochs})
    if start == "trained":
        assert few.benchmark is not None
        job.files.add_model(seed, model, len(few.benchmark.split["train"]), epochs)
    return {"finetune": found}, split
