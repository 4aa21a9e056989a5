"""Check that the evaluators of a task fit its data, and adapt the number of folds."""

from __future__ import annotations

from graphcl.config.needs import warn_of_unused
from graphcl.errors import InputError
from graphcl.evaluate import usable_folds
from graphcl.evaluate.metrics import check_metric
from graphcl.evaluate.needs import is_by_copies, takes, usual
from graphcl.registry import encoders, evaluators
from graphcl.tasks.task import Task

_ON_FOLDS = ("folds", "inner_folds", "scale")
"""Settings of evaluators that score by labels on folds."""


def with_usable_evaluation(task: Task, copies: bool = False) -> Task:
    """Return the task with at most as many folds as the smallest class has graphs, with a warning.

    `copies` is whether augmented copies can be drawn, for evaluators that need them.

    Raises:
        InputError: an evaluator does not fit the data set.
    """
    config, dataset = task.config, task.dataset
    for name in config.eval:
        if is_by_copies(name) and not (copies and task.rows == "graphs"):
            raise InputError(f"`eval` {name} scores whole graphs in graphcl run only; drop it.")
    if not config.eval or not (dataset.scored or task.offers - {"copies"}):
        return task
    needs = {name: task.need_of(name) for name in config.eval}
    for name in (name for name, need in needs.items() if need is None):
        why, fitting = task.refusal(name)
        raise InputError(f"`eval` {name} does not fit {dataset.name}, which {why}; pass --eval {usual(fitting)}.")
    _check_forms(task)
    if "groups" in needs.values():
        task.places("evaluation.within")  # raises if the graphs lack the attribute
    if "targets" in needs.values() and dataset.benchmark is not None:
        check_metric(dataset.benchmark.eval_metric, dataset.y, dataset.benchmark.split)
    facts = {
        setting: any(need == "labels" and takes(name, setting) for name, need in needs.items()) for setting in _ON_FOLDS
    }
    alone = all(map(is_by_copies, config.eval)) and "copies" in task.offers
    warn_of_unused(config, {**facts, "place": "groups" in needs.values(), "sample": alone})
    if not facts["folds"]:
        return task
    folds, inner = usable_folds(dataset.y, config.evaluation.folds, config.evaluation.inner_folds)
    evaluation = config.evaluation.model_copy(update={"folds": folds, "inner_folds": inner})
    return task.with_settings(config.model_copy(update={"evaluation": evaluation}))


def _check_forms(task: Task) -> None:
    """Raise InputError if the encoder's rows are not dense, and an evaluator does not score their form."""
    encoder = task.config.encoder["name"]
    form = encoders.fact(encoder, "form")
    if form == "dense":
        return
    if task.config.evaluation.scale:
        raise InputError(f"`evaluation.scale` centres columns, but rows of encoder {encoder} are {form}; leave it out.")
    fitting = [name for name in evaluators if form in evaluators.fact(name, "forms").split() and task.need_of(name)]
    for name in task.config.eval:
        if form not in evaluators.fact(name, "forms").split():
            other = f"pass --eval {' or '.join(fitting)}" if fitting else "no evaluator fits both; use graphcl embed"
            raise InputError(f"`eval` {name} needs dense rows, but those of encoder {encoder} are {form}; {other}.")
