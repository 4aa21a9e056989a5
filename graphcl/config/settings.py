"""Define the settings of a run: names, types, ranges, defaults and help texts.

Each setting is a field of one class below, or of `TrainingSettings`. The docstring of a field is its help text, and its
title the placeholder for the value. Commands inherit the groups that they share with a run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model
from pydantic_core import PydanticCustomError

from graphcl.arguments import (
    Channels,
    Count,
    FoldCount,
    Needs,
    ProjectorName,
    Seed,
    Settings,
    interval,
    must_be,
    without_ranges,
)
from graphcl.datasets.settings import Features, Names, SplitTable, split_names
from graphcl.errors import InputError
from graphcl.registry import import_files, load_points
from graphcl.training.settings import IN_TIME, CheckpointRule, TrainingSettings


def _different(values: list[Any]) -> bool:
    return 0 < len(values) == len(set(values))


def as_spec(value: Any) -> Any:
    """Return `{name: value}` if `value` is a bare name, else `value` unchanged."""
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[dict[str, Any], BeforeValidator(as_spec)]
"""A registered name with its arguments, as in `{name: adnce, mu: 0.7}`; a bare name has the default arguments."""
_DATASET = "name of a data set, or the path of a file or a folder; --help datasets lists names and kinds of files"
DatasetName = Annotated[str, Field(title="NAME", description=_DATASET)]
Evaluators = Annotated[
    Names,
    BeforeValidator(lambda value: [] if value in ("none", ["none"]) else value),
    must_be("none, or one or more different evaluators", lambda names: not names or _different([*names, "none"])),
    Field(title="NAME ..."),
]
Force = Annotated[bool, Field(description="replace the file if it exists")]
EncoderFile = Annotated[str, Field(description="encoder.pt, its run folder, or the name of an installed encoder")]
EncoderSeed = Annotated[Seed | None, Field(description="seed, if the file holds several encoders; default: the first")]
Seeds = Annotated[list[Seed], BeforeValidator(without_ranges), must_be("one or more different numbers", _different)]


def as_list(value: Any) -> Any:
    """Return `[value]` for a string or a number, else `value` unchanged."""
    return [value] if isinstance(value, str | int | float) else value


def _import(files: list[str]) -> list[str]:
    try:
        import_files(files)
    except InputError as error:
        raise PydanticCustomError("import", "{text}", {"text": str(error).rstrip(".")}) from error
    return [str(Path(file).expanduser().resolve()) for file in files]  # a run may be resumed from another folder


PAIRS = Needs("pairs", "needs pairs; pass --positives group or a table of pairs")
LISTED = Needs("listed", "{value} needs queries and targets; pass a table of their ids as `positives`")
TARGETS = Needs("listed", "needs the pairs of queries and targets; pass a table of their ids as `positives`")
DRAWN = Needs("drawn", "has no effect on listed pairs, `batch_by`, `hard_negatives` and supcon; leave it out")
_NO_BATCHNORM = "has no effect, as the model has no BatchNorm"
RANKS = Needs("ranks", "{value} has no effect on one process; start several by torchrun")
_SPARSE = "{value} does not fit encoder {encoder}, whose rows are {form}; leave it out"
DENSE = Needs("dense rows", _SPARSE)
_DEVICE = must_be("auto, cpu, cuda or cuda:N", re.compile(r"auto|cpu|cuda(:\d{1,3})?").fullmatch)
_NAME = must_be("a name of letters, digits, `.`, `_` and `-`", re.compile(r"[\w.-]+").fullmatch)


class Place(Settings):
    """Folder and mirror of the data sets."""

    data_root: Annotated[str, Field(title="FOLDER")] = "datasets"
    """folder of downloaded and processed data sets"""
    mirror: Annotated[str | None, Field(title="PLACE")] = None
    """folder, file:// or http(s) URL that holds NAME.zip"""


