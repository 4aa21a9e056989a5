"""Evaluate frozen embeddings. scikit-learn is imported at the first call.

To add an evaluator, write one module that passes its own fit to `make_folds(...).scores`, and add it to `EVALUATORS`.
The evaluators in `SPLIT_EVALUATORS` use the split and the metric of a benchmark instead of folds.
"""

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

EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType({"knn": knn, "logreg": logreg, "svm": svm})
SPLIT_EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType({"ogb": ogb})

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
