"""Evaluate frozen embeddings. scikit-learn is imported at the first call.

A public function `NAME(h, y, ...)` in a file of `graphs/` or `nodes/` is the evaluator `NAME`. It passes a fitting
function to `make_folds(...).scores`. If it requires the argument `split`, it uses a given split and metric instead.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

from graphcl.evaluate import graphs, nodes
from graphcl.evaluate.folds import usable_folds
from graphcl.evaluate.graphs.instance import instance
from graphcl.evaluate.graphs.knn import knn
from graphcl.evaluate.graphs.logreg import logreg
from graphcl.evaluate.graphs.majority import majority
from graphcl.evaluate.graphs.ogb import ogb
from graphcl.evaluate.graphs.ogb_forest import ogb_forest
from graphcl.evaluate.graphs.ogb_knn import ogb_knn
from graphcl.evaluate.graphs.retrieval import retrieval
from graphcl.evaluate.graphs.svm import svm
from graphcl.evaluate.ranking import QueryScores, rank_by, rank_queries
from graphcl.evaluate.scores import (
    LOWER,
    METRICS,
    FoldScores,
    Gain,
    PairedTest,
    Summary,
    best_row,
    holm,
    paired_gain,
    paired_test,
    summarise,
)


def _functions(package: ModuleType) -> dict[str, Callable[..., FoldScores]]:
    """Return the public functions `NAME(h, y, ...)` that the files of `package` define, by name."""
    found: dict[str, Callable[..., FoldScores]] = {}
    for file in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for name, each in inspect.getmembers(importlib.import_module(file.name), inspect.isfunction):
            own = each.__module__ == file.name and not name.startswith("_")
            if own and [*inspect.signature(each).parameters][:2] == ["h", "y"]:
                found[name] = each
    return found


_of_graphs = _functions(graphs)
_on_split = {
    name: each
    for name, each in _of_graphs.items()
    if (split := inspect.signature(each).parameters.get("split")) and split.default is split.empty
}
EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(
    {name: each for name, each in _of_graphs.items() if name not in _on_split}
)
"""The evaluators on folds, by name."""
SPLIT_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_on_split)
"""The evaluators on the split of a benchmark, by name."""
NODE_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType(_functions(nodes))
"""The evaluators of nodes only, by name; one with the argument `split` needs a public split."""
COPY_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType({"instance": instance})
"""The evaluators of graphs by augmented copies, by name; they need no labels."""

__all__ = [
    "COPY_EVALUATORS",
    "EVALUATORS",
    "LOWER",
    "METRICS",
    "NODE_EVALUATORS",
    "SPLIT_EVALUATORS",
    "FoldScores",
    "Gain",
    "PairedTest",
    "QueryScores",
    "Summary",
    "best_row",
    "holm",
    "instance",
    "knn",
    "logreg",
    "majority",
    "ogb",
    "ogb_forest",
    "ogb_knn",
    "paired_gain",
    "paired_test",
    "rank_by",
    "rank_queries",
    "retrieval",
    "summarise",
    "svm",
    "usable_folds",
]
