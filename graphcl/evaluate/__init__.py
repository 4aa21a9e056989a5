"""Evaluate frozen embeddings. scikit-learn is imported at the first call.

A file of `graphs/` or `nodes/` registers an evaluator with the facts of `graphcl.evaluate.needs`. On folds, it passes a
fitting function to `make_folds(...).scores`.
"""

from graphcl.evaluate.folds import usable_folds
from graphcl.evaluate.graphs.instance import instance as instance
from graphcl.evaluate.graphs.knn import knn as knn
from graphcl.evaluate.graphs.logreg import logreg as logreg
from graphcl.evaluate.graphs.ogb import ogb as ogb
from graphcl.evaluate.graphs.ogb import ogb_forest as ogb_forest
from graphcl.evaluate.graphs.retrieval import Kernel as Kernel
from graphcl.evaluate.graphs.retrieval import retrieval as retrieval
from graphcl.evaluate.graphs.svm import svm as svm
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
    metric_name,
    paired_gain,
    paired_test,
    summarise,
)

__all__ = [
    "LOWER",
    "METRICS",
    "FoldScores",
    "Gain",
    "PairedTest",
    "QueryScores",
    "Summary",
    "best_row",
    "holm",
    "metric_name",
    "paired_gain",
    "paired_test",
    "rank_by",
    "rank_queries",
    "summarise",
    "usable_folds",
]
