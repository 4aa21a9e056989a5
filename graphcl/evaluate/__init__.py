"""Scores for frozen embeddings. scikit-learn is loaded at the first call, not at import.

A new evaluator is one file, which gives `make_folds(...).scores` its own way to fit, and one entry of `EVALUATORS`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from graphcl.evaluate.compare import PairedTest, holm, paired_test
from graphcl.evaluate.folds import usable_folds
from graphcl.evaluate.knn import knn
from graphcl.evaluate.logreg import logreg
from graphcl.evaluate.scores import FoldScores, Gain, Summary, paired_gain, summarise
from graphcl.evaluate.svm import svm

EVALUATORS: Mapping[str, Callable[..., FoldScores]] = MappingProxyType({"knn": knn, "logreg": logreg, "svm": svm})

__all__ = [
    "EVALUATORS",
    "FoldScores",
    "Gain",
    "PairedTest",
    "Summary",
    "holm",
    "knn",
    "logreg",
    "paired_gain",
    "paired_test",
    "summarise",
    "svm",
    "usable_folds",
]
