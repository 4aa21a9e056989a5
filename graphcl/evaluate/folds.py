"""Run nested cross-validation with a search for one hyper-parameter, for all evaluators that use folds.

The candidates are scored on inner folds of each outer training part. The best candidate (the first of several equal
ones) is fitted on the whole training part and scored on the test part. All folds are stratified, and shuffled by the
seed, because data sets are often sorted by class, source or size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from graphcl.arguments import FoldCount, checked, shown
from graphcl.errors import InputError, InputTypeError, warn
from graphcl.evaluate.scores import FoldScores

C_GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
Part = tuple[np.ndarray, np.ndarray]  # indices of the training rows, and of the held-out rows
Splits = Any
"""Own outer folds, as `cv` of scikit-learn: training rows and test rows of each, indices or masks."""
Values = Callable[[Part, Sequence[Any]], Sequence[Any]]
OnFold = Callable[[int, int], object]
"""Function called with the number of finished inner folds and the total number of inner folds."""
OnTest = Callable[[np.ndarray, np.ndarray], object]
"""Function called with the test rows of each outer fold, and the value of each: 1 if it is right, or its score."""


@dataclass(frozen=True)
class Folds:
    """Embedding, labels, outer folds, and inner folds of each outer training part."""

    h: Any
    labels: np.ndarray
    outer: list[Part]
    inner: list[Part]
    inner_folds: int
    seed: int
    workers: int
    on_fold: OnFold | None = None
    on_test: OnTest | None = None

    def scores(self, grid: Sequence[Any], values: Values) -> FoldScores:
        """Return the test score of each outer fold, after choosing a candidate of `grid` on its inner folds.

        `values` takes a `Part` and candidates, fits each candidate on the training rows, and returns for each candidate
        whether each held-out row is classified correctly, an array, or its score; or only their mean. Several threads
        call it. If all rows of `h` are equal, the largest class of each training part is predicted instead.
        """
        from threadpoolctl import threadpool_limits

        if is_constant(self.h):
            grid, values = [0.0], self._of_majority
        # The solvers release the GIL, so threads suffice. With several BLAS threads per worker it is 1.4 times slower.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self.workers) as pool:
            of_folds = []
            for candidates in pool.map(values, self.inner, [grid] * len(self.inner)):
                of_folds.append([np.mean(rows) for rows in candidates])
                if self.on_fold is not None:
                    self.on_fold(len(of_folds), len(self.inner))
            scores = np.reshape(of_folds, (len(self.outer), self.inner_folds, -1))
            # Copy, so that the mean sums in the same order as GridSearchCV and ties are resolved equally.
            means = scores.swapaxes(1, 2).copy().mean(2)
            chosen = tuple(grid[i] for i in means.argmax(1))
            inner = tuple(100 * float(mean) for mean in means.max(1))
            tested = [rows for (rows,) in pool.map(values, self.outer, [[candidate] for candidate in chosen])]
        for (_, held), rows in zip(self.outer, tested, strict=True):
            if self.on_test is not None:
                self.on_test(held, np.asarray(rows))
        accuracy = tuple(100 * float(np.mean(rows)) for rows in tested)
        return FoldScores(self.seed, accuracy, chosen, inner, len(self.outer), self.inner_folds)

    def _of_majority(self, part: Part, _: object) -> list[np.ndarray]:
        train, held = (self.labels[rows] for rows in part)
        return [held == np.bincount(train).argmax()]


def make_folds(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    seed: int,
    folds: int,
    inner_folds: int,
    workers: int | None,
    on_fold: OnFold | None = None,
    on_test: OnTest | None = None,
    cv: Splits | None = None,
) -> Folds:
    """Check the data of an evaluator, see `graphcl.evaluate.svm`, and return its outer and inner folds.

    An evaluator that accepts sparse matrices of SciPy passes `embedding(h, sparse=True)`.
    """
    h = h if hasattr(h, "tocsr") else embedding(h)
    classes, labels = class_indices(y, h.shape[0])
    if cv is None:
        outer, inner_folds = _outer_parts(classes, labels, seed, folds, inner_folds)
    else:
        outer, inner_folds = _own_parts(cv, classes, labels, inner_folds)
    inner = [
        (train[fit], train[held]) for train, _ in outer for fit, held in stratified(labels[train], inner_folds, seed)
    ]
    return Folds(h, labels, outer, inner, inner_folds, seed, worker_count(workers), on_fold, on_test)


def outer_folds(labels: np.ndarray, seed: int, folds: int) -> list[Part]:
    """Return stratified folds of `labels [n]`, shuffled by the seed; an empty list if a class has a single graph.

    There are at most as many folds as the smallest class has graphs.
    """
    folds = min(folds, int(np.bincount(labels).min()))
    return stratified(labels, folds, seed) if folds > 1 else []


def stratified(labels: np.ndarray, folds: int, seed: int) -> list[Part]:
    """Return the folds of `StratifiedKFold(folds, shuffle=True, random_state=seed)` of scikit-learn.

    Importing `sklearn.model_selection` takes a second. The sorted labels are dealt to the folds in turn, which gives
    the size of each class in each fold. The rows of a class are assigned at random, the class of the first row first.
    """
    random, dealt = np.random.RandomState(seed), np.arange(len(labels)) % folds
    classes, first, counts = np.unique(labels, return_index=True, return_counts=True)
    appearance, fold = np.argsort(first), np.empty(len(labels), np.int64)
    ends = np.cumsum(counts[appearance])
    for label, start, end in zip(classes[appearance], ends - counts[appearance], ends, strict=True):
        of_class = np.sort(dealt[start:end])
        random.shuffle(of_class)
        fold[labels == label] = of_class
    return [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(folds)]


def worker_count(workers: int | None) -> int:
    """Return `workers`, by default the number of available cores."""
    from joblib import cpu_count

    return int(cpu_count()) if workers is None else workers


@checked
def usable_folds(y: Tensor | np.ndarray, folds: FoldCount = 10, inner_folds: FoldCount = 5) -> tuple[int, int]:
    """Return the numbers of outer and inner folds that the labels `y` allow; the smallest class limits both.

    Args:
        y: class of each graph `[n]`, whole numbers or strings; tensor, array or pandas Series.
        folds: desired number of outer folds.
        inner_folds: desired number of inner folds.

    Returns:
        The numbers of outer and inner folds. An `InputWarning` reports a reduction.

    Raises:
        InputError: `y` has fewer than two classes, or a class is too small for two outer and two inner folds.
    """
    outer, inner_folds = _outer_parts(*class_indices(y), 0, folds, inner_folds)
    return len(outer), inner_folds


def row_dots(one: Any, two: Any) -> np.ndarray:
    """Return the inner products of the rows of `one` with those of `two`, one BLAS dot per pair.

    Equal rows give equal products, so that ties are exact. A matrix product would round them differently.
    """
    if not isinstance(one, np.ndarray):
        return np.asarray((one @ two.T).toarray())
    dots: np.ndarray = np.matmul(one[:, None, None, :], two[None, :, :, None])[..., 0, 0]
    return dots


def pair_dots(h: Any, workers: int = 1) -> np.ndarray:
    """Return the inner products `[n, n]` of all pairs of rows of `h`, see `row_dots`."""
    if not isinstance(h, np.ndarray):
        return row_dots(h, h)
    dots = np.empty((len(h), len(h)))
    height = 64

    def fill(start: int) -> None:
        end = start + height
        block = row_dots(h[start:end], h[start:])
        dots[start:end, start:] = block
        dots[end:, start:end] = block[:, height:].T

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(0, len(h), height)))
    return dots


def as_array(name: str, values: Tensor | np.ndarray, kinds: str = "biuf", wanted: str = "real numbers") -> np.ndarray:
    """Return a tensor or array-like as an array on the CPU; raise InputTypeError if its dtype is not of the `kinds`."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # NumPy has no bfloat16
    array = np.asarray(values)
    if array.dtype.kind not in kinds:
        raise InputTypeError(f"`{name}` must hold {wanted}, got {array.dtype}.")
    return array