class Hardware(Settings):
    """Device and threads of a command."""

    device: Annotated[str, _DEVICE, Field(title="NAME")] = "auto"
    """auto, cpu, cuda or cuda:N; auto: CUDA if available"""
    threads: Annotated[int, interval("[1, 1024]")] = 1
    """CPU threads of training; 1 is robust on a shared machine"""


class Views(Settings):
    """The augmentations for the first and the second view."""

    first: Named = {"name": "random4"}
    """augmentation of the first view"""
    second: Named = {"name": "random4"}
    """augmentation of the second view"""


class Contrast(Settings):
    """Encoder, method, loss, views and batches of a run."""

    views: Views = Views()
    """the augmentations `first` and `second`"""
    encoder: Annotated[
        Named,
        Field(title="NAME"),
        Needs("dense rows or pairs", "{encoder} needs pairs of graphs; pass --positives group or a table of pairs"),
    ] = {"name": "auto"}
    """the encoder; auto: the usual one of the data set, else gin"""
    init: Annotated[str | None, Field(title="ENCODER")] = None
    """initial weights: the folder of a run, an encoder.pt or the name of an installed encoder; of separate towers those
    of both, or if it holds one encoder, of the queries'"""
    standardise_columns: bool = False
    """subtract the mean of each column of numbers in x and edge_attr, and divide by its deviation"""
    projection: Annotated[Channels | None, DENSE] = None
    """width of the projection; default: the encoder's"""
    projector: Annotated[ProjectorName, Field(title="NAME"), Needs("dense rows", _SPARSE, free=("none",))] = "mlp"
    """the projector: mlp, elu (GRACE's), linear (one layer), residual (InfoGraph's) or none"""
    keep_projector: Annotated[
        bool,
        Needs("anchors are graphs", "projects whole graphs, but method {method} contrasts nodes; leave it out"),
        Needs("projector", "has no effect, as `projector` is none; leave it out"),
        Needs("one encoder", "has no effect with separate towers, whose embeddings are always projections"),
        DENSE,
    ] = False
    """the embeddings are the projections, which the loss compares; always so with separate towers"""
    loss: Annotated[
        Named,
        Field(title="NAME"),
        Needs(
            "no labels of test folds",
            "{loss} trains on the labels of all graphs, also of the test folds, so its score would be invalid; "
            "use method two_views with pairs as `positives`, or Python, on training graphs only",
        ),
        Needs(
            "dense rows or weights",
            "{loss} compares columns, which differ from batch to batch with encoder {encoder}; use infonce",
        ),
    ] = {"name": "auto"}
    """the loss; auto: the method's usual loss, else infonce"""
    method: Annotated[
        Named,
        Field(title="NAME"),
        Needs(
            "dense rows or two_views", "{method} does not fit encoder {encoder}, whose rows are {form}; use two_views"
        ),
    ] = {"name": "auto"}
    """how views are contrasted; auto: the loss's usual method"""
    positives: Annotated[
        str,
        Field(title="views|group|FILE"),
        Needs("graphs", "{value} pairs whole graphs, but method {method} contrasts {rows}; use two_views"),
        Needs(
            "two encoded views",
            "{value} has no effect with method {method}, which encodes one view only; use two_views",
        ),
    ] = "views"
    """positive of a graph: its other view, another graph of its `group`, or its target in a table of pairs"""
    towers: Annotated[Literal["shared", "separate"], Field(title="KIND"), LISTED, DENSE] = "shared"
    """of pairs: one encoder for queries and targets, or one each, whose embeddings are their projections"""
    target_encoder: Annotated[
        Named,
        Field(title="NAME"),
        Needs("target encoder", "has no effect without separate towers; pass --towers separate and a table of pairs"),
    ] = {"name": "auto"}
    """with separate towers: the encoder of the targets; auto: perceptron for vectors, else as `encoder`"""
    pair_share: Annotated[float, interval("(0, 1]"), PAIRS] = 1.0
    """of pairs: fraction of the training groups or connected pairs to train on; larger ones contain smaller ones"""
    batch_by: Annotated[str | None, Field(title="ATTRIBUTE"), PAIRS] = None
    """of pairs: draw batches from graphs with the same value of this attribute, such as project"""
    batch_share: Annotated[float, interval("(0, 1]"), Needs("batch_by")] = 1.0
    """with `batch_by`: fraction of a batch that has the same value"""
    hard_negatives: Annotated[
        int,
        interval("[0, 1000]"),
        PAIRS,
        Needs("two_views", "are keys of the loss, which method {method} replaces by its own; use two_views"),
        Needs("mined", "{value} has no effect, as training ends before `mine_every` {mine_every}; train longer"),
    ] = 0
    """of pairs: negatives to mine for each query, see mine_every"""
    mine_every: Annotated[Count, Needs("hard_negatives")] = 1
    """with `hard_negatives`: mine them again after every N epochs"""
    mine_margin: Annotated[float, interval("[0, 1]"), Needs("hard_negatives")] = 0.05
    """with `hard_negatives`: least relative distance of a negative's cosine to the positive's"""
    singles: Annotated[
        Literal["drop", "views"],
        Field(title="ACTION"),
        Needs("pairs", "{value} has no effect without groups; pass --positives group"),
        DRAWN,
        Needs(
            "different views",
            "{value} would pair equal graphs, as `views` are identity; pass --views.first random4, or drop",
        ),
    ] = "drop"
    """graphs whose group has no other graph: leave them out, or pair each with itself, as two views"""
    batch_size: Annotated[
        int,
        interval("[2, 1e9)", "a contrastive loss compares at least two graphs"),
        Needs("batches", "{value} has no effect on {dataset}, which is one batch"),
    ] = 128
    """graphs in a batch, at least two; with `positives` group, pairs; of one graph, nodes"""
    shuffle_window: Annotated[
        Annotated[int, interval("[16, 1e12)")] | None,
        DRAWN,
        Needs("graphs", "{value} has no effect with method {method}, which contrasts {rows}; leave it out"),
    ] = None
    """graphs shuffled together, for data sets larger than the memory; default: all"""
    precise_bn: Annotated[bool, Needs("BatchNorm of the model", _NO_BATCHNORM)] = False
    """recompute BatchNorm statistics over all graphs after training, before embedding"""
    sync_batchnorm: Annotated[
        bool,
        RANKS,
        Needs("BatchNorm", _NO_BATCHNORM),
        Needs("moving BatchNorm", "has no effect with `frozen_bn`; leave it out"),
    ] = False
    """with several ranks: BatchNorm statistics over the graphs of all ranks"""


