"""The SVM score of a frozen embedding: the protocol of GraphCL (You et al. 2020), from the search for C to the ±.

- Embedding: the readout before the projector, frozen, one row per graph, as it is; `scale=True` standardises columns.
- Outer folds: 10, stratified, shuffled by the seed. Each is the test part once; its accuracy, in percent, is the score.
- C: of 1e-3, 1e-2, ..., 1e3 the best by mean accuracy over 5 stratified folds of the outer training part, shuffled by
  the seed; the first (smallest) of equals. Then refit on that whole part. Gamma and the columns' means and deviations
  come from the training part at hand, in the inner folds too. No test fold chooses C, gamma or the epoch.
- A class too small for that many folds reduces them, with a warning.
- `mean ± std_seeds` of a `Summary`: over the per-seed means, with ddof 0 as the authors' `np.std`. It says how far a
  result moves with the seed, not how well the mean is known. `std_folds` is the spread over the test folds of one seed,
  several times larger, and printed as ± by other papers. To compare two embeddings, use `paired_gain`.

The result is that of `GridSearchCV(SVC(), {"C": grid}, cv=StratifiedKFold(5, shuffle=True, random_state=seed))` on
every outer fold, with a `StandardScaler` in front for
`scale=True`: one table of distances serves every kernel, one kernel every C. What is left is nearly all libsvm's
solver, at large C above all. CPU seconds of one seed, untrained GIN (96 columns), `GridSearchCV` / here: PROTEINS (1113
graphs) 8.7 / 2.9, scaled 12.0 / 5.2; NCI1 (4110) 118 / 29. Two threads are 1.8 times as fast as one.
`benchmarks/evaluate.py` measures it. Only a decision of exactly 0, for a row amid two others of different class on one
line, can differ: it hangs on the last bit of an exponential.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphcl.evaluate.folds import C_GRID, OnFold, Part, c_grid, make_folds, pair_dots
from graphcl.evaluate.scores import FoldScores

TOLERANCE = 1e-3  # of SVC
CACHED_ROWS = 512


def svm(
    h: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    seed: int = 0,
    folds: int = 10,
    inner_folds: int = 5,
    grid: Sequence[float] = C_GRID,
    scale: bool = False,
    workers: int | None = None,
    on_fold: OnFold | None = None,
) -> FoldScores:
    r"""Cross-validated test accuracy of a support vector machine with RBF kernel on a frozen embedding.

    $$k(h_i, h_j) = e^{-\gamma \|h_i - h_j\|^2}, \qquad \gamma = 1 / (D \operatorname{var} H_\text{train})$$

    Memory: about 8 n^2 bytes, and as much again for each worker.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; computed with in float64 on the CPU.
        y: class of each graph `[n]`, any integers.
        seed: shuffles the outer and the inner folds; nothing else is random.
        folds: outer folds, at least 2; at most the size of the smallest class is used.
        inner_folds: folds of the search for C, at least 2; reduced in the same way.
        grid: the values of C, > 0; the first of equals is chosen.
        scale: whether to standardise each column by its mean and deviation over the training part.
        workers: threads; by default every core this process may use. The result does not depend on them.
        on_fold: called with the number of finished outer folds and of all, for a progress bar.

    Returns:
        `FoldScores`, folds in the order of `StratifiedKFold(folds, shuffle=True, random_state=seed)`, and C `chosen`.

    Raises:
        InputError: an argument breaks its rule, or a class is too small for two outer and two inner folds.

    Example:
        >>> h, y = np.tile([[0.0], [1.0]], (6, 1)), np.tile([0, 1], 6)
        >>> svm(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)

    Reference: Y. You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
    """
    candidates = c_grid(grid)
    data = make_folds(h, y, seed, folds, inner_folds, workers, on_fold)
    distances = None if scale else _distances(data.h, data.workers)
    rooms = threading.local()  # a fresh kernel costs as much in page faults as in arithmetic

    def accuracies(part: Part, candidates: Sequence[float]) -> list[float]:
        size = (len(part[0]) + len(part[1])) * len(part[0])
        if getattr(rooms, "room", np.empty(0)).size < size:
            rooms.room = np.empty(size)
        kernel = _kernel(data.h, part, distances, rooms.room)
        return [_accuracy(kernel, data.labels, part, c) for c in candidates]

    return data.scores(candidates, accuracies)


def _distances(h: np.ndarray, workers: int = 1) -> np.ndarray:
    """Squared distances `[n, n]`, in the very arithmetic of libsvm: one BLAS dot per pair, (ii + jj) - 2 ij."""
    dots = pair_dots(h, workers)
    square = dots.diagonal().copy()
    for row, own in zip(dots, square, strict=True):
        row *= -2
        row += own + square
    return dots


def _kernel(h: np.ndarray, part: Part, distances: np.ndarray | None, room: np.ndarray | None = None) -> np.ndarray:
    """Kernel of the training rows, then the held-out rows, against the training rows, `[train + held, train]`.

    Without `distances`, those of the embedding standardised over the training rows. It lies in `room`, if given.
    """
    from sklearn.preprocessing import StandardScaler

    rows, train = np.concatenate(part), part[0]
    room = np.empty(len(rows) * len(train)) if room is None else room
    kernel = room[: len(rows) * len(train)].reshape(len(rows), len(train))
    z = StandardScaler().fit(h[train]).transform(h[rows]) if distances is None else h[rows]
    trained, square = z[: len(train)], np.einsum("nd,nd->n", z, z)
    variance = trained.var()
    gamma = 1 / (h.shape[1] * variance) if variance != 0 else 1.0
    height = 128 if distances is None else 16  # what stays in the processor's cache from step to step
    for start in range(0, len(rows), height):
        block = slice(start, start + height)
        if distances is None:
            np.matmul(z[block], trained.T, out=kernel[block])
            kernel[block] *= -2
            kernel[block] += square[block, None]
            kernel[block] += square[: len(train)]
        else:
            distances[rows[block]].take(train, axis=1, out=kernel[block], mode="clip")
        kernel[block] *= -gamma
        np.exp(kernel[block], out=kernel[block])
    np.fill_diagonal(kernel, 1)
    return kernel


def _accuracy(kernel: np.ndarray, labels: np.ndarray, part: Part, c: float) -> float:
    """Share of held-out rows that the machine with this C, fitted on the training rows, gets right."""
    from sklearn import config_context
    from sklearn.svm import SVC

    train, truth = labels[part[0]], labels[part[1]]
    certain = _certain_class(train, c)
    if certain is not None:
        return float(np.mean(truth == certain))
    fit, held = np.split(kernel, [len(train)])
    # libsvm keeps rows of the kernel for reuse; it takes and clears memory anew for each fit, so to keep all of them,
    # as by default, costs a third of the time of an easy fit.
    cache = CACHED_ROWS * len(train) * 4 / 2**20
    with config_context(assume_finite=True, skip_parameter_validation=True):
        model = SVC(C=c, kernel="precomputed", tol=TOLERANCE, cache_size=cache, random_state=0).fit(fit, train)
        if len(model.classes_) == 2:
            # One product instead of libsvm's sums, unless one is so near 0 that the order of addition could tell.
            weight = np.zeros(len(train))
            weight[model.support_] = model.dual_coef_[0]
            margin = held @ weight + model.intercept_
            if np.abs(margin).min() > 1e-15 * len(train) * np.abs(weight).sum():
                return float(np.mean((margin > 0) == truth))
        return float(np.mean(model.predict(held) == truth))


def _certain_class(train: np.ndarray, c: float) -> int | None:
    """The class that every row gets, where C is so small that the sizes of the classes decide, else None.

    Take the machine between the largest class, +, and another, of m rows. Both classes' multipliers add up to the same,
    at most C m, so g(x) = sum of +-alpha k lies in [-C m, C m] for every x. Some row i of + is below its bound C, and
    where libsvm stops such a row has a decision g(x_i) - rho >= 1 - tolerance. So every decision is at least
    1 - tolerance - 2 C m; where that is positive, + wins all its duels, whatever the embedding.
    """
    sizes = np.bincount(train)
    largest = int(sizes.argmax())
    second = int(np.delete(sizes, largest).max())
    sure = second < sizes[largest] and 2 * c * second < 0.99 - TOLERANCE  # a hundredth for libsvm's float32
    return largest if sure else None
