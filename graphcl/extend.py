"""Gather the names that extensions of the library import: see docs/extending.md.

| to write | use |
|---|---|
| a loss | `pairwise`, `Pairs`, `Row`, `linear`, `gaussian`, `softplus`; argument types such as `Temperature` |
| an augmentation | `Augmentation`, `PerGraph`; `Decision`, `Layout`, `ratio_count`, `random_subset`, `pick` |
| an encoder | `encoders.register`, `Count`; `Embeddings` and `ContrastiveModel` of embeddings that are no tensor |
| a method | `Method`, `Outcome`, `momentum_copy`, `ema_update`, `require_ids` and the other checks |
| an evaluator | `evaluators.register`, `make_folds`, `FoldScores`, `summarise`; `Costs` and `Counts` of a grid |
| a reference row | `references.register`, `Inputs`, `Kernel` |
| a data set | `datasets.register`; another kind of file or object: `sources.register`, `Source` |
| another kind of what is trained | `tasks.register`, `Task` |

A registry, such as `losses`, maps names to functions or classes; `register(name)` adds one.
"""

from graphcl.arguments import (
    Channels,
    Costs,
    Count,
    Counts,
    Finite,
    FoldCount,
    Fraction,
    Layers,
    NonNegative,
    Positive,
    Ratio,
    Seed,
    Temperature,
    Width,
    interval,
)
from graphcl.augment import Augmentation, Decision, PerGraph
from graphcl.datasets.sources import Source
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Kernel, summarise
from graphcl.evaluate.folds import make_folds
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import nonzero, pick, random_subset, ratio_count, to_device
from graphcl.losses import Pairs, pairwise
from graphcl.losses.loss import softplus
from graphcl.losses.pairs import Exponent, Row, gaussian, linear
from graphcl.methods import Method, Outcome
from graphcl.methods.method import (
    ema_update,
    momentum_copy,
    require_arguments,
    require_ids,
    require_repulsion,
    weight_of,
)
from graphcl.models.contrastive import ContrastiveModel, Embeddings
from graphcl.references.rows import Inputs
from graphcl.registry import (
    Registry,
    augmentations,
    datasets,
    encoders,
    evaluators,
    losses,
    methods,
    references,
    sources,
    tasks,
)
from graphcl.tasks.task import Task

__all__ = [
    "Augmentation",
    "Channels",
    "ContrastiveModel",
    "Costs",
    "Count",
    "Counts",
    "Decision",
    "Embeddings",
    "Exponent",
    "Finite",
    "FoldCount",
    "FoldScores",
    "Fraction",
    "InputError",
    "Inputs",
    "Kernel",
    "Layers",
    "Layout",
    "Method",
    "NonNegative",
    "Outcome",
    "Pairs",
    "PerGraph",
    "Positive",
    "Ratio",
    "Registry",
    "Row",
    "Seed",
    "Source",
    "Task",
    "Temperature",
    "Width",
    "augmentations",
    "datasets",
    "ema_update",
    "encoders",
    "evaluators",
    "gaussian",
    "interval",
    "linear",
    "losses",
    "make_folds",
    "methods",
    "momentum_copy",
    "nonzero",
    "pairwise",
    "pick",
    "random_subset",
    "ratio_count",
    "references",
    "require_arguments",
    "require_ids",
    "require_repulsion",
    "softplus",
    "sources",
    "summarise",
    "tasks",
    "to_device",
    "weight_of",
]
