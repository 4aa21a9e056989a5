"""Draw training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcl.report.style import MUTED, TRAINED, panel, style


@style()
def curves(title: str, by_seed: Mapping[int, Sequence[float]]) -> Any:
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
    axis.set(xlabel="epoch", xlim=(0.5, longest + 0.5))
    axis.set_xticks(range(1, longest + 1) if longest < 6 else axis.get_xticks()[1:-1].astype(int))
    return figure
