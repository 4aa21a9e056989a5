"""Scores for frozen embeddings. scikit-learn is loaded at the first call, not at import."""

from graphcl.evaluate.folds import usable_folds
from graphcl.evaluate.knn import knn
from graphcl.evaluate.logreg import logreg
from graphcl.evaluate.scores import FoldScores, Gain, Summary, paired_gain, summarise
from graphcl.evaluate.svm import svm

__all__ = ["FoldScores", "Gain", "Summary", "paired_gain", "summarise", "svm", "usable_folds"]
