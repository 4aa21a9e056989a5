"""Evaluate frozen embeddings. scikit-learn is imported at the first call.

A file `graphs/NAME.py` that defines a function `NAME(h, y, ...)` provides the evaluator `NAME`. The function passes
a fitting function to `make_folds(...).scores`. An evaluator with the argument `split` uses a benchmark's split and
metric instead of folds.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

from graphcl.evaluate import graphs, nodes
from graphcl.evaluate.compare import PairedTest, holm, paired_test
from graphcl.evaluate.folds import usable_folds
from graphcl.evaluate.graphs.knn import knn
from graphcl.evaluate.graphs.logreg import logreg
from graphcl.evaluate.graphs.majority import majority
from graphcl.evaluate.graphs.ogb import ogb
from graphcl.evaluate.graphs.ogb_knn import ogb_knn
from graphcl.evaluate.graphs.svm import svm
from graphcl.evaluate.scores import LOWER, METRICS, FoldScores, Gain, Summary, best_row, paired_gain, summarise


def _functions(package: ModuleType) -> dict[str, Callable[..., FoldScores]]:
    """Return the functions `NAME(h, y, ...)` of the files `NAME.py` in `package`."""
    found = {}
    for file in pkgutil.iter_modules(package.__path__):
        named = vars(importlib.import_module(f"{package.__name__}.{file.name}")).get(file.name)
        if callable(named) and [*inspect.signature(named).parameters][:2] == ["h", "y"]:
            found[file.name] = named
    return found


_found: dict[bool, dict[str, Callable[..., FoldScores]]] = {False: {}, True: {}}
for _name, _function in _functions(graphs).items():
    _found["split" in inspect.signature(_function).parameters][_name] = _function

EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_found[False])
"""The evaluators on folds, by name."""
SPLIT_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_found[True])
"""The evaluators on the split of a benchmark, by name."""
NODE_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_functions(nodes))
"""The evaluators of nodes only, by name; one with the argument `split` needs a public split."""

__all__ = [
    "EVALUATORS",
    "LOWER",
    "METRICS",
    "NODE_EVALUATORS",
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
    "ogb_knn",
    "paired_gain",
    "paired_test",
    "summarise",
    "svm",
    "usable_folds",
]
