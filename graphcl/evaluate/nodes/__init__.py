"""Evaluators of the rows of nodes. A file `NAME.py` that defines a function `NAME(h, y, ...)` provides `NAME`.

Nodes are also scored by `logreg`, `knn` and `svm` on stratified folds. An evaluator with the argument `split` needs the
public split of a data set.
"""