_UNSCORED, _EVAL = "{value} has no effect without", "got `eval` {eval}"


class Evaluation(Settings):
    """Settings of the evaluation protocol, see `graphcl.evaluate.svm`.

    Only the SVM uses `scale`. With `within`, retrieval searches among graphs with the query's value of this attribute.
    Without labels, a random `sample` of the graphs is scored.
    """

    folds: Annotated[FoldCount, Needs("folds", f"{_UNSCORED} an evaluator on folds, {_EVAL}")] = 10
    inner_folds: Annotated[FoldCount, Needs("inner_folds", f"{_UNSCORED} an evaluator on folds, {_EVAL}")] = 5
    scale: Annotated[bool, Needs("scale", f"has no effect without svm, {_EVAL}")] = False
    within: Annotated[
        str | None, Field(title="ATTRIBUTE"), Needs("place", f"{_UNSCORED} retrieval by groups or pairs, {_EVAL}")
    ] = None
    sample: Annotated[int, interval("[2, inf)"), Needs("sample", f"{_UNSCORED} scores by copies alone, {_EVAL}")] = (
        10_000
    )


class Scoring(Settings):
    """Seeds, evaluators and folds of a run."""

    seeds: Seeds = [0, 1, 2, 3, 4]
    """seeds, as 0 1 2 or 0-4; one training each; without labels, default 0"""
    eval: Evaluators = ["svm"]
    """evaluators, one or more, see --help evaluators; or none"""
    evaluation: Evaluation = Evaluation()
    """numbers of folds, and whether the SVM scales columns"""
    score_every: Annotated[
        Count | None,
        Needs("evaluators", "{value} has no effect, as `eval` is none; leave it out"),
        Needs("in time", IN_TIME),
    ] = None
    """also score every N epochs; these scores select nothing"""

    best_epoch: Annotated[
        bool,
        PAIRS,
        Needs("searched", "needs a search to score, got `eval` {eval}; pass --eval retrieval"),
    ] = False
    """of pairs: keep the epoch whose search on the validation part is best, which `patience` then watches"""


