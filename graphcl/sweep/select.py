"""Select a label, such as a temperature, for every test fold by its inner folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from graphcl.evaluate import FoldScores

P = TypeVar("P", bound=Hashable)


def select(places: Mapping[P, Mapping[str, Sequence[FoldScores]]]) -> dict[P, tuple[list[FoldScores], Counter[str]]]:
    r"""Return the scores of each place with the selected labels, and for how many test folds each label was selected.

    $$v_{skp} = \arg\max_v \Big( i_{vskp} + \sum_{q \ne p} \frac{1}{K_q} \sum_l i_{vslq} \Big)$$

    where $i_{vskp}$ is the inner score of label v with seed s on place p, from the inner folds of test fold k. All
    places share the choice, but for the first term, so one label per test fold of each place. It never uses a graph of
    the test fold it is made for. With one place, that is nested cross-validation.

    Args:
        places: place -> label -> scores of each finished seed. A seed counts if every label of every place has it.
    """
    every = [{scores.seed: scores for scores in seeds} for labels in places.values() for seeds in labels.values()]
    common = sorted(set.intersection(*map(set, every)))
    found: dict[P, tuple[list[FoldScores], Counter[str]]] = {place: ([], Counter()) for place in places}
    for seed in common:
        scores = {
            place: {label: next(each for each in seeds if each.seed == seed) for label, seeds in labels.items()}
            for place, labels in places.items()
        }
        means = {place: {label: _inner(each).mean() for label, each in own.items()} for place, own in scores.items()}
        for place, own in scores.items():
            others = [sum(means[other][label] for other in places if other != place) for label in own]
            merits = np.stack([_inner(each) for each in own.values()]) + np.array(others)[:, None]
            labels, best = list(own), merits.argmax(0)
            picked = [own[labels[label]] for label in best]
            accuracy, chosen, inner = (
                tuple(getattr(each, name)[fold] for fold, each in enumerate(picked))
                for name in ("accuracy", "chosen", "inner")
            )
            found[place][0].append(replace(picked[0], accuracy=accuracy, chosen=chosen, inner=inner))
            found[place][1].update(labels[label] for label in best)
    return found


def _inner(scores: FoldScores) -> np.ndarray:
    """Return the inner score of each test fold, negative for errors."""
    return np.array(scores.inner) * (-1 if scores.is_error else 1)
