"""Compute and compare the rows of a run: embeddings or kernels that evaluators score, trained ones and references.

A row is a function of `Inputs` that returns an embedding `[n, columns]` or a `Kernel`, registered by
`graphcl.registry.references.register(name, **facts)`:

- `label`: name in tables; default: the row's name.
- `needs`: what a run must have, separated by blanks: `graphs` or `nodes`, `columns` that queries and targets share,
  `numbers` as features instead of categories, `dense` rows of the encoder, `groups` to score by, `batchnorm`,
  `trained`, a task of one of its evaluators, `graph.NAME`, an attribute of the graphs, or `module.NAME`, a module of an
  optional package; default: nothing.
- `task`: the row is scored by the evaluators of this task only, see `graphcl.evaluate.needs`; default: by all.
- `after`: row that it follows in tables, by name if several follow one row; default: behind the other references.

A row that needs `trained` is computed after training, and stands behind those that do not; all others are references.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import FoldScores, Kernel, best_row, paired_gain, summarise
from graphcl.models.batchnorm import has_batchnorm
from graphcl.models.contrastive import ContrastiveModel, Embeddings
from graphcl.registry import evaluators, references

Row = Tensor | Embeddings | Kernel


@dataclass(frozen=True)
class Inputs:
    """What rows are computed from.

    Args:
        dataset: data set, of n rows.
        batches: loader of all graphs in the order of the data set, then of augmented copies of some, if any. A row that
            embeds these batches is scored on the copies too.
        model: the model before training.
        calibrate: function that returns a copy of `model` with BatchNorm statistics of all graphs.
        parts: indices of the graphs in the parts of the split by group; None unless an evaluator scores by groups.
        max_degree: degrees from this one on are counted together.
        facts: needs that the data set meets, as the task says.
        untrained: the model with random weights, if `model` starts from the weights of another run.
        train_other: function that trains another encoder with the settings of the run, and returns its embeddings.
        trained: embeddings of `batches` by the trained encoder; None before training.
    """

    dataset: GraphDataset
    batches: Iterable[Batch]
    model: ContrastiveModel
    calibrate: Callable[[], ContrastiveModel]
    parts: Mapping[str, np.ndarray] | None = None
    max_degree: int = 64
    facts: Collection[str] = ()
    untrained: ContrastiveModel | None = None
    train_other: Callable[[str], Tensor] | None = None
    trained: Tensor | None = None

    def has(self) -> set[str]:
        """Return the needs of rows that are met."""
        needs = {need for name in references for need in references.fact(name, "needs").split()}
        sides = self.dataset.sides
        met = {
            **{need: find_spec(need.removeprefix("module.")) for need in needs if need.startswith("module.")},
            **{f"graph.{key}": all(key in (side.slices or ()) for side in sides) for key in sides[0].slices or ()},
            "groups": self.parts is not None,
            "dense": self.model.form == "dense",
            "batchnorm": has_batchnorm(self.model.encoder),
            "init": self.untrained is not None,
            "trained": self.trained is not None,
        }
        return {*self.facts, *(name for name, usable in met.items() if usable)}


def compute_rows(inputs: Inputs, names: Collection[str], tasks: Collection[str]) -> dict[str, Row]:
    """Compute those of the rows `names` that fit the inputs and the `tasks` of the evaluators; return name -> row."""
    has, rows = inputs.has().union(tasks), {}
    for name in row_labels():
        needs = f"{references.fact(name, 'needs')} {references.fact(name, 'task')}".split()
        if name in names and has.issuperset(needs):
            rows[name] = references[name](inputs)
    return rows


def row_labels(names: Iterable[str] | None = None) -> dict[str, str]:
    """Return name -> label of the rows `names` in the order of tables; default: all that are registered."""
    order = sorted(references if names is None else names, key=_place)
    return {name: references.fact(name, "label") or name for name in order}


def _place(name: str) -> tuple[bool, bool, bool, list[str]]:
    """Return the key by which tables are sorted: the names of the rows that `name` follows, from the first one on."""
    chain = [name]
    before = references.fact(name, "after")
    while before in references and before not in chain:
        chain.insert(0, before)
        before = references.fact(before, "after")
    return before != "start", is_trained(chain[0]), chain[0] == "trained", chain


def without_training() -> tuple[str, ...]:
    """Return the names of the rows that need no training."""
    return tuple(name for name in row_labels() if not is_trained(name))


def is_trained(name: str) -> bool:
    """Return whether the row `name` needs training."""
    return "trained" in references.fact(name, "needs").split()


def is_scored_by(name: str, task: str) -> bool:
    """Return whether evaluators of a task score the row `name`."""
    return references.fact(name, "task") in ("", task)


def has_form_for(evaluator: str, row: Row) -> bool:
    """Return whether an evaluator scores rows of this form: dense, a kernel, or another form of `Embeddings`."""
    form = row.form if isinstance(row, Embeddings) else "kernel" if isinstance(row, Kernel) else "dense"
    return form in evaluators.fact(evaluator, "forms").split()


def scores_of(result: Mapping[str, Any]) -> dict[str, dict[str, list[FoldScores]]]:
    """Return evaluator -> row -> one score per seed in the content of `result.json`, as `compared` has written them."""
    return {
        name: {row: [FoldScores.of(seed[row]) for seed in entry["per_seed"]] for row in entry["per_seed"][0]}
        for name, entry in result.get("scores", {}).items()
    }


def compared(rows: Mapping[str, Sequence[FoldScores]]) -> dict[str, Any]:
    """Return one evaluator's entry in `result.json`: the mean of each row, and two gains of `trained`, if there is one.

    The gains are over `untrained` and over the best row that needs no training. `rows` has one score per row and seed.
    """
    best, gains = best_row({name: scores for name, scores in rows.items() if not is_trained(name)}), {}
    if "trained" in rows:
        over = {"gain": rows["untrained"], "gain_over_best": rows[best]}
        gains = {name: vars(paired_gain(rows["trained"], scores)) for name, scores in over.items()}
    return {
        "metric": rows[best][0].metric,
        **{name: vars(summarise(scores)) for name, scores in rows.items()},
        **gains,
        "best_reference": best,
        "per_seed": [
            {name: vars(score) for name, score in zip(rows, of_seed, strict=True)}
            for of_seed in zip(*rows.values(), strict=True)
        ],
    }
