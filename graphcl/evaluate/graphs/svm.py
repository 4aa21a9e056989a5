"""Score a frozen embedding by an RBF SVM, by the protocol of GraphCL (You et al. 2020).

- Embedding: the readout before the projector, one row per graph, frozen, unscaled. `scale=True` standardises columns.
- Outer folds: 10, stratified, shuffled by the seed. Each fold is the test part once. The score is the accuracy on the
  test part in percent.
- C: the value of 1e-3, 1e-2, ..., 1e3 with the best mean accuracy over 5 inner folds of the outer training part, which
  are drawn alike. Of equally good values, the smallest is chosen. The SVM is then fitted on the whole outer training
  part. Each fit computes gamma, and the means and deviations of the columns, from its own training rows. No test graph
  influences the choice of C, gamma or the epoch.
- `mean ± std_seeds` of a `Summary`: mean and sample standard deviation (n - 1) of the per-seed means. The authors'
  `np.std` has divisor n: for five seeds it is 11 % smaller. Other papers report `std_folds`, which is several times
  larger. To compare embeddings, use `paired_gain`.

The result equals that of `GridSearchCV(SVC(), {"C": grid}, cv=StratifiedKFold(5, shuffle=True, random_state=seed))` on
every outer fold, with a `StandardScaler` in front if `scale=True`. One table of distances is used for all kernels, and
one kernel for all C. `_svm.c` solves the dual problem with the same steps as libsvm, in vectorised loops, and returns
bitwise the same multipliers. Without a C compiler or a processor with AVX2, `SVC` is used instead. Results can differ
in four cases:

- A decision value is exactly 0, as for a row midway between two rows of different classes. Its sign then depends on the
  last bit of an exponential.
- The mean of a column is 1e7 times its deviation or more. Distances are computed from centred columns, while rounding
  errors dominate those of `SVC`.
- All rows are equal. The largest class of each training part is predicted, without a fit.
- A fit does not converge in 10 million steps, the limit of libsvm's own tools; `SVC` has none. A warning names C.

`benchmarks/evaluate.py` measures the time.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import Costs, Count, FoldCount, Seed
from graphcl.errors import warn
from graphcl.evaluate.folds import C_GRID, Folds, OnFold, OnTest, Part, Splits, embedding, make_folds, pair_dots
from graphcl.evaluate.graphs.retrieval import Kernel
from graphcl.evaluate.scores import FoldScores
from graphcl.registry import evaluators

try:
    from graphcl.evaluate.graphs import _svm  # type: ignore[attr-defined]
except ImportError:  # no C compiler or no AVX2, so `SVC` is used
    _svm = None

Rows = tuple[np.ndarray, np.ndarray]
"""Kernel of the training rows, float32 with zeros behind each row; of the held-out rows against them, float64."""
TOLERANCE = 1e-3  # the default of SVC, so that both solvers agree
STEPS = 10_000_000  # LIBSVM's limit
CACHED_ROWS = 512
BLOCK = 16  # the solver reads as many columns at a time


@evaluators.register("svm", forms="dense sparse kernel", usual="labels")
def svm(
    h: Tensor | np.ndarray | Kernel,
    y: Tensor | np.ndarray,
    *,
    seed: Seed = 0,
    folds: FoldCount = 10,
    inner_folds: FoldCount = 5,
    grid: Costs = C_GRID,
    scale: bool = False,
    workers: Count | None = None,
    on_fold: OnFold | None = None,
    on_test: OnTest | None = None,
    cv: Splits | None = None,
) -> FoldScores:
    r"""Return the cross-validated test accuracy in percent of an RBF support vector machine on a frozen embedding.

    $$k(h_i, h_j) = e^{-\gamma \|h_i - h_j\|^2}, \qquad \gamma = 1 / (D \operatorname{var} H_\text{train})$$

    where $h_i$ is the embedding of graph i, D its width, and var the variance of all entries of the training rows.

    Memory: about 8 n^2 bytes, and up to 11 n^2 for each worker.

    Args:
        h: embedding `[n, D]`, any float dtype, any device; converted to float64 on the CPU. Without `scale`, a sparse
            matrix of SciPy too. Or a `Kernel` within [-1, 1], computed once for all graphs, which replaces k; inner
            folds choose its setting and C together.
        y: class of each graph `[n]`, whole numbers or strings; tensor, array or pandas Series.
        seed: seed of the outer and the inner folds; nothing else is random.
        folds: number of outer folds, at least 2; reduced to the size of the smallest class.
        inner_folds: number of inner folds, which choose C, at least 2; reduced if a class is too small.
        grid: candidates for C, in [1e-100, 1e100]; the first of equally good candidates is chosen.
        scale: whether to standardise each column by its mean and standard deviation over the training part.
        workers: number of threads; one per available core by default. The result does not depend on it.
        on_fold: called with the finished and the total number of inner folds, for a progress bar.
        on_test: called for each outer fold with its test rows, and for each row whether it is classified correctly.
        cv: outer folds of your own in place of `folds`, as `cv` of scikit-learn: pairs of training rows and test
            rows, indices or masks.

    Returns:
        `FoldScores` in the fold order of `StratifiedKFold(folds, shuffle=True, random_state=seed)`; `chosen` holds C,
        or the setting of a kernel.

    Raises:
        InputError: an argument is invalid, or a class is too small for two outer and two inner folds.

    Warns:
        InputWarning: a class is too small for these numbers of folds, or a fit did not converge in 10 million steps,
            which happens for a C of 1e5 and more on noisy embeddings. The score then uses the last step's multipliers.

    Example:
        >>> h, y = np.tile([[0.0], [1.0]], (6, 1)), np.tile([0, 1], 6)
        >>> svm(h, y, folds=3, inner_folds=2).accuracy
        (100.0, 100.0, 100.0)
        >>> svm(h, y, folds=3, inner_folds=2)
        FoldScores(accuracy 100.00 ± 0.00 % over 3 folds, seed 0)

    Reference: Y. You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, section 5.
    """
    rows = np.arange(h.n)[:, None] if isinstance(h, Kernel) else embedding(h, sparse=not scale)
    data = make_folds(rows, y, seed, folds, inner_folds, workers, on_fold, on_test, cv)
    if isinstance(h, Kernel):
        return _of_kernel(h, data, grid)
    distances = None if scale else squared_distances(data.h, data.workers)
    buffers = threading.local()  # reuse memory, as page faults of a new kernel take as long as computing it

    def hits(part: Part, candidates: Sequence[float]) -> list[np.ndarray]:
        part = sorted_by_class(part, data.labels)
        if not hasattr(buffers, "kernel"):
            buffers.kernel = np.empty(max(_size(*map(len, other)) for other in data.outer))
        return kernel_hits(rbf_kernel(data.h, part, distances, buffers.kernel), data.labels, part, candidates)

    return data.scores([float(c) for c in grid], hits)


def _of_kernel(kernel: Kernel, data: Folds, grid: Sequence[float]) -> FoldScores:
    """Return the scores of a kernel; candidates are its settings, each with all values of C."""
    every = torch.arange(kernel.n)
    tables = [kernel.similarity(setting, every.numpy())(every, every).float().numpy() for setting in kernel.settings]

    def hits(part: Part, candidates: Sequence[tuple[int, float]]) -> list[np.ndarray]:
        part = sorted_by_class(part, data.labels)
        of_tables = []
        for number, pairs in itertools.groupby(candidates, key=operator.itemgetter(0)):
            fit, held = (tables[number][np.ix_(rows, part[0])] for rows in part)
            kernel = np.pad(fit, [(0, 0), (0, -len(fit) % BLOCK)]), held.astype(float)
            of_tables += kernel_hits(kernel, data.labels, part, [c for _, c in pairs])
        return of_tables

    scores: Any = data.scores(list(itertools.product(range(len(tables)), map(float, grid))), hits)
    return dataclasses.replace(scores, chosen=tuple(float(kernel.settings[number]) for number, _ in scores.chosen))


def sorted_by_class(part: Part, labels: np.ndarray) -> Part:
    """Return `part` with its training rows sorted by class, as libsvm sorts them."""
    train, held = part
    return train[np.argsort(labels[train], kind="stable")], held


def kernel_hits(kernel: Rows, labels: np.ndarray, part: Part, candidates: Sequence[float]) -> list[np.ndarray]:
    """Return for each value of C whether an SVM classifies each held-out row correctly.

    `kernel`, within [-1, 1], is that of the training rows, which are sorted by class, and that of the held-out rows
    against them; `labels` are numbered from 0.
    """
    fit, held = kernel
    train, truth = labels[part[0]], labels[part[1]]
    predicted = [None] * len(candidates) if _svm is None else _predict(fit, held, train, candidates)
    hits = []
    for c, classes in zip(candidates, predicted, strict=True):
        if classes is None:
            classes = _machine(c, len(train)).fit(fit[:, : len(train)].astype(float), train).predict(held)
        hits.append(np.asarray(classes == truth))
    return hits


def _machine(c: float, n: int) -> Any:
    """Return scikit-learn's SVM for a kernel of `n` rows."""
    from sklearn.svm import SVC

    # libsvm allocates and clears its kernel cache in each fit, so a small cache makes easy fits a third faster.
    cache = CACHED_ROWS * n * 4 / 2**20
    return SVC(C=c, kernel="precomputed", tol=TOLERANCE, cache_size=cache, random_state=0, max_iter=STEPS)