def embedding(h: Tensor | np.ndarray, sparse: bool = False) -> Any:
    """Return the embedding `h` as a float64 NumPy array; raise InputError if `h` is invalid.

    With `sparse`, a sparse matrix of SciPy is returned as a `csr_array`.
    """
    rows: Any
    if hasattr(h, "tocsr"):
        if not sparse:
            raise InputTypeError("`h` must be dense, got a sparse matrix; use knn, retrieval, or svm without `scale`.")
        from scipy.sparse import csr_array

        rows = csr_array(h, dtype=np.float64)
    else:
        rows = np.ascontiguousarray(as_array("h", h), dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InputError(f"`h` must be [graphs, features], got shape {list(rows.shape)}.")
    largest = np.asarray(abs(rows).max(axis=1) if isinstance(rows, np.ndarray) else abs(rows).max(axis=1).toarray())
    bad = int((~(largest < 1e150)).sum())  # squares of larger numbers overflow
    if bad:
        raise InputError(f"`h` must be finite and below 1e150, got {bad} of {rows.shape[0]} rows that are not.")
    return rows


def is_constant(h: Any) -> bool:
    """Return whether all rows of `h` are equal, so that they tell nothing about the labels."""
    if not isinstance(h, np.ndarray):
        return bool((h.max(axis=0) - h.min(axis=0)).count_nonzero() == 0)
    return bool((h == h[:1]).all())


def unit_rows(h: Any) -> Any:
    """Return the rows of `h` scaled to norm 1; rows of zeros stay."""
    if not isinstance(h, np.ndarray):
        from sklearn.preprocessing import normalize

        return normalize(h)
    length = np.linalg.norm(h, axis=1, keepdims=True)
    scaled: np.ndarray = h / np.where(length > 0, length, 1)
    return scaled


def class_indices(y: Tensor | np.ndarray, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted class values, and the class index of each graph `[n]`; raise InputError if `y` is invalid."""
    y = as_array("y", y, "biufUSO", "whole numbers or strings")
    if y.ndim != 1 or len(y) != (len(y) if n is None else n):
        rows = "row" if n is None else f"of the {n} rows of `h`"
        raise InputError(f"`y` must be one label for each {rows}, got shape {list(y.shape)}.")
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.trunc(y))).all():
        raise InputError(f"`y` must hold one class for each graph, got {y.dtype} that are not whole numbers.")
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"`y` must have two classes or more, got {classes.tolist()}.")
    return classes, labels


def _outer_parts(
    classes: np.ndarray, labels: np.ndarray, seed: int, folds: int, inner_folds: int
) -> tuple[list[Part], int]:
    """Return the outer folds and the number of inner folds; the smallest class limits both numbers."""
    sizes = np.bincount(labels)
    size, label = int(sizes.min()), classes[sizes.argmin()]
    outer = outer_folds(labels, seed, folds)
    inner = min([inner_folds, *(int(np.bincount(labels[train]).min()) for train, _ in outer)])
    if not outer or inner < 2:
        raise InputError(f"`y` must leave 2 graphs of every class in each training part, got {size} of class {label}.")
    if (len(outer), inner) != (folds, inner_folds):
        message = f"class {label} has only {size} graphs: {len(outer)} outer and {inner} inner folds"
        warn(f"{message} instead of {folds} and {inner_folds}.")
    return outer, inner


def _own_parts(cv: Splits, classes: np.ndarray, labels: np.ndarray, inner_folds: int) -> tuple[list[Part], int]:
    """Return the outer folds `cv`, checked, and the number of inner folds, which the smallest class limits."""
    splits = list(cv) if hasattr(cv, "__iter__") else []
    if not splits:
        raise InputError(f"`cv` must hold one or more pairs of training rows and test rows, got {shown(cv)}.")
    outer = [_own_part(number, split, len(labels)) for number, split in enumerate(splits)]
    counts = np.array([np.bincount(labels[train], minlength=len(classes)) for train, _ in outer])
    number, column = np.unravel_index(counts.argmin(), counts.shape)
    least = int(counts.min())
    where = f"{least} of class {classes[column]} in the training rows of split {number}"
    if least < 2:
        raise InputError(f"`cv` must leave 2 graphs of every class to train on, got {where}.")
    if least < inner_folds:
        warn(f"{where}: {least} inner folds instead of {inner_folds}.")
    return outer, min(least, inner_folds)


def _own_part(number: int, split: Any, n: int) -> Part:
    """Return the training rows and the test rows of a split of `n` graphs, indices or masks, as arrays of indices."""
    train, test = (np.arange(n)[as_array(f"cv[{number}]", rows, "biu", "indices or a mask")] for rows in split)
    if not len(test) or len(np.unique(np.concatenate([train, test]))) < len(train) + len(test):
        raise InputError(f"split {number} of `cv` must be a pair of different rows to train and to test on.")
    return train, test
