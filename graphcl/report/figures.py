"""Draw the figures of a run's report: scores, training curves, maps of the embeddings, cosines, predictions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from graphcl.evaluate import FoldScores, metric_name
from graphcl.report.style import BEST, COLOURS, MARKERS, MUTED, TRAINED, UNTRAINED, panel, style
from graphcl.report.summary import EDGES

CLASSES = len(COLOURS) * len(MARKERS)
"""Number of distinct combinations of colour and marker; further classes are drawn as grey dots."""
KINDS = {
    "positive": ("positives", COLOURS[1], "-"),
    "negative": ("negatives", COLOURS[0], "-"),
    "same_class": ("negatives of the same class", COLOURS[2], "--"),
}
"""Name of a histogram in `snapshot` -> its label, colour and line style."""
POINTS = 2000
"""Largest number of graphs in a plot; more points would overlap and make the page large."""
ESTIMATES = {
    "mi_infonce": ("InfoNCE", COLOURS[0], "-"),
    "mi_donsker_varadhan": ("Donsker-Varadhan", COLOURS[1], "-"),
    "mi_nwj": ("NWJ", COLOURS[2], "-"),
    "mi_limit": ("limit of InfoNCE", MUTED, "--"),
}
"""Metric of an estimate of mutual information -> its label, colour and line style."""


@style()
def gains(title: str, rows: Mapping[str, Sequence[FoldScores]]) -> Any:
    """Return a figure with each seed's mean scores in several rows joined by a line; faint dots are folds.

    Args:
        title: title of the figure.
        rows: label -> scores of each seed; the first row is the untrained encoder, the last the trained one, a row in
            between the best row without training.
    """
    figure, axis = panel(title, height=2.6)
    for seeds in zip(*rows.values(), strict=True):
        axis.plot(range(len(rows)), [score.mean for score in seeds], color=MUTED, lw=1, zorder=3)
    for place, scores in enumerate(rows.values()):
        colour = (UNTRAINED, BEST, TRAINED)[place if place < len(rows) - 1 else 2]
        # small folds often have equal scores, so dots are offset sideways to keep all visible
        folds = np.concatenate([score.accuracy for score in scores])
        axis.scatter(place + _offsets(folds, 0.035), folds, s=9, color=colour, alpha=0.35, linewidths=0)
        means = [score.mean for score in scores]
        axis.scatter([place] * len(means), means, s=34, color=colour, zorder=4)
        top, above = (place, max(folds)), {"textcoords": "offset points", "ha": "center", "weight": "bold"}
        axis.annotate(f"{np.mean(means):.2f}", top, (0, 6), **above)
    axis.margins(y=0.14)
    axis.set(xlim=(-0.5, len(rows) - 0.5), ylabel=metric_label(scores[0].metric))
    axis.set_xticks(range(len(rows)), [textwrap.fill(label, 16) for label in rows])
    axis.grid(False, axis="x")
    return figure


def metric_label(metric: str) -> str:
    """Return the axis label for `metric`, a key of `METRICS`."""
    return metric_name(metric).replace(" %", " in %")


def _offsets(values: np.ndarray, step: float) -> np.ndarray:
    """Return horizontal offsets that separate equal `values`, by `step`, or by less if many values are equal."""
    order = np.zeros(len(values))
    for value in np.unique(values.round(6)):
        (same,) = np.nonzero(values.round(6) == value)
        order[same] = np.arange(len(same)) - (len(same) - 1) / 2
    widest = max(1.0, 2 * np.abs(order).max())
    return np.asarray(order * min(step, 0.5 / widest))


@style()
def curves(title: str, by_seed: Mapping[str, Sequence[float]]) -> Any:
    """Return a figure of a metric over the epochs: a line per seed, with a value per epoch, and the mean over seeds."""
    figure, axis = panel(title, height=2.1)
    longest = max(map(len, by_seed.values()))
    single = len(by_seed) == 1
    for values in by_seed.values():
        style = {"color": TRAINED, "lw": 1.6} if single else {"color": MUTED, "lw": 0.7, "alpha": 0.7}
        axis.plot(range(1, len(values) + 1), values, marker="o" if longest == 1 else None, ms=4, **style)
    common = min(map(len, by_seed.values()))
    if not single:
        mean = np.mean([values[:common] for values in by_seed.values()], axis=0)
        axis.plot(range(1, common + 1), mean, color=TRAINED, lw=2, marker="o" if longest == 1 else None, ms=4)
    _number_epochs(axis, longest)
    return figure


@style()
def information(title: str, means: Mapping[str, Sequence[float]]) -> Any:
    """Return a figure of estimates of mutual information over the epochs: a line per key of `ESTIMATES` in `means`.

    The axis begins at 0, or at the lowest value of an estimate other than NWJ, which may be a huge negative number.
    """
    figure, axis = panel(title, height=2.1)
    longest = max(map(len, means.values()))
    for name, values in means.items():
        _, colour, line = ESTIMATES[name]
        axis.plot(range(1, len(values) + 1), values, color=colour, ls=line, marker="o" if longest == 1 else None, ms=4)
    bounded = [value for name, values in means.items() if name != "mi_nwj" for value in values]
    low, high = min(0.0, *bounded), max(map(max, means.values()))
    axis.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
    axis.set_ylabel("nats")
    _number_epochs(axis, longest)
    return figure


def _number_epochs(axis: Any, longest: int) -> None:
    """Let the x axis run from epoch 1 to `longest`, with a tick at every epoch if they are few."""
    axis.set(xlabel="epoch", xlim=(0.5, longest + 0.5))
    axis.set_xticks(range(1, longest + 1) if longest < 6 else axis.get_xticks()[1:-1].astype(int))


def principal_plane(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project embeddings with standardised columns onto their first two principal components.

    The projection is linear without parameters, so points that are far apart in the plane are also far apart in the
    standardised embedding. t-SNE would take seconds and might show clusters that the embedding does not have.

    Args:
        h: embeddings `[n, H]`.

    Returns:
        The coordinates `[n, 2]` and the explained variance ratio of each component `[2]`; zeros for components without
        variance. The sign of each component is chosen such that its skewness is not negative.

    Example:
        >>> points, shares = principal_plane(np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]))
        >>> shares.round(3).tolist()
        [1.0, 0.0]
    """
    columns = torch.from_numpy(h).double()  # torch keeps to its number of threads, unlike numpy's linear algebra
    mean, deviation = columns.mean(dim=0), columns.std(dim=0, correction=0)
    constant = deviation <= len(h) * torch.finfo(torch.float64).eps * mean.abs()
    columns = ((columns - mean) / deviation).masked_fill(constant, 0)
    u, values, _ = torch.linalg.svd(columns, full_matrices=False)
    top = (u * values)[:, :2]
    top *= torch.where((top**3).sum(dim=0) < 0, -1, 1)
    shares = values[:2] ** 2 / values.square().sum().clamp(min=torch.finfo(torch.float64).tiny)
    missing = 2 - top.size(1)  # an embedding of one column has one component
    return F.pad(top, (0, missing)).numpy(), F.pad(shares, (0, missing)).numpy()


