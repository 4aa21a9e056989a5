"""Evaluate frozen embeddings. scikit-learn is imported at the first call.

A file `NAME.py` in this package that defines a function `NAME(h, y, ...)` provides the evaluator `NAME`. The function
passes its own fit to `make_folds(...).scores`. An evaluator with the argument `split` uses the split and metric of a
benchmark instead of folds.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import MappingProxyType

from graphcl.evaluate.compare import PairedTest, holm, paired_test
from graphcl.evaluate.folds import usable_folds
from graphcl.evaluate.knn import knn
from graphcl.evaluate.logreg import logreg
from graphcl.evaluate.majority import majority
from graphcl.evaluate.ogb import ogb
from graphcl.evaluate.scores import LOWER, METRICS, FoldScores, Gain, Summary, best_row, paired_gain, summarise
from graphcl.evaluate.svm import svm

_found: dict[bool, dict[str, Callable[..., FoldScores]]] = {False: {}, True: {}}
for _file in pkgutil.iter_modules(__path__):
    _named = vars(importlib.import_module(f"{__name__}.{_file.name}")).get(_file.name)
    if callable(_named) and [*inspect.signature(_named).parameters][:2] == ["h", "y"]:
        _found["split" in inspect.signature(_named).parameters][_file.name] = _named

EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_found[False])
"""The evaluators on folds, by name."""
SPLIT_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_found[True])
"""The evaluators on the split of a benchmark, by name."""

__all__ = [
    "EVALUATORS",
    "LOWER",
    "METRICS",
    "SPLIT_EVALUATORS",
    "FoldScores",
    "Gain",
    "PairedTest",
    "Summary",
    "best_row",
    "holm",
    "knn",
    "logreg",
    "majority",
    "ogb",
    "paired_gain",
    "paired_test",
    "summarise",
    "svm",
    "usable_folds",
]
