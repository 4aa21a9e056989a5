"""`python -m graphcl transfer`: an encoder that was trained on one data set, of use on another.

- Probe: the encoder stays as it is; its embeddings are scored as those of a run are, beside those of the untrained
  encoder (the same architecture, weights of the seed).
- Fine-tuning, see `graphcl.experiment.finetune`: once from the trained weights and once from the untrained ones. Of
  each seed both have the same first linear layer, the same order of graphs and the same dropped entries.
- A seed takes the encoder of that seed from a file that holds several, so that `± seeds` is of the whole training, and
  the only one from a file that holds one, so that it is of what was done here.

Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), section 5; You et al.,
"Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import nn

from graphcl.arguments import Count, NonNegative, Positive, Ratio, interval, problems
from graphcl.commands.embed import load_for
from graphcl.config.command_line import command, one_value, read_value, split_options
from graphcl.config.files import parse_value
from graphcl.config.settings import Config, Words, make_config
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.resident import make_loader
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.experiment.finetune import check_labels, finetune, with_outputs
from graphcl.experiment.run_folder import free_folder, new_folder
from graphcl.experiment.seed import pick_device, score, with_usable_evaluation
from graphcl.experiment.summary import compared, environment, protocol, protocol_line, table_lines, unit
from graphcl.models.contrastive import make_encoder
from graphcl.models.saved import EncoderDescription, load_encoder, read_saved
from graphcl.system.files import write_text
from graphcl.system.memory import keep_freed_memory
from graphcl.training.loop import embed

HELP = """\
usage: python -m graphcl transfer ENCODER --dataset NAME --mode probe|finetune [--KEY VALUE] ...