class Imports(Settings):
    """Files with code of the user."""

    imports: Annotated[list[str], BeforeValidator(as_list), AfterValidator(_import), Field(title="FILE ...")] = []
    """Python files that register losses, encoders, evaluators, rows and the like; their code is run"""


class Runtime(Place, Hardware, Imports):
    """Settings that do not affect the result of a run, such as paths and devices; they may change on resume."""

    deterministic: bool = False
    """bit-identical results on CUDA too (slower), or an error for an operation that cannot"""
    rank_timeout: Annotated[float, interval("(0, 1e6]"), RANKS] = 300.0
    """seconds after which a silent rank ends the whole job"""
    checkpoint: CheckpointRule = CheckpointRule()
    """interval between checkpoints in epochs or minutes, see --resume"""
    report: Annotated[bool, Field(title="true|false")] = True
    """draw report.html into the run folder"""
    track: Annotated[list[Literal["tensorboard", "wandb"]], BeforeValidator(split_names), Field(title="NAME ...")] = []
    """logs besides the run folder's: tensorboard, wandb"""
    name: Annotated[str, _NAME] | None = None
    """name in the folder and the title; default: the shipped configuration's, else the loss's"""
    out: Annotated[str | None, Field(title="FOLDER")] = None
    """new run folder; default: runs/DATASET-NAME-N"""
    resume: Annotated[bool, Field(title="FOLDER"), Needs("out", "needs the run folder, as in --resume FOLDER")] = False
    """resume the run in that folder, or start it there"""


class Source(SplitTable, Features):
    """The data set of a run."""

    dataset: DatasetName = "synthetic"
    targets: Annotated[DatasetName | None, Field(title="NAME"), TARGETS] = None
    """data set of the targets of pairs, if not `dataset`; or vectors: .npy, .npz or .parquet"""


if TYPE_CHECKING:

    class Added(Settings):
        """Settings of runs that installed packages and extensions add."""

else:  # an entry point of the group `graphcl.run_settings` is a subclass of `Settings`
    Added = create_model("Added", __base__=(*load_points("graphcl.run_settings").values(), Settings))


class Config(Runtime, Scoring, TrainingSettings, Added, Contrast, Source):
    """All settings of a run. Create it with `make_config`, which fills in defaults and checks the values."""

    @property
    def trains(self) -> bool:
        """Whether there is any training; with `epochs` 0, the reference rows are scored only."""
        return bool(self.epochs or self.steps)

    def training(self) -> dict[str, Any]:
        """Return the keywords of `graphcl.train`."""
        return self.model_dump(include=set(TrainingSettings.model_fields))


TABLE = set(SplitTable.model_fields)
"""Settings of how a table, or networkx graphs, are read."""
RUNTIME_SETTINGS = tuple(Runtime.model_fields)
"""Settings that do not affect the result of a run."""
TRAINING = {*Contrast.model_fields, *TrainingSettings.model_fields} - {
    "encoder",
    "target_encoder",
    "init",
    "sync_batchnorm",
}
"""Settings saved with the weights of an encoder. Encoder and data are described separately."""
