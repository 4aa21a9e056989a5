"""Parse the arguments of all commands and print their help texts, without importing torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from graphcl.arguments import Count, NonNegative, Positive, Ratio, Seed, Settings, interval
from graphcl.cli.command_line import Command
from graphcl.cli.run_command import RUN, similar
from graphcl.config.recipes import shipped_sweeps
from graphcl.config.resolve import make_config
from graphcl.config.settings import (
    Config,
    DatasetName,
    Evaluators,
    Hardware,
    Place,
    Seeds,
)
from graphcl.config.specs import as_spec
from graphcl.datasets.settings import Features, SplitTable, Table
from graphcl.registry import augmentations

Force = Annotated[bool, Field(description="replace the file if it exists")]
EncoderFile = Annotated[
    str, Field(description="encoder.pt, the run folder that holds it, or molecules, the installed encoder")
]
EncoderSeed = Annotated[
    Seed | None, Field(description="seed of the encoder, if the file holds several; default: the first")
]


class Embed(Hardware, Place, Table):
    """The settings of `graphcl embed`."""

    encoder: EncoderFile
    dataset: DatasetName
    out: str = Field(
        title="FILE",
        description="new file: .npz with h [n, H], id [n] and y if the graphs have labels; or .parquet with the "
        'columns id, y, h0, h1, ... (pip install "graphcl[parquet]")',
    )
    force: Force = False
    seed: EncoderSeed = None
    batch_size: Count = Field(1024, description="graphs embedded at a time")


EMBED = Command(
    "graphcl embed ENCODER --dataset NAME --out FILE [--KEY VALUE ...]",
    "Embed graphs with a trained encoder. Labels are not needed; node features are built as in its training.\n"
    "The id of a graph is its own `id`, a number or a string, if every graph has one; else its index in the data set.",
    Embed,
    positional="encoder",
)


class Transfer(Hardware, Place, SplitTable):
    """The settings of `graphcl transfer`."""

    encoder: EncoderFile
    dataset: DatasetName
    mode: Literal["probe", "finetune"] = Field(
        description="probe the frozen embeddings, or finetune the encoder with labels"
    )
    seeds: Annotated[Seeds | None, Field(title="N ...", description="seeds; default: the file's, or 0 1 2")] = None
    eval: Annotated[
        Evaluators | None,
        Field(title="NAME ...", description="probe: svm, logreg, knn, or ogb for a split; default: svm or ogb"),
    ] = None
    epochs: Count = Field(100, description="fine-tuning: passes over the training part")
    batch_size: Annotated[int, interval("[2, 1e9)", "BatchNorm needs several nodes")] = Field(
        32, description="fine-tuning: graphs in a batch"
    )
    lr: Positive = Field(0.001, description="fine-tuning: Adam's learning rate")
    weight_decay: NonNegative = Field(0.0, description="fine-tuning: Adam's L2 penalty")
    dropout: Ratio = Field(0.5, description="fine-tuning: dropout ratio of the embedding, in [0, 1)")
    label_rate: Annotated[float, interval("(0, 1]")] = Field(
        1.0, description="fine-tuning: fraction of the training part's labels to use"
    )
    out: str | None = Field(None, title="FOLDER", description="new folder; default: runs/NAME-MODE-N")

    def config(self) -> Config:
        """Return a run's `Config` with this transfer's data set, seeds, evaluators and device."""
        return make_config(self.model_dump(include={"dataset", "seeds", "eval", "device"}, exclude_none=True))


TRANSFER = Command(
    "graphcl transfer ENCODER --dataset NAME --mode probe|finetune [--KEY VALUE ...]",
    "Use a trained encoder on another data set: probe its frozen embeddings and those of an untrained encoder, or\n"
    "fine-tune it with labels and train the same architecture from scratch.",
    Transfer,
    positional="encoder",
)


class Export(Settings):
    """The settings of `graphcl export`."""

    encoder: EncoderFile
    format: Literal["onnx", "pt2"] = Field(
        "onnx", description='onnx (pip install "graphcl[onnx]"), or pt2 for torch.export.load'
    )
    out: str | None = Field(
        None,
        title="FILE",
        description="new file; default: encoder.onnx or encoder.pt2, next to encoder.pt; for molecules, here",
    )
    seed: EncoderSeed = None


EXPORT = Command(
    "graphcl export ENCODER [--format onnx|pt2] [--out FILE]",
    "Write a trained encoder for ONNX Runtime or for torch.export.load. The file maps node features, edges and the\n"
    "graph of each node to embeddings, for any number of graphs; build node features as in its training.",
    Export,
    positional="encoder",
)


class Show(Features, Place):
    """The settings of `graphcl show`."""

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
    "Draw graphs of a data set under each augmentation, or redraw the report of a run.",
    Show,
    positional="run",
    details=lambda: (
        f"augmentations: {', '.join(augmentations)};\n"
        "composed ones take members, as in '{name: compose, members: [node_drop, attribute_mask]}'"
    ),
)


class Pack(Features, Place, Table):
    """The settings of `graphcl pack`."""

    dataset: DatasetName
    out: str = Field(title="FOLDER", description="new folder")
    categories: bool = Field(False, description="keep whole numbers in `x` as categories, as molecule_gine takes them")


PACK = Command(
    "graphcl pack --dataset NAME --out FOLDER [--KEY VALUE ...]",
    "Write a data set into a folder, which `graphcl run --dataset ./FOLDER` memory-maps.",
    Pack,
)


class SweepSettings(Settings):
    """The settings of `graphcl sweep` itself; settings of its cells are in `Config`."""

    file: str | None = Field(None, description="sweep in YAML: settings, axes, table; or the name of a shipped sweep")
    out: str | None = Field(None, title="FOLDER", description="new folder, or that of a sweep to resume; for a FILE "
                            "the default is sweeps/FILE")  # fmt: skip
    workers: Count | None = Field(
        None, description="processes; default: as many as cores and memory allow, or one for each GPU"
    )
    executor: str = Field(
        "loky", title="NAME", description="loky: processes of this machine; dask:ADDRESS: the workers of a Dask "
        'scheduler (pip install "graphcl[cluster]"); MODULE:FUNCTION: a function from the number of workers to a '
        "concurrent.futures.Executor"
    )  # fmt: skip
    recipe: list[str] = Field([], title="NAME ...", description="axis of configurations, shipped or files")
    columns: str | None = Field(None, title="AXIS", description="axis of the table's columns; default: dataset")
    rows: list[str] = Field([], title="AXIS ...", description="axes of the table's rows; default: all others")
    baseline: str | None = Field(
        None, title="LABEL", description="row to compare the others with; AXIS=LABEL if there are several axes"
    )
    dry_run: bool = Field(False, description="print the number of cells and exit")


SWEEP = Command(
    "graphcl sweep [FILE] [--KEY VALUE [VALUE ...]] ... --out FOLDER",
    "Run every combination of the given settings for every seed, in parallel, and make a table of the scores.\n"
    "Finished cells are never run again: the same command, or `--out FOLDER` alone, resumes a sweep.\n\n"
    "  --KEY VALUE             setting of `graphcl run` for all cells\n"
    "  --KEY VALUE VALUE ...   axis: a cell for each value of that setting\n"
    "  --seeds N ...           a cell for each seed [0 1 2 3 4]",
    SweepSettings,
    positional="file",
    similar=similar,
    details=lambda: (
        "FOLDER holds table.md, table.tex, cells.csv, figures, sweep.yaml (the sweep itself), and\n"
        "cells/KEY.json: `graphcl run --config FOLDER/cells/KEY.json` repeats a cell. Paths in a sweep are relative\n"
        "to the folder in which it was started.\n\n"
        f"shipped sweeps: {', '.join(sorted(shipped_sweeps()))}"
    ),
)


class Completion(Settings):
    """The settings of `graphcl completion`."""

    shell: Literal["bash", "zsh", "tcsh"] = Field(description="bash, zsh or tcsh")


COMPLETION = Command(
    "graphcl completion bash|zsh|tcsh",
    "Print a script for tab completion; it needs shtab: pip install 'graphcl[completion]'. For bash:\n"
    "  graphcl completion bash > ~/.local/share/bash-completion/completions/graphcl",
    Completion,
    positional="shell",
)


PARSERS: dict[str, Command[Any]] = {
    "run": RUN, "sweep": SWEEP, "embed": EMBED, "transfer": TRANSFER, "show": SHOW, "export": EXPORT, "pack": PACK,
    "completion": COMPLETION,
}  # fmt: skip
"""Command -> parser of its arguments."""
