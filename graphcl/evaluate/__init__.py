"""Scores for frozen embeddings. scikit-learn is loaded at the first call, not at import."""

from graphcl.evaluate.scores import FoldScores, Gain, Summary, paired_gain, summarise
from graphcl.evaluate.svm import svm, usable_folds

__all__ = ["FoldScores", "Gain", "Summary", "paired_gain", "summarise", "svm", "usable_folds"]
