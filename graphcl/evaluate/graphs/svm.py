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

Pair = tuple[slice, slice, np.ndarray]  # training rows of one class, of another class, and their kernel matrix
TOLERANCE = 1e-3  # the default of SVC, so that both solvers agree
STEPS = 10_000_000  # LIBSVM's limit
CACHED_ROWS = 512


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

    Memory: about 8 n^2 bytes, and up to 14 n^2 for each worker.

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
        size = (len(part[0]) + len(part[1])) * len(part[0])
        if getattr(buffers, "kernel", np.empty(0)).size < size:
            buffers.kernel = np.empty(size)
        kernel = rbf_kernel(data.h, part, distances, buffers.kernel)
        return kernel_hits(kernel, data.labels, part, candidates)

    return data.scores([float(c) for c in grid], hits)


def _of_kernel(kernel: Kernel, data: Folds, grid: Sequence[float]) -> FoldScores:
    """Return the scores of a kernel; candidates are its settings, each with all values of C."""
    every = torch.arange(kernel.n)
    tables = [kernel.similarity(setting, every.numpy())(every, every).float().numpy() for setting in kernel.settings]

    def hits(part: Part, candidates: Sequence[tuple[int, float]]) -> list[np.ndarray]:
        part = sorted_by_class(part, data.labels)
        of_tables = []
        for number, pairs in itertools.groupby(candidates, key=operator.itemgetter(0)):
            table = tables[number][np.ix_(np.concatenate(part), part[0])].astype(float)
            of_tables += kernel_hits(table, data.labels, part, [c for _, c in pairs])
        return of_tables

    scores: Any = data.scores(list(itertools.product(range(len(tables)), map(float, grid))), hits)
    return dataclasses.replace(scores, chosen=tuple(float(kernel.settings[number]) for number, _ in scores.chosen))


def sorted_by_class(part: Part, labels: np.ndarray) -> Part:
    """Return `part` with its training rows sorted by class, as libsvm sorts them."""
    train, held = part
    return train[np.argsort(labels[train], kind="stable")], held


def kernel_hits(kernel: np.ndarray, labels: np.ndarray, part: Part, candidates: Sequence[float]) -> list[np.ndarray]:
    """Return for each value of C whether an SVM classifies each held-out row correctly.

    `kernel [train + held, train]`, within [-1, 1], is that of all rows in `part` against its training rows, which are
    sorted by class; `labels` are numbered from 0.
    """
    from sklearn import config_context
    from sklearn.svm import SVC

    train, truth = labels[part[0]], labels[part[1]]
    fit, held = np.split(kernel, [len(train)])
    pairs = [] if _svm is None else _pairs(fit, train)
    # libsvm allocates and clears its kernel cache in each fit, so a small cache makes easy fits a third faster.
    fixed = {"tol": TOLERANCE, "cache_size": CACHED_ROWS * len(train) * 4 / 2**20, "random_state": 0, "max_iter": STEPS}
    hits = []
    for c in candidates:
        predicted = _predict(held, train, c, pairs) if pairs else None
        if predicted is None:
            with config_context(assume_finite=True, skip_parameter_validation=True):
                predicted = SVC(C=c, kernel="precomputed", **fixed).fit(fit, train).predict(held)
        hits.append(np.asarray(predicted == truth))
    return hits


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


def rbf_kernel(h: Any, part: Part, distances: np.ndarray | None, buffer: np.ndarray) -> np.ndarray:
    """Return the kernel matrix `[train + held, train]` of all rows in `part` against its training rows, in `buffer`.

    Without `distances`, standardise the embedding `h` over the training rows.
    """
    from sklearn.preprocessing import StandardScaler

    rows, train = np.concatenate(part), part[0]
    kernel = buffer[: len(rows) * len(train)].reshape(len(rows), len(train))
    z = StandardScaler().fit(h[train]).transform(h[rows]) if distances is None else h[rows]
    fit = z[: len(train)]
    variance = fit.var() if isinstance(fit, np.ndarray) else fit.multiply(fit).mean() - fit.mean() ** 2
    gamma = 1 / (h.shape[1] * variance) if variance > np.finfo(float).tiny else 1.0
    if distances is None:
        # -gamma |a - b|^2 = 2 gamma ab - gamma aa - gamma bb, so one matrix product gives all exponents.
        z *= np.sqrt(2 * gamma)
        square, one = np.einsum("nd,nd->n", z, z)[:, None] / -2, np.ones((len(z), 1))
        left, right = np.hstack([z, square, one]), np.hstack([z, one, square])[: len(train)].T
    height = 128 if distances is None else 16  # blocks of rows that fit in the processor's cache
    for start in range(0, len(rows), height):
        end = min(start + height, len(rows))
        first = start if end <= len(train) else 0  # skip earlier columns, which follow by symmetry
        block = kernel[start:end, first:]
        if distances is None:
            np.matmul(left[start:end], right[:, first:], out=block)
        else:
            np.multiply(distances[rows[start:end]].take(train[first:], axis=1, mode="clip"), -gamma, out=block)
        np.exp(block, out=block)
        if first:
            kernel[start:end, :first] = kernel[:first, start:end].T
    np.fill_diagonal(kernel, 1)
    return kernel


def _pairs(kernel: np.ndarray, train: np.ndarray) -> list[Pair]:
    """Return a `Pair` for every two classes of the sorted labels `train` of the training rows."""
    bounds = np.flatnonzero(np.diff(train, prepend=-1, append=-1))
    classes = [slice(start, end) for start, end in itertools.pairwise(bounds.tolist())]
    pairs = []
    for one, two in itertools.combinations(classes, 2):
        rows = np.r_[one, two]
        square = np.zeros((len(rows), -(-len(rows) // 8) * 8), np.float32)  # the solver reads eight columns at a time
        square[:, : len(rows)] = kernel[np.ix_(rows, rows)]
        pairs.append((one, two, square))
    return pairs


def _predict(held: np.ndarray, train: np.ndarray, c: float, pairs: Sequence[Pair]) -> np.ndarray | None:
    """Return the class of each held-out row, by one-vs-one voting of SVMs that the compiled solver fits.

    Return None if a decision value is so close to 0 that the order of additions could change its sign.
    """
    votes = np.zeros((len(held), train[-1] + 1), np.int64)
    for one, two, square in pairs:
        n, positive = len(square), one.stop - one.start
        threshold, multipliers, converged = _svm.machine(square, n, positive, c, TOLERANCE, STEPS)
        if not converged:
            warn(f"the SVM did not converge in {STEPS} steps for C = {c:g}; use a smaller C.")
        weight = np.frombuffer(multipliers).copy()
        weight[positive:] *= -1
        decision = held[:, one] @ weight[:positive] + held[:, two] @ weight[positive:] - threshold
        if np.abs(decision).min() <= 1e-15 * len(train) * np.abs(weight).sum():
            return None
        votes[:, train[one.start]] += decision > 0
        votes[:, train[two.start]] += decision < 0
    return votes.argmax(1)