Use a trained encoder on another data set: a probe of its frozen embeddings beside those of an untrained encoder, or
fine-tuning with labels beside training from scratch.

  ENCODER               encoder.pt, or the folder of the run that wrote it
  --dataset NAME        TU or OGB name, `synthetic`, a .pt file, a folder in TU layout or on disk
  --mode MODE           probe, or finetune (on a set with a split of its own, as OGB's have it)
  --seeds SEED ...      one run each; of a file of several encoders, those [all of them; of a file of one, 0 1 2]
  --out FOLDER          for the outcome, a new one [runs/NAME-MODE-N]
  --mirror PLACE        folder, file:// or http(s) URL holding NAME.zip
  --data-root FOLDER    where downloaded and processed data sets lie [datasets]
  --device NAME         auto, cpu, cuda or cuda:N [auto]
  --threads N           CPU threads of training [1]
  --help                print this, and stop

of a probe:
  --eval NAME ...       how embeddings are scored: svm, logreg, knn; by a set's own split: ogb [svm or ogb]

of fine-tuning:
  --epochs N            passes over the training part [100]
  --batch-size N        graphs in a batch [32]
  --lr X                Adam's learning rate [0.001]
  --weight-decay X      Adam's L2 penalty [0]
  --dropout X           the share of an embedding's entries that are dropped, in [0, 1) [0.5]
"""
OF_MODE = {"probe": ("eval",), "finetune": ("epochs", "batch_size", "lr", "weight_decay", "dropout")}
"""The settings that only one mode has."""
LABELS = {
    "probe": {"untrained": "untrained encoder", "trained": "trained encoder"},
    "finetune": {"untrained": "from scratch", "trained": "from trained"},
}
"""What the rows are called in the table."""
Scores = dict[str, FoldScores]  # of a seed, by evaluator


class Transfer(BaseModel):
    """All settings of a transfer; see `HELP`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    encoder: str
    dataset: str
    mode: Literal["probe", "finetune"]
    seeds: list[int] | None = None
    eval: Words | None = None
    epochs: Count = 100
    batch_size: Annotated[int, interval("[2, inf)", "BatchNorm needs several nodes")] = 32
    lr: Positive = 0.001
    weight_decay: NonNegative = 0.0
    dropout: Ratio = 0.5
    data_root: str = "datasets"
    mirror: str | None = None
    device: str = "auto"
    threads: Count = 1
    out: str | None = None

    def config(self) -> Config:
        """The settings that a run has, too."""
        shared = self.model_dump(include={"dataset", "seeds", "eval", "device"}, exclude_none=True)
        return make_config(shared)


@command("the folder, if one was made, keeps what had finished")
def main(words: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    if not words or "--help" in words or "-h" in words:
        print(HELP, end="")
        return 0 if words else 2
    settings = parse(words)
    keep_freed_memory()
    transfer(settings)
    return 0


def parse(words: Sequence[str]) -> Transfer:
    """The transfer that a command line describes.

    Raises:
        InputError: with one line for each mistake.
    """
    if words[0].startswith("--"):
        raise InputError("the first word must be the encoder: a run's folder or its encoder.pt; see --help.")
    known = [name for name in Transfer.model_fields if name != "encoder"]
    values: dict[str, Any] = {"encoder": words[0]}
    for key, given in split_options(words[1:], known):
        own = key in ("mode", "dropout")  # which a run does not have
        values[key] = parse_value(one_value(key, given)) if own else read_value(key, given)
    for key in ("dataset", "mode"):
        if key not in values:
            raise InputError(f"`--{key}` is missing; see --help.")
    try:
        settings = Transfer.model_validate(values)
    except ValidationError as error:
        raise InputError("\n".join(problems(error, lambda _: known))) from None
    for mode, names in OF_MODE.items():
        if mode != settings.mode and (idle := [f"--{name.replace('_', '-')}" for name in names if name in values]):
            raise InputError(f"{', '.join(idle)}: for --mode {mode} only.")
    settings.config()
    return settings


def transfer(settings: Transfer) -> dict[str, Any]:
    """Everything that the settings ask for; returns what `result.json` holds."""
    began = time.perf_counter()
    name = f"{Path(settings.dataset).stem}-{settings.mode}"
    free_folder(settings.out, name)
    device = pick_device(settings.device)
    torch.set_num_threads(settings.threads)
    description, weights = read_saved(settings.encoder)
    seeds = _seeds(settings, list(weights))
    load_encoder(settings.encoder)  # refused, if at all, before the graphs are loaded
    dataset = load_for(description, settings.dataset, settings.data_root, settings.mirror)
    config = _checked(settings, dataset)
    folder = new_folder(settings.out, name)
    kept = settings.model_dump(exclude=set().union(*OF_MODE.values()) - set(OF_MODE[settings.mode]))
    kept |= {"seeds": seeds, **({"eval": config.eval} if settings.mode == "probe" else {})}
    write_text(folder / "config.yaml", yaml.safe_dump(kept, sort_keys=False))
    told = f"{description.encoder.name}, trained on {description.dataset}; device: {device}"
    print(f"{dataset}, features: {dataset.features}; {told}; {folder}/")

    before: list[Scores] = []
    after: list[Scores] = []
    for seed in seeds:
        trained, _ = load_encoder(settings.encoder, seed if len(weights) > 1 else None)
        for scores, start, encoder in (
            (before, "untrained", fresh_encoder(description, seed)),
            (after, "trained", trained),
        ):
            encoder = encoder.to(device)
            if settings.mode == "probe":
                scores.append(_probe(config, encoder, dataset, seed))
            else:
                scores.append(_finetune(settings, encoder, dataset, seed, start, folder))
        _print_seed(settings.mode, seed, before[-1], after[-1])
        result = {
            "scores": {
                name: compared({"untrained": [old[name] for old in before], "trained": [new[name] for new in after]})
                for name in after[0]
            },
            **protocol(config.evaluation.folds, config.evaluation.inner_folds, dataset.benchmark),
            "seconds": time.perf_counter() - began,
            **environment(device),
            "config": kept,
            "encoder": {**description.model_dump(), "seeds": list(weights)},
        }
        # After each seed, so that no score is lost with a later one.
        write_text(folder / "result.json", json.dumps(result, indent=2))

    print("\n".join(table_lines(result, LABELS[settings.mode])))
    chooses = "C" if settings.mode == "probe" else "epoch"
    encoders = "an encoder each" if len(weights) > 1 else "of one encoder"
    many = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    print(f"{protocol_line(result, chooses)}; mean over {many}, {encoders}.")
    print(f"kept in {folder}/; {result['seconds']:.1f} s")
    return result


def fresh_encoder(description: EncoderDescription, seed: int) -> nn.Module:
    """An untrained encoder of the described architecture, the one a run of this seed starts from; on the CPU.

    torch's global generator is left as it was.
    """
    name = description.encoder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_encoder(name.name, name.arguments or {}, description.in_channels, description.edge_dim)


def _seeds(settings: Transfer, held: list[int]) -> list[int]:
    """The seeds to be run, of a file that holds the encoders of these."""
    seeds = settings.seeds or (held if len(held) > 1 else [0, 1, 2])
    if len(held) > 1 and (lacking := [seed for seed in seeds if seed not in held]):
        there = ", ".join(map(str, held))
        raise InputError(
            f"`seeds` must be of those whose encoders {settings.encoder} holds, {there}; got {lacking[0]}."
        )
    return seeds


def _checked(settings: Transfer, dataset: GraphDataset) -> Config:
    """The settings of the evaluation, of a data set that can be scored in this mode."""
    if settings.mode == "finetune":
        check_labels(dataset)
        return settings.config()
    if not dataset.scored:
        raise InputError(f"{dataset.name} has no class labels by which embeddings could be scored; take graphcl embed.")
    config = settings.config()
    if settings.eval is None:
        config = config.model_copy(update={"eval": ["svm"] if dataset.benchmark is None else ["ogb"]})
    return with_usable_evaluation(config, dataset)


def _probe(config: Config, encoder: nn.Module, dataset: GraphDataset, seed: int) -> Scores:
    """The scores of an encoder's embeddings, by evaluator."""
    device = next(encoder.parameters()).device
    h, y = embed(encoder, make_loader(dataset, 1024, device=device))
    assert y is not None  # as the data set is scored
    return {name: score(config, name, h, y, seed, benchmark=dataset.benchmark) for name in config.eval}


def _finetune(
    settings: Transfer, encoder: nn.Module, dataset: GraphDataset, seed: int, start: str, folder: Path
) -> Scores:
    """`finetune` from an encoder, an epoch a line in `metrics.jsonl`."""
    model = with_outputs(encoder, dataset, seed).to(next(encoder.parameters()).device)
    with (folder / "metrics.jsonl").open("a", buffering=1) as file:
        found = finetune(
            model,
            dataset,
            seed,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            dropout=settings.dropout,
            callbacks=[lambda epoch: print(json.dumps({"seed": seed, "start": start, **epoch}), file=file)],
        )
    return {"finetune": found}


def _print_seed(mode: str, seed: int, before: Scores, after: Scores) -> None:
    untrained, trained = LABELS[mode].values()
    for name, new in after.items():
        old = before[name]
        told = f"{untrained} {old.mean:.2f}, {trained} {new.mean:.2f} {unit(new.metric)}"
        at = f", epochs {old.chosen[0]} and {new.chosen[0]}" if name == "finetune" else f" ({name})"
        print(f"seed {seed}: {told}{at}")


if __name__ == "__main__":
    sys.exit(main())