def plot_indices(count: int) -> np.ndarray:
    """Return up to `POINTS` evenly spaced indices of `count` graphs, so that sorted data sets keep all classes."""
    return np.linspace(0, count - 1, min(count, POINTS)).astype(np.int64)


@style()
def embedding_map(title: str, points: np.ndarray, shares: np.ndarray, y: np.ndarray | None = None) -> Any:
    """Return a scatter plot of `points [n, 2]`, the first two principal components of embeddings with classes `y [n]`.

    Points far outside the 1st to 99th percentile of a component are moved to the border, so that outliers do not
    compress the other points. `shares [2]` is the fraction of the variance in each component.
    """
    figure, axis = panel(title, height=2.9)
    low, high = np.percentile(points, [1, 99], axis=0)
    margin = 0.12 * (high - low) + 1e-9
    low, high = low - margin, high + margin
    inside = points.clip(low, high)
    random = np.random.default_rng(0)
    # draw random portions of all classes in turn, so that no class covers the other classes
    for part in np.array_split(random.permutation(len(inside)), 12):
        mine = np.zeros(len(part)) if y is None else y[part]
        for number in random.permutation(np.unique(mine)):
            colour, marker = class_style(None if y is None else number)
            axis.plot(*inside[part][mine == number].T, marker, color=colour, ms=3.2, mew=0, alpha=0.7)
    pad = 0.02 * (high - low)
    (left, bottom), (right, top) = low - pad, high + pad
    axis.set(xlim=(left, right), ylim=(bottom, top))
    first, second = (f"component {i + 1} ({100 * share:.0f} %" for i, share in enumerate(shares))
    axis.set(xlabel=f"{first} of the variance)", ylabel=f"{second})")
    return figure


def class_style(number: int | None) -> tuple[str, str]:
    """Return the colour and marker of class `number`; None stands for graphs without labels."""
    if number is None:
        return TRAINED, "o"
    if number >= CLASSES:
        return MUTED, "o"
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


@style()
def similarities(title: str, counts: Mapping[str, np.ndarray], top: float | None = None) -> Any:
    """Return a figure of the densities of cosines: one curve of area 1 per kind of pair.

    `counts` maps keys of `KINDS` to the number of pairs in each bin of `EDGES`, `[K]`; `top` is the limit of the axis.
    """
    figure, axis = panel(title)
    for kind, (_, colour, line) in KINDS.items():
        if kind in counts and counts[kind].sum():
            axis.stairs(density(counts[kind]), EDGES, color=colour, lw=1.6, ls=line, zorder=3)
            axis.stairs(density(counts[kind]), EDGES, color=colour, alpha=0.13, fill=True)
    axis.set(xlim=(-1.02, 1.02), ylim=(0, top), xlabel="cosine of two projections", ylabel="density")
    axis.set_xticks((-1, -0.5, 0, 0.5, 1))
    return figure


def density(counts: np.ndarray) -> np.ndarray:
    """Return the density of a histogram over `EDGES`: `counts [K]` scaled to an area of 1."""
    return np.asarray(counts / (counts.sum() * np.diff(EDGES)))


@style()
def agreement(title: str, measured: np.ndarray, predicted: np.ndarray) -> Any:
    """Return a scatter plot of measured and predicted numbers on equal axes, with the line where both are equal."""
    figure, axis = panel(title, height=3.5)
    low, high = float(min(measured.min(), predicted.min())), float(max(measured.max(), predicted.max()))
    pad = 0.05 * (high - low) or 1.0
    ends = low - pad, high + pad
    axis.plot(ends, ends, color=MUTED, lw=1)
    axis.plot(measured, predicted, "o", color=TRAINED, ms=3.6, mew=0, alpha=0.6)
    errors = predicted - measured
    text = f"RMSE {np.sqrt(np.mean(errors**2)):.3g}, MAE {np.abs(errors).mean():.3g}"
    if measured.std() > 0:
        text += f", R2 {1 - np.mean(errors**2) / measured.var():.2f}"
    axis.set(xlim=ends, ylim=ends)
    axis.set_xticks(axis.get_yticks())
    axis.set(xlim=ends, ylim=ends, xlabel=f"measured\n{text}", ylabel="predicted")
    axis.set_box_aspect(1)
    return figure
