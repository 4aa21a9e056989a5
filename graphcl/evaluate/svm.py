"""The SVM score of a frozen embedding: the protocol of GraphCL (You et al. 2020), from the search for C to the ±.

- Embedding: the readout before the projector, frozen, one row per graph, as it is; `scale=True` standardises columns.
- Outer folds: 10, stratified, shuffled by the seed. Each is the test part once; its accuracy, in percent, is the score.
- C: of 1e-3, 1e-2, ..., 1e3 the best by mean accuracy over 5 stratified, unshuffled folds of the outer training part;
  the first of equals. Then refit on that whole part. Gamma, and column means and deviations, come from the training
  part at hand, in the inner folds too. No test fold chooses anything: neither C, nor gamma, nor the epoch.
- A class too small for that many folds reduces them, with a warning.
- `mean ± std_seeds` of a `Summary`: over the per-seed means, with ddof 0 as the authors' `np.std`. It says how far a
  result moves with the seed, not how well the mean is known. `std_folds` is the spread over the test folds of one seed,
  several times larger, and printed as ± by other papers. To compare two embeddings, use `paired_gain`.

The result is that of `GridSearchCV(SVC(), {"C": grid}, cv=5)` on every outer fold, with a `StandardScaler` in front for
`scale=True`, in 0.3 to 0.5 of its time: one kernel serves every C, one table of distances every kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.scores import FoldScores

GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
Part = tuple[np.ndarray, np.ndarray]  # the rows of a training part and of the part held out


def svm(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: int = 0,
    folds: int = 10,
    inner_folds: int = 5,
    grid: Sequence[float] = GRID,
    scale: bool = False,
    workers: int | None = None,
) -> FoldScores:
    r"""Cross-validated test accuracy of a support vector machine with RBF kernel on a frozen embedding.

    $$k(h_i, h_j) = e^{-\gamma \|h_i - h_j\|^2}, \qquad \gamma = 1 / (D \operatorname{var} H_\text{train})$$

    Memory: about 16 n^2 bytes, and as much again for each worker.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; computed with in float64 on the CPU.
        y: class of each graph `[n]`, any integers.
        seed: shuffles the outer folds; nothing else is random.
        folds: outer folds, at least 2; at most the size of the smallest class is used.
        inner_folds: folds of the search for C, at least 2; reduced likewise, to the outer training parts.
        grid: the values of C, > 0; the first of equals is chosen.
        scale: whether to standardise each column by its mean and deviation over the training part.
        workers: threads; by default every core this process may use. The result does not depend on them.

    Returns:
        `FoldScores`, folds in the order of `StratifiedKFold(folds, shuffle=True, random_state=seed)`.

    Raises:
        InputError: an argument breaks its rule, or a class is too small for two outer and two inner folds.

    Example:
        >>> h, y = torch.tensor([[0.0], [1.0]]).repeat(6, 1), torch.tensor([0, 1]).repeat(6)
        >>> svm(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)

    Reference: Y. You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
    """
    from joblib import cpu_count
    from sklearn.model_selection import StratifiedKFold
    from threadpoolctl import threadpool_limits

    h = _embedding(h)
    classes, labels = _classes(y, len(h))
    workers = cpu_count() if workers is None else workers
    rules = ("folds", folds, 2), ("inner_folds", inner_folds, 2), ("workers", workers, 1), ("seed", seed, 0)
    for name, value, least in rules:
        if value < least:
            raise InputError(f"`{name}` must be at least {least}, got {value}.")
    if len(grid) == 0 or not all(0 < c < np.inf for c in grid):
        raise InputError(f"`grid` must hold one C or more, each positive and finite, got {list(grid)}.")
    outer, inner_folds = _outer_parts(classes, labels, seed, folds, inner_folds)
    inner = [
        (train[fit], train[held])
        for train, _ in outer
        for fit, held in StratifiedKFold(inner_folds).split(train, labels[train])
    ]
    distances = None if scale else _distances(h)

    def accuracies(part: Part, candidates: Sequence[float]) -> list[float]:
        kernel = _kernel(h, part, distances)
        return [_accuracy(kernel, labels, part, c) for c in candidates]

    # libsvm trains without the GIL, so threads do. PROTEINS (n = 1113, D = 96) on 2 cores: 1 thread 3.9 s, 2 threads
    # 2.0 s, 2 joblib processes 2.1 s and 3.5 s more to start; NCI1 (4110): 41.9 s and 21.9 s. BLAS keeps to one thread
    # each: its spinning helpers made `scale=True` 1.4 times slower.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(workers) as pool:
        scores = np.reshape(list(pool.map(accuracies, inner, [grid] * len(inner))), (len(outer), inner_folds, -1))
        # Copied so that the folds add up in GridSearchCV's order: a tie here is a tie there.
        best = scores.swapaxes(1, 2).copy().mean(2).argmax(1)
        c = tuple(float(grid[i]) for i in best)
        accuracy = tuple(100 * only for (only,) in pool.map(accuracies, outer, [[chosen] for chosen in c]))
    return FoldScores(seed, accuracy, c, len(outer), inner_folds)


def usable_folds(y: Tensor | np.ndarray, folds: int = 10, inner_folds: int = 5) -> tuple[int, int]:
    """The outer and inner folds that `svm` can make of labels: as many as wanted, or as the smallest class allows.

    Args:
        y: class of each graph `[n]`, any integers.
        folds: outer folds wanted.
        inner_folds: inner folds wanted.

    Returns:
        The two numbers, with a `UserWarning` where they are fewer than wanted.

    Raises:
        InputError: fewer than two classes, or one too small for two outer and two inner folds.
    """
    outer, inner_folds = _outer_parts(*_classes(y, len(y)), 0, folds, inner_folds)
    return len(outer), inner_folds


def _distances(h: np.ndarray) -> np.ndarray:
    """Squared distances `[n, n]`, in the very arithmetic of libsvm: one BLAS dot per pair, (ii + jj) - 2 ij."""
    dots = np.matmul(h[:, None, None, :], h[None, :, :, None])[..., 0, 0]
    square = dots.diagonal()
    distances = square[:, None] + square
    dots *= 2
    distances -= dots
    return distances


def _kernel(h: np.ndarray, part: Part, distances: np.ndarray | None) -> np.ndarray:
    """Kernel of the training rows, then the held-out rows, against the training rows, `[train + held, train]`.

    Without `distances`, those of the embedding standardised over the training rows.
    """
    from sklearn.preprocessing import StandardScaler

    rows, train = np.concatenate(part), part[0]
    if distances is None:
        z = StandardScaler().fit(h[train]).transform(h[rows])
        trained, square = z[: len(train)], np.einsum("nd,nd->n", z, z)
        kernel = z @ trained.T
        kernel *= -2
        kernel += square[:, None]
        kernel += square[: len(train)]
    else:
        trained = h[train]
        kernel = distances[rows].take(train, axis=1, mode="clip")
    variance = trained.var()
    kernel *= -1 / (h.shape[1] * variance) if variance != 0 else -1
    np.exp(kernel, out=kernel)
    np.fill_diagonal(kernel, 1)
    return kernel


def _accuracy(kernel: np.ndarray, labels: np.ndarray, part: Part, c: float) -> float:
    """Share of held-out rows that the machine with this C, fitted on the training rows, gets right."""
    from sklearn import config_context
    from sklearn.svm import SVC

    train, truth = labels[part[0]], labels[part[1]]
    fit, held = np.split(kernel, [len(train)])
    with config_context(assume_finite=True, skip_parameter_validation=True):
        model = SVC(C=c, kernel="precomputed", random_state=0).fit(fit, train)
        if len(model.classes_) == 2:
            # One product instead of libsvm's sums, unless one is so near 0 that the order of addition could tell.
            weight = np.zeros(len(train))
            weight[model.support_] = model.dual_coef_[0]
            margin = held @ weight + model.intercept_
            if np.abs(margin).min() > 1e-15 * len(train) * np.abs(weight).sum():
                return float(np.mean((margin > 0) == truth))
        return float(np.mean(model.predict(held) == truth))


def _embedding(h: Tensor | np.ndarray) -> np.ndarray:
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
    classes: np.ndarray, labels: np.ndarray, seed: int, folds: int, inner_folds: int
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
        warnings.warn(f"{message} instead of {folds} and {inner_folds}.", stacklevel=3)
    return outer, inner
