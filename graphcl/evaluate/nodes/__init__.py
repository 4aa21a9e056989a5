"""Evaluators of the rows of nodes, which `svm`, `logreg` and `knn` score too."""
