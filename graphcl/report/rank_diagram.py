"""Draw a critical-difference diagram of mean ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcl.report.style import INK, TRAINED, panel, style


@style()
def rank_diagram(ranks: Mapping[str, float], critical: float, title: str) -> Any:
    """Return a figure of mean ranks; bars join rows whose ranks differ by less than the critical difference.

    Args:
        ranks: row -> mean rank; 1, the best, is on the left.
        critical: critical difference, see `graphcl.sweep.across.Across`.
        title: title of the figure.

    References:
        Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006, figure 1.
    """
    rows = sorted(ranks.items(), key=lambda item: item[1])
    joined = groups([rank for _, rank in rows], critical)
    half = -(-len(rows) // 2)
    depth = len(joined) * 0.3 + 0.4
    figure, axis = panel(title, width=6.4, height=0.9 + 0.26 * (half + 1) + 0.3 * depth)
    highest = max(2, len(rows))
    axis.set(xlim=(0.2, highest + 0.8), ylim=(depth + half * 0.6 + 0.2, -0.9))
    axis.axis("off")
    axis.plot([1, highest], [0, 0], color=INK, lw=1)
    for tick in range(1, highest + 1):
        axis.plot([tick, tick], [-0.12, 0], color=INK, lw=1)
        axis.text(tick, -0.2, str(tick), ha="center", va="bottom")
    axis.plot([1, min(1 + critical, highest)], [-0.75, -0.75], color=INK, lw=2)
    axis.text(min(1 + critical, highest) + 0.05, -0.75, f"critical difference {critical:.2f}", va="center")
    for number, (row, rank) in enumerate(rows):
        left = number < half
        y = depth + 0.6 * (number if left else len(rows) - 1 - number)
        end = 0.9 if left else highest + 0.1
        axis.plot([rank, rank, end], [0, y, y], color=INK, lw=0.8)
        text = f"{row}  {rank:.2f}" if left else f"{rank:.2f}  {row}"
        axis.text(end, y, text, ha="right" if left else "left", va="center", clip_on=False)
    for number, (first, last) in enumerate(joined):
        y = 0.3 + 0.3 * number
        axis.plot([rows[first][1] - 0.04, rows[last][1] + 0.04], [y, y], color=TRAINED, lw=3, solid_capstyle="round")
    figure.subplots_adjust(left=0.24, right=0.76)
    return figure


def groups(ranks: list[float], critical: float) -> list[tuple[int, int]]:
    """Return the first and last index of each largest group of sorted `ranks` within the critical difference.

    Example:
        >>> groups([1.0, 1.5, 2.5, 4.0], 1.1)
        [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i, other in enumerate(ranks) if other - rank < critical)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
