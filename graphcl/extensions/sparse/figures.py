"""Draw patterns of graphs, and the learned weights of patterns by their frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from graphcl.extensions.sparse.explain import Pattern, load_patterns
from graphcl.report.style import COLOURS, INK, MUTED, panel, panels, style

READABLE = 24
"""Largest number of nodes whose labels are drawn."""
_TEXT = 8
"""Largest number of letters of a label."""


def patterns_section(arrays: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """Return the figures of a run's report: all weights, and the heaviest patterns; None without patterns.

    Args:
        arrays: arrays of `report.npz`; those of `graphcl.extensions.sparse.explain.survey` begin with `patterns_`.
    """
    prefix = "patterns_"
    arrays = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
    if not arrays:
        return None
    weight, heaviest = arrays["weight"], load_patterns(arrays)
    weights = f"weights of {len(weight)} patterns, {weight.min():.2f} to {weight.max():.2f}"
    return {
        "title": "Patterns",
        "parts": [
            (
                [(weights, weights_figure(arrays["frequency"], weight, arrays["depth"]))],
                "Learned weight of each pattern that occurs in two training groups or more, at its first occurrence in "
                "a graph; before training, all weights are 1.",
            ),
            (
                [(f"the {len(heaviest)} heaviest patterns", pattern_figure(heaviest))],
                "The heaviest patterns, each with an example: the node with the thick border and all that its colour "
                "sees. Numbers are labels: the column of a node's largest feature.",
            ),
        ],
    }


@style()
def pattern_figure(patterns: Sequence[Pattern], names: Sequence[str] | None = None) -> Any:
    """Return a figure of patterns, each as an example: its node has a thick border.

    Args:
        patterns: patterns, such as those of `graphcl.extensions.sparse.explain.explain`.
        names: name of each label; default: its number. The label of a node is the column of its largest feature; or
            its feature, if there is one column.
    """
    figure, axes = panels(max(len(patterns), 1), 1.75, 1.9, columns=4)
    for axis, pattern in zip(axes, patterns, strict=False):
        _draw(axis, pattern, names)
    for axis in axes:
        axis.set_axis_off()
    return figure


@style()
def weights_figure(frequency: np.ndarray, weight: np.ndarray, depth: np.ndarray) -> Any:
    """Return a scatter plot of the weights of patterns over the number of training groups with each; all `[K]`."""
    figure, axis = panel("weight by frequency", 4.6, 2.8)
    jitter = np.random.default_rng(0).uniform(0.9, 1.1, len(frequency))
    for number in np.unique(depth):
        mine = depth == number
        x, colour = frequency[mine] * jitter[mine], COLOURS[int(number) % len(COLOURS)]
        axis.plot(x, weight[mine], "o", color=colour, ms=3, mew=0, alpha=0.5, label=f"depth {number:.0f}")
    axis.set(xscale="log", yscale="log", xlabel="training groups with the pattern", ylabel="weight")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    axis.axhline(1, color=MUTED, lw=0.8)
    axis.legend(markerscale=2, handletextpad=0.2, ncols=2)
    return figure


def labels_of(x: Tensor) -> np.ndarray:
    """Return the label of each node `[n]`: the column of its largest feature, or its feature if there is one column."""
    return (x[:, 0] if x.size(1) == 1 else x.argmax(1)).long().cpu().numpy()


def _draw(axis: Any, pattern: Pattern, names: Sequence[str] | None) -> None:
    labels, place = labels_of(pattern.x), _places(pattern)
    for source, target in pattern.edge_index.T.tolist():
        axis.plot(*place[[source, target]].T, color=MUTED, lw=0.8, zorder=1)
    size = 4 if len(labels) > READABLE else 11 if names is None else 7
    text = {"ha": "center", "fontsize": 6.5}
    for number, (label, at) in enumerate(zip(labels, place, strict=True)):
        axis.plot(*at, "o", color=COLOURS[label % len(COLOURS)], ms=size, mec=INK, mew=1.5 * (number == 0))
        if size > 4 and names is None:
            axis.annotate(str(label), at, color="white", va="center", **text)
        elif size > 4 and names is not None:
            axis.annotate(names[label][:_TEXT], at, (0, -5), textcoords="offset points", va="top", **text)
    first, second = f"weight {pattern.weight:.2f}", f"in {pattern.frequency} groups"
    if pattern.share:
        first, second = f"{100 * pattern.share:.1f} % of the cosine", f"{pattern.nodes[0]} and {pattern.nodes[1]} times"
    axis.set_title(f"{first}\n{second}, depth {pattern.depth}", fontsize=7, fontweight="normal", loc="center")
    low, high = place.min(0), place.max(0)
    middle, reach = (low + high) / 2, max((high - low).max() / 2, 0.1) * 1.3
    axis.set(xlim=middle[0] + [-reach, reach], ylim=middle[1] + [-reach, reach], aspect="equal")


def _places(pattern: Pattern) -> np.ndarray:
    """Return the position of each node `[n, 2]`."""
    import networkx

    network = networkx.Graph(pattern.edge_index.T.tolist())
    network.add_node(0)
    layout = networkx.kamada_kawai_layout(network)
    return np.array([layout[node] for node in range(len(layout))])
