"""Parse the arguments of all commands and print their help texts, without importing torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from graphcl.arguments import Count, NonNegative, Positive, Ratio, Seed, Settings, interval
from graphcl.cli.command_line import Command, Options, one_value
from graphcl.cli.help import similar_options, topic
from graphcl.config.recipes import shipped_sweeps
from graphcl.config.resolve import make_config
from graphcl.config.settings import Config, DatasetName, Evaluators, Hardware, Imports, Place, Seeds
from graphcl.config.specs import as_spec
from graphcl.datasets.settings import Features, SplitTable, Table
from graphcl.errors import InputError
from graphcl.registry import augmentations

COMMON = (
    "dataset", "mirror", "features", "encoder", "loss", "method", "views", "epochs", "batch_size", "lr", "seeds",
    "eval", "device", "threads", "report", "out", "resume",
)  # fmt: skip
"""Settings that the short help lists."""


def _resume(options: Options) -> Options:
    """Replace `--resume FOLDER` with `--out FOLDER --resume`, and return the options.

    Without `--config`, also add `--config FOLDER/config.yaml` if this file exists.

    Raises:
        InputError: `--out` names another folder, or the folder does not exist and no settings of a new run are given.
    """
    given = {key: values for key, values in options if key in ("config", "dataset", "out", "resume")}
    if "resume" not in given:
        return options
    folders = list(dict.fromkeys([*given["resume"], *given.get("out", [])]))
    if len(folders) > 1:
        raise InputError(f"`--resume` and `--out` name different folders, {' and '.join(folders)}; give one.")
    folder = one_value("resume", folders)
    kept = Path(folder) / "config.yaml"
    if not Path(folder).exists() and not {"config", "dataset"} & set(given):
        raise InputError(f"folder {folder} not found; check the path, or give `--dataset` to start a run there.")
    base = [("config", [str(kept)])] if "config" not in given and kept.is_file() else []
    rest = [option for option in options if option[0] not in ("out", "resume")]
    return [*base, *rest, ("out", [folder]), ("resume", [])]


RUN = Command(
    "graphcl run [--dataset NAME] [--loss NAME] [--KEY VALUE ...]",
    Config,
    "Train a graph encoder by contrastive learning, embed the data set, and score the embedding.",
    validate=make_config,
    rewrite=_resume,
    details=lambda: (
        "Arguments of a loss, a method, a view or the encoder are options with dots:\n"
        "  graphcl run --dataset MUTAG --loss adnce --loss.mu 0.5 --views.second node_drop --views.second.ratio 0.1\n"
        "--help all lists every option; --help losses, methods, augmentations, encoders, evaluators, datasets or\n"
        "configurations lists names; --help adnce explains one."
    ),
    common=COMMON,
    topic=topic,
    similar=similar_options,
)

Force = Annotated[bool, Field(description="replace the file if it exists")]
EncoderFile = Annotated[str, Field(description="encoder.pt, its run folder, or molecules, the installed encoder")]
EncoderSeed = Annotated[Seed | None, Field(description="seed, if the file holds several encoders; default: the first")]


class Embed(Hardware, Place, Table, Imports):
    """Embed graphs with a trained encoder. Labels are not needed; node features are built as in its training.
    The id of a graph is its own `id`, a number or a string, if every graph has one; else its index in the data set.
    """

    encoder: EncoderFile
    dataset: DatasetName
    out: Annotated[str, Field(title="FILE")]
    """new file: .npz with h [n, H], id [n] and y if the graphs have labels; or .csv, or .parquet, with the columns id,
    y, h0, h1, ... (pip install "graphcl[parquet]")"""
    force: Force = False
    seed: EncoderSeed = None
    batch_size: Count = Field(1024, description="graphs embedded at a time")


EMBED = Command("graphcl embed ENCODER --dataset NAME --out FILE [--KEY VALUE ...]", Embed, positional="encoder")


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
    out: str | None = Field(None, title="FOLDER", description="new folder; default: runs/NAME-MODE-N")

    def config(self) -> Config:
        """Return a run's `Config` with this transfer's data set, seeds, evaluators and device."""
        return make_config(self.model_dump(include={"dataset", "seeds", "eval", "device"}, exclude_none=True))


TRANSFER = Command(
    "graphcl transfer ENCODER --dataset NAME --mode probe|finetune [--KEY VALUE ...]", Transfer, positional="encoder"
)


class Export(Imports):
    """Write a trained encoder for ONNX Runtime or for torch.export.load. The file maps node features, edges and the
    graph of each node to embeddings, for any number of graphs; build node features as in its training.
    """

    encoder: EncoderFile
    format: Literal["onnx", "pt2"] = "onnx"
    """onnx (pip install "graphcl[onnx]"), or pt2 for torch.export.load"""
    out: Annotated[str | None, Field(title="FILE")] = None
    """new file; default: encoder.onnx or encoder.pt2, next to encoder.pt; for molecules, here"""
    seed: EncoderSeed = None


EXPORT = Command("graphcl export ENCODER [--format onnx|pt2] [--out FILE]", Export, positional="encoder")


class Show(Features, Place, Imports):
    """Draw graphs of a data set under each augmentation, or redraw the report of a run."""

    run: str | None = Field(None, title="FOLDER", description="run folder whose report.html is redrawn")
    dataset: Annotated[DatasetName | None, Field(title="NAME", description="data set whose graphs are drawn")] = None
    graph: list[int] = Field([0], description="numbers of the graphs, from 0")
    augmentations: list[Annotated[Any, BeforeValidator(as_spec)]] = Field(
        ["node_drop", "subgraph", "edge_perturb", "attribute_mask"], title="NAME ...", description="augmentations"
    )
    ratio: Ratio = Field(0.2, description="ratio of every augmentation that takes a ratio and sets none")
    seed: Seed = Field(0, description="seed of the random draws")
    out: str | None = Field(None, title="FILE", description="new .svg or .png; default: DATASET-augmentations.svg")
    force: Force = False


SHOW = Command(
    "graphcl show FOLDER, or graphcl show --dataset NAME [--KEY VALUE ...]",
    Show,
    positional="run",
    details=lambda: (
        f"augmentations: {', '.join(augmentations)};\n"
        "composed ones take members, as in '{name: compose, members: [node_drop, attribute_mask]}'"
    ),
)


class Pack(Features, Place, Table):
    """Write a data set into a folder, which `graphcl run --dataset ./FOLDER` memory-maps."""

    dataset: DatasetName
    out: str = Field(title="FOLDER", description="new folder")
    categories: bool = Field(False, description="keep whole numbers in `x` as categories, as molecule_gine takes them")


PACK = Command("graphcl pack --dataset NAME --out FOLDER [--KEY VALUE ...]", Pack)


class SweepSettings(Settings):
    """Run every combination of the given settings for every seed, in parallel, and make a table of the scores.
    Finished cells are never run again: the same command, or `--out FOLDER` alone, resumes a sweep.

      --KEY VALUE             setting of `graphcl run` for all cells
      --KEY VALUE VALUE ...   axis: a cell for each value of that setting
      --seeds N ...           a cell for each seed [0 1 2 3 4]
    """

    file: str | None = Field(None, description="sweep in YAML: settings, axes, table; or the name of a shipped sweep")
    out: Annotated[str | None, Field(title="FOLDER")] = None
    """new folder, or that of a sweep to resume; for a FILE the default is sweeps/FILE"""
    workers: Count | None = None
    """processes; default: as many as cores and memory allow, or one for each GPU"""
    executor: Annotated[str, Field(title="NAME")] = "loky"
    """loky: processes of this machine; dask:ADDRESS: the workers of a Dask scheduler (pip install "graphcl[cluster]");
    MODULE:FUNCTION: a function from the number of workers to a concurrent.futures.Executor"""
    recipe: list[str] = Field([], title="NAME ...", description="axis of configurations, shipped or files")
    columns: str | None = Field(None, title="AXIS", description="axis of the table's columns; default: dataset")
    rows: list[str] = Field([], title="AXIS ...", description="axes of the table's rows; default: all others")
    baseline: Annotated[str | None, Field(title="LABEL")] = None
    """row to compare the others with; AXIS=LABEL if there are several axes"""
    select: list[str] = Field([], title="AXIS ...")
    """axes such as loss.temperature; the inner folds of each test fold select a value, so there is one tuned row"""
    jointly: bool = Field(False, description="with --select: one value for all data sets, not one for each")
    reuse: list[str] = Field([], title="FOLDER ...")
    """other sweeps; cells that they have finished are not run again, so one table can show several sweeps"""
    dry_run: bool = Field(False, description="print the number of cells and exit")


SWEEP = Command(
    "graphcl sweep [FILE] [--KEY VALUE [VALUE ...]] ... --out FOLDER",
    SweepSettings,
    positional="file",
    similar=similar_options,
    details=lambda: (
        "FOLDER holds table.md, table.tex, cells.csv, figures, sweep.yaml (the sweep itself), and\n"
        "cells/KEY.json: `graphcl run --config FOLDER/cells/KEY.json` repeats a cell. Paths in a sweep are relative\n"
        "to the folder in which it was started.\n\n"
        f"shipped sweeps: {', '.join(sorted(shipped_sweeps()))}"
    ),
)


class Completion(Settings):
    """Print a script for tab completion; it needs shtab: pip install 'graphcl[completion]'.
    For bash:
      graphcl completion bash > ~/.local/share/bash-completion/completions/graphcl
    """

    shell: Literal["bash", "zsh", "tcsh"] = Field(description="bash, zsh or tcsh")


COMPLETION = Command("graphcl completion bash|zsh|tcsh", Completion, positional="shell")
PARSERS: dict[str, Command[Any]] = {
    "run": RUN, "sweep": SWEEP, "embed": EMBED, "transfer": TRANSFER, "show": SHOW, "export": EXPORT, "pack": PACK,
    "completion": COMPLETION,
}  # fmt: skip
"""Command -> parser of its arguments."""
