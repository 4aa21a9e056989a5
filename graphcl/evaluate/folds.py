"""What every evaluator shares: the checks, the outer and inner folds, and the choice of one hyper-parameter on them.

No test fold chooses anything: a candidate is judged on inner folds of the outer training part, the best of them, or the
first of equals, is fitted on that whole part, and only then does it meet the test part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.scores import FoldScores

C_GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
Part = tuple[np.ndarray, np.ndarray]  # the rows of a training part and of the part held out
Accuracies = Callable[[Part, Sequence[Any]], list[float]]


@dataclass(frozen=True)
class Folds:
    """A checked embedding with its folds: `outer` ones, and `inner_folds` of each one's training part in `inner`."""

    h: np.ndarray
    labels: np.ndarray
    outer: list[Part]
    inner: list[Part]
    inner_folds: int
    seed: int
    workers: int

    def scores(self, grid: Sequence[Any], accuracies: Accuracies) -> FoldScores:
        """Choose of `grid` for every outer fold, and test what was chosen.

        Args:
            grid: the candidates.
            accuracies: from a part and some candidates to the share of held-out rows that each, fitted on the training
                rows, gets right; called by several threads.
        """
        from threadpoolctl import threadpool_limits

        # What is called releases the GIL, so threads do. BLAS keeps to one thread each: its spinning helpers made a
        # standardised SVM 1.4 times slower.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self.workers) as pool:
            found = list(pool.map(accuracies, self.inner, [grid] * len(self.inner)))
            scores = np.reshape(found, (len(self.outer), self.inner_folds, -1))
            # Copied so that the folds add up in GridSearchCV's order: a tie here is a tie there.
            means = scores.swapaxes(1, 2).copy().mean(2)
            chosen = tuple(grid[i] for i in means.argmax(1))
            inner = tuple(100 * float(each) for each in means.max(1))
            accuracy = tuple(100 * only for (only,) in pool.map(accuracies, self.outer, [[each] for each in chosen]))
        return FoldScores(self.seed, accuracy, chosen, inner, len(self.outer), self.inner_folds)


def make_folds(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    seed: int,
    folds: int,
    inner_folds: int,
    workers: int | None,
) -> Folds:
    """The folds of an evaluator that was called with these arguments, checked; see `graphcl.evaluate.svm`."""
    from joblib import cpu_count
    from sklearn.model_selection import StratifiedKFold

    h = embedding(h)
    classes, labels = _classes(y, len(h))
    workers = cpu_count() if workers is None else workers
    rules = ("folds", folds, 2), ("inner_folds", inner_folds, 2), ("workers", workers, 1), ("seed", seed, 0)
    for name, value, least in rules:
        if value < least:
            raise InputError(f"`{name}` must be at least {least}, got {value}.")
    outer, inner_folds = _outer_parts(classes, labels, seed, folds, inner_folds, stacklevel=4)
    inner = [
        (train[fit], train[held])
        for train, _ in outer
        for fit, held in StratifiedKFold(inner_folds).split(train, labels[train])
    ]
    return Folds(h, labels, outer, inner, inner_folds, seed, workers)


def c_grid(grid: Sequence[float]) -> list[float]:
    """The candidates for C, checked."""
    if len(grid) == 0 or not all(0 < c < np.inf for c in grid):
        raise InputError(f"`grid` must hold one C or more, each positive and finite, got {list(grid)}.")
    return [float(c) for c in grid]


def usable_folds(y: Tensor | np.ndarray, folds: int = 10, inner_folds: int = 5) -> tuple[int, int]:
    """The outer and inner folds that labels allow: as many as wanted, or as the smallest class has graphs.

    Args:
        y: class of each graph `[n]`, any integers.
        folds: outer folds wanted.
        inner_folds: inner folds wanted.

    Returns:
        The two numbers, with a `UserWarning` where they are fewer than wanted.

    Raises:
        InputError: fewer than two classes, or one too small for two outer and two inner folds.
    """
    outer, inner_folds = _outer_parts(*_classes(y, len(y)), 0, folds, inner_folds, stacklevel=3)
    return len(outer), inner_folds


def pair_dots(h: np.ndarray, workers: int = 1) -> np.ndarray:
    """The product of every two rows `[n, n]`, one BLAS dot per pair: equal rows give equal figures.

    A matrix product rounds equal rows unequally, and a tie would hang on it.
    """
    dots = np.empty((len(h), len(h)))
    height = 64

    def fill(start: int) -> None:
        end = start + height
        block = np.matmul(h[start:end, None, None, :], h[None, start:, :, None])[..., 0, 0]
        dots[start:end, start:] = block
        dots[end:, start:end] = block[:, height:].T

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(0, len(h), height)))
    return dots


def embedding(h: Tensor | np.ndarray) -> np.ndarray:
    """The rows of an embedding in float64, checked."""
    h = h.detach().to("cpu", torch.float64).numpy() if isinstance(h, Tensor) else h
    h = np.ascontiguousarray(h, dtype=np.float64)
    if h.ndim != 2 or h.shape[1] == 0:
        raise InputError(f"`h` must be [graphs, features], got shape {list(h.shape)}.")
    bad = int((~(np.abs(h) < 1e150).all(1)).sum())  # beyond, squares overflow
    if bad:
        raise InputError(f"`h` must be finite and below 1e150, got {bad} of {len(h)} rows that are not.")
    return h


def _classes(y: Tensor | np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and the index of each graph's."""
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if y.shape != (n,):
        raise InputError(f"`y` must be one label for each of the {n} rows of `h`, got shape {list(y.shape)}.")
    if y.dtype.kind not in "biu":
        raise InputError(f"`y` must hold integers, got {y.dtype}.")
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"`y` must have two classes or more, got {classes.tolist()}.")
    return classes, labels


def _outer_parts(
    classes: np.ndarray, labels: np.ndarray, seed: int, folds: int, inner_folds: int, stacklevel: int = 2
) -> tuple[list[Part], int]:
    """The outer folds, and the number of inner ones, both as many as the smallest class allows."""
    from sklearn.model_selection import StratifiedKFold

    sizes = np.bincount(labels)
    size, label = int(sizes.min()), classes[sizes.argmin()]
    split = StratifiedKFold(max(2, min(folds, size)), shuffle=True, random_state=seed)
    outer = list(split.split(labels, labels)) if size > 1 else []
    inner = min([inner_folds, *(int(np.bincount(labels[train]).min()) for train, _ in outer)])
    if not outer or inner < 2:
        raise InputError(f"`y` must leave 2 graphs of every class in each training part, got {size} of class {label}.")
    if (len(outer), inner) != (folds, inner_folds):
        message = f"class {label} has only {size} graphs: {len(outer)} outer and {inner} inner folds"
        warnings.warn(f"{message} instead of {folds} and {inner_folds}.", stacklevel=stacklevel)
    return outer, inner