def squared_distances(h: Any, workers: int = 1) -> np.ndarray:
    """Return the squared distances `[n, n]` of the rows of `h`, as libsvm computes them: one dot product per pair.

    A value of each column is subtracted first, as a large mean would leave rounding errors only. It is the middle one,
    as it leaves whole numbers whole; of a sparse matrix, 0.
    """
    centre = np.partition(h, len(h) // 2, axis=0)[len(h) // 2] if isinstance(h, np.ndarray) else None
    dots = pair_dots(h if centre is None else h - centre, workers)
    square = dots.diagonal().copy()
    for row, square_of_row in zip(dots, square, strict=True):
        row *= -2
        row += square_of_row + square
        np.maximum(row, 0, out=row)  # of nearly equal rows, rounding may leave a negative value
    return dots


def rbf_kernel(h: Any, part: Part, distances: np.ndarray | None, buffer: np.ndarray) -> Rows:
    """Return the kernel of the training rows, and of the held-out rows against the training rows, in `buffer`.

    Without `distances`, standardise the embedding `h` over the training rows.
    """
    (train, held), n = part, len(part[0])
    fit = buffer[: _size(n, 0)].view(np.float32).reshape(n, -1)
    rest = buffer[_size(n, 0) : _size(n, len(held))].reshape(-1, n)
    z = h[train]
    if distances is None:
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(z)
        z = scaler.transform(z)
    variance = z.var() if isinstance(z, np.ndarray) else z.multiply(z).mean() - z.mean() ** 2
    gamma = 1 / (h.shape[1] * variance) if variance > np.finfo(float).tiny else 1.0
    if distances is None:
        _exponentials(_exponents(z, z, gamma), np.arange(n), np.arange(n), 1.0, fit)
        _exponentials(_exponents(scaler.transform(h[held]), z, gamma), np.arange(len(held)), np.arange(n), 1.0, rest)
        np.fill_diagonal(fit, 1)
    else:
        _exponentials(distances, train, train, -gamma, fit)
        _exponentials(distances, held, train, -gamma, rest)
    return fit, rest


def _size(n: int, held: int) -> int:
    """Return the number of float64 values that the two kernels of `n` training rows and the held-out rows fill."""
    return n * -(-n // BLOCK) * BLOCK // 2 + held * n


def _exponents(one: np.ndarray, two: np.ndarray, gamma: float) -> np.ndarray:
    """Return -gamma |a - b|^2 = 2 gamma ab - gamma aa - gamma bb of all pairs of rows, by one matrix product."""
    left, right = (np.einsum("nd,nd->n", z, z)[:, None] for z in (one, two))
    left = np.hstack([2 * gamma * one, -gamma * left, np.ones_like(left)])
    return left @ np.hstack([two, np.ones_like(right), -gamma * right]).T


def _exponentials(table: np.ndarray, rows: np.ndarray, columns: np.ndarray, factor: float, out: np.ndarray) -> None:
    """Write e^(factor d) of the `rows` and `columns` of `table` to `out`, and zeros to its further columns."""
    if _svm is not None:
        stride = out.shape[1] if out.dtype == np.float32 else 0
        rows, columns = rows.astype(np.int32), columns.astype(np.int32)
        _svm.rbf(table, table.shape[1], rows, columns, factor, out.ctypes.data, stride)
        return
    out[:, len(columns) :] = 0
    out[:, : len(columns)] = np.exp(factor * table[np.ix_(rows, columns)])


def _predict(
    fit: np.ndarray, held: np.ndarray, train: np.ndarray, candidates: Sequence[float]
) -> list[np.ndarray | None]:
    """Return for each C the class of each held-out row, by one-vs-one voting of SVMs that the compiled solver fits.

    It is None if a decision value is so close to 0 that the order of additions could change its sign. `train` are the
    sorted labels of the training rows.
    """
    bounds = np.flatnonzero(np.diff(train, prepend=-1, append=-1))
    classes = [slice(start, end) for start, end in itertools.pairwise(bounds.tolist())]
    votes = np.zeros((len(candidates), len(held), train[-1] + 1), np.int64)
    unsure = np.zeros(len(candidates), bool)
    for one, two in itertools.combinations(classes, 2):
        kernel, positive = _of_classes(fit, one, two), one.stop - one.start
        weights, thresholds = [], []
        for c in candidates:
            threshold, multipliers, converged = _svm.machine(kernel, len(kernel), positive, c, TOLERANCE, STEPS)
            if not converged:
                warn(f"the SVM did not converge in {STEPS} steps for C = {c:g}; use a smaller C.")
            weights.append(np.frombuffer(multipliers))
            thresholds.append(threshold)
        weight = np.stack(weights, axis=1)
        decision = held[:, one] @ weight[:positive] - held[:, two] @ weight[positive:] - thresholds
        unsure |= np.abs(decision).min(0) <= 1e-15 * len(train) * weight.sum(0)
        votes[:, :, train[one.start]] += decision.T > 0
        votes[:, :, train[two.start]] += decision.T < 0
    return [None if stop else of_c.argmax(1) for stop, of_c in zip(unsure, votes, strict=True)]


def _of_classes(fit: np.ndarray, one: slice, two: slice) -> np.ndarray:
    """Return the kernel of the training rows of two classes; no copy if there are no others."""
    first, n = one.stop - one.start, one.stop - one.start + two.stop - two.start
    if n == len(fit):
        return fit
    kernel = np.zeros((n, -(-n // BLOCK) * BLOCK), np.float32)
    kernel[:first, :first], kernel[:first, first:n] = fit[one, one], fit[one, two]
    kernel[first:, :first], kernel[first:, first:n] = fit[two, one], fit[two, two]
    return kernel
