"""Compute and score the rows of a seed, see `graphcl.references.rows`, by the evaluators of its settings."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from graphcl.config import Config
from graphcl.config.needs import warn_of_unused
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Kernel, usable_folds
from graphcl.evaluate.metrics import check_metric
from graphcl.evaluate.needs import is_by_copies, need_of, takes, usual
from graphcl.experiment.build import make_model, restricted
from graphcl.experiment.context import Context, Scores
from graphcl.experiment.copies import WithCopies, copy_arguments, rank_of_graphs
from graphcl.experiment.parts import grouped_parts, places, run_parts, training_graphs
from graphcl.loaders.loader import make_loader
from graphcl.loaders.order import EpochBatches
from graphcl.models.calibrate import calibrate
from graphcl.models.contrastive import ContrastiveModel, Role
from graphcl.models.embeddings import Embeddings
from graphcl.models.towers import TwoTowers
from graphcl.references.rows import Inputs, Row, compute_rows, has_form_for, is_scored_by, row_labels
from graphcl.registry import encoders, evaluators
from graphcl.training.epoch import Epoch
from graphcl.training.loop import embed

EMBED_BATCH = 1024
"""Graphs in a batch when embedding."""
_ON_FOLDS = ("folds", "inner_folds", "scale")
"""Settings of evaluators that score by labels on folds."""
_SHORT = 10.0
"""Seconds of scoring that need no forecast."""
_CALIBRATION_SEED = 2**40 + 2**20
"""Added to a run's seed, so that calibration and training shuffle with different random numbers."""


class SeedRows:
    """The rows of one seed and their scores: references are computed before training, the others after it.

    Args:
        config: settings of the run.
        dataset: graphs of the run.
        model: the model, which is trained in place.
        whole: loader of `with_copies`.
        seed: seed of the shuffle for calibration and of the folds.
        names: rows to score; None for all. Without labels and groups, only `untrained` is computed, for the report.
        context: surroundings of the seed.

    Attributes:
        untrained: embeddings `[n, H]` by the initial weights; None if they are not among the rows.
        epoch_scores: epoch -> evaluator -> score of the encoder at that epoch, every `score_every` epochs.
    """

    def __init__(
        self,
        config: Config,
        dataset: GraphDataset,
        model: ContrastiveModel,
        whole: WithCopies,
        seed: int,
        names: Collection[str] | None,
        context: Context,
    ) -> None:
        self.config, self.dataset, self.seed, self.context = config, dataset, seed, context
        wanted = set(row_labels() if names is None else names)
        self.names = wanted if is_scored(config, dataset) else wanted & {"untrained"}
        self.calibrate = functools.partial(calibrated, config, dataset, model, seed, whole.graphs)
        parts = run_parts(config, dataset)
        self.inputs = Inputs(dataset, whole, model, self.calibrate, parts, config.max_degree)
        if config.init is not None:
            device = next(model.parameters()).device
            untrained = make_model(config, dataset, seed, trained=False).to(device)
            self.inputs = dataclasses.replace(self.inputs, untrained=untrained)
        self.rows = self._computed(self.inputs)
        before: Any = self.rows.get("untrained")
        self.untrained = None if before is None else before[: dataset.num_rows]
        self.epoch_scores: dict[int, dict[str, FoldScores]] = {}

    def score_epoch(self, epoch: Epoch) -> None:
        """Score the encoder after an epoch, if `score_every` says so."""
        if self.config.score_every and epoch.epoch % self.config.score_every == 0:
            # ranks that score nothing embed too, as calibration may need all ranks
            h, _ = embed(self.calibrate() if self.config.precise_bn else self.inputs.model, self.inputs.batches)
            if "trained" in self.names:
                found = score_rows(self.config, self.dataset, {"trained": h}, self.seed, self.context)
                self.epoch_scores[epoch.epoch] = {name: scores["trained"] for name, scores in found.items()}

    def score(self, h: Tensor, train_other: Callable[[str], Tensor] | None = None) -> Scores:
        """Return the scores of all rows, with embeddings `h` of the graphs and copies by the trained encoder.

        `train_other` is that of `Inputs`.
        """
        self.rows |= self._computed(dataclasses.replace(self.inputs, trained=h, train_other=train_other))
        return score_rows(self.config, self.dataset, self.rows, self.seed, self.context)

    def _computed(self, inputs: Inputs) -> dict[str, Row]:
        tasks = {evaluators.fact(name, "task") for name in self.config.eval}
        missing = self.names - (self.rows.keys() if inputs.trained is not None else set())
        return compute_rows(inputs, missing, tasks)


def calibrated(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int = 0, like: object = None
) -> ContrastiveModel:
    """Return a copy of `model` with BatchNorm statistics recomputed over all graphs that the run trains on.

    The batches are shuffled. Each of two encoders gets the statistics of its role; one encoder those of queries and
    targets. A loader `like` of the data set shares its tensors, see `make_loader`.
    """
    order = torch.Generator().manual_seed(_CALIBRATION_SEED + seed)
    device = next(model.parameters()).device

    def batches(of: GraphDataset, role: Role, like: object = None) -> Any:
        # `calibrate` weights all batches equally, so a last batch of a few graphs would distort the statistics
        graphs = training_graphs(config, dataset, role)
        n = len(of) if graphs is None else len(graphs)
        size = math.ceil(n / math.ceil(n / EMBED_BATCH))
        sampler = EpochBatches(len(of), size, True, order, config.shuffle_window)
        return restricted(make_loader(of, device=device, like=like, batch_sampler=sampler), graphs)

    queries = batches(dataset, "query", like)
    if isinstance(model, TwoTowers):
        found = cast(TwoTowers, calibrate(model, queries))
        found.target = calibrate(model.target, batches(dataset.targets or dataset, "target"))
        return found
    if dataset.targets is None:
        return calibrate(model, queries)
    return calibrate(model, itertools.chain(queries, batches(dataset.targets, "target")))


def score_rows(config: Config, dataset: GraphDataset, rows: Mapping[str, Row], seed: int, context: Context) -> Scores:
    """Score each of the `rows` with every evaluator; return evaluator -> row -> score, {} if none fits.

    Embeddings have a row for each of the n graphs (or nodes), and may have m more for copies; an evaluator that needs
    copies scores these only. `context` holds the number of threads of the evaluators, `workers`, and `on_fold`, which
    is called after every inner fold.
    """
    found: Scores = {name: {} for name in (config.eval if rows and is_scored(config, dataset) else ())}
    pairs = []
    for name, (row, h) in itertools.product(found, rows.items()):
        copied = isinstance(h, Tensor) and len(h) > dataset.num_rows
        fits = is_scored_by(row, evaluators.fact(name, "task")) and has_form_for(name, h)
        if fits and (copied or not is_by_copies(name)):
            pairs.append((name, row, h))
    forecast = _Forecast(context, sum(_num_folds(config, dataset, name) for name, _, _ in pairs))
    for name, row, h in pairs:
        report = forecast.reporting(f"{name}, {row}")
        kept = {"on_predicted": functools.partial(context.on_predicted, name)} if row == "trained" else {}
        kept = kept if takes(name, "on_predicted") else {}
        found[name][row] = score(config, name, h, dataset, seed, context.workers, report, **kept)
        report(count := _num_folds(config, dataset, name), count)
    return found


def _num_folds(config: Config, dataset: GraphDataset, name: str) -> int:
    """Return the number of inner folds by which an evaluator scores a row; 1 if it has none, as by groups."""
    by_labels = need_of(name, dataset.rows, offered(dataset)) == "labels"
    return config.evaluation.folds * config.evaluation.inner_folds if by_labels and takes(name, "folds") else 1


class _Forecast:
    """Tell the context once if all rows, `total` inner folds, will take longer to score than training took.

    The time is that of the folds after the first, which also loads modules, over a second or more.
    """

    def __init__(self, context: Context, total: int) -> None:
        self._context, self._total, self._told = context, total, False
        self._done: dict[str, int] = {}
        self._first: tuple[float, int] | None = None

    def reporting(self, row: str) -> Callable[[int, int], None]:
        """Return a function that is called with the finished and the total number of inner folds of a row."""

        def report(done: int, total: int) -> None:
            if self._context.on_fold is not None:
                self._context.on_fold(row, done, total)
            self._done[row] = done
            now, finished = time.perf_counter(), sum(self._done.values())
            start, before = self._first = self._first or (now, finished)
            if finished > before and now - start >= 1:
                expected = (now - start) / (finished - before) * self._total
                trained = self._context.clock.seconds.get("train", math.inf)
                if not self._told and expected > max(trained, _SHORT):
                    self._told = True
                    self._context.on_slow_scoring(expected, trained)

        return report


def score(
    config: Config,
    name: str,
    h: Any,
    dataset: GraphDataset,
    seed: int = 0,
    workers: int | None = None,
    on_fold: Callable[[int, int], object] | None = None,
    **on_rows: Any,
) -> FoldScores:
    """Return the score of a row `h`, an embedding or a `Kernel`, by the evaluator `name`, by the protocol in `config`.

    `on_rows` are `on_test` and `on_predicted` of evaluators.

    Raises:
        InputError: the evaluator returns something else than `FoldScores`.
    """
    need = need_of(name, dataset.rows, offered(dataset))
    if isinstance(h, Kernel) and need == "groups" and not on_rows:
        return dataclasses.replace(_score_kernel(name, h, dataset, config.evaluation.within), seed=seed)
    given = {"seed": seed, "workers": workers, "on_fold": on_fold, **on_rows, **config.evaluation.model_dump()}
    given |= _truth(config, dataset, h, seed, need)
    if on_fold is not None:  # show the row before its first fold ends
        on_fold(0, _num_folds(config, dataset, name))
    rows = h if isinstance(h, Kernel) else h[: dataset.num_rows]
    if isinstance(rows, Embeddings):
        rows = rows.matrix()
    found = evaluators[name](rows, **{key: each for key, each in given.items() if takes(name, key)})
    if not isinstance(found, FoldScores):
        raise InputError(f"evaluator `{name}` must return FoldScores, got {type(found).__name__}.")
    return rank_of_graphs(config, dataset, h, seed, found) if need == "copies" else found


@functools.lru_cache(maxsize=8)
def _score_kernel(name: str, kernel: Kernel, dataset: GraphDataset, within: str | None) -> FoldScores:
    """Return the score of a kernel by groups or pairs, which is equal for all seeds."""
    given = _relevance(within, dataset)
    return evaluators[name](kernel, **{key: each for key, each in given.items() if takes(name, key)})


def _relevance(within: str | None, dataset: GraphDataset) -> dict[str, Any]:
    """Return which rows belong together, the split that keeps them together, and where each is searched."""
    relation = dataset.relation
    by = {"group": dataset.groups} if relation is None else {"pairs": relation.nodes, "targets": relation.targets}
    return {**by, "place": places(dataset, within, "evaluation.within"), "split": grouped_parts(dataset)}


def _truth(config: Config, dataset: GraphDataset, h: Any, seed: int, need: str | None) -> dict[str, Any]:
    """Return the arguments that tell an evaluator what is right, see `graphcl.evaluate.needs.NEEDS`."""
    if need == "copies":
        return copy_arguments(config, dataset, h, seed)
    if need == "groups":
        return _relevance(config.evaluation.within, dataset)
    return {"y": dataset.y, **(dataset.protocol() if need != "labels" else {})}


def offered(dataset: GraphDataset) -> set[str]:
    """Return what rows of `dataset` can be scored by, keys of `graphcl.evaluate.needs.NEEDS`."""
    found = {
        "labels": dataset.labelled and dataset.benchmark is None and dataset.targets is None,
        "targets": dataset.benchmark is not None,
        "split": dataset.split is not None,
        "groups": dataset.groups is not None,
        "copies": dataset.rows == "graphs" and dataset.targets is None,
    }
    return {need for need, usable in found.items() if usable}


def is_scored(config: Config, dataset: GraphDataset) -> bool:
    """Return whether rows can be scored: by classes, a benchmark's targets, or as one of the evaluators can."""
    if not config.eval:
        return False
    return dataset.scored or any(need_of(name, dataset.rows, offered(dataset)) for name in config.eval)


def _check_form(config: Config, dataset: GraphDataset) -> None:
    """Raise InputError if the encoder's rows are not dense, and an evaluator does not take their form."""
    encoder = config.encoder["name"]
    form = encoders.fact(encoder, "form")
    if form == "dense":
        return
    if config.evaluation.scale:
        raise InputError(f"`evaluation.scale` centres columns, but rows of encoder {encoder} are {form}; leave it out.")
    usable = [name for name in evaluators if form in evaluators.fact(name, "forms").split()]
    fitting = [name for name in usable if need_of(name, dataset.rows, offered(dataset)) is not None]
    for name in config.eval:
        if name not in usable:
            advice = f"pass --eval {' or '.join(fitting)}" if fitting else "no evaluator fits both; use graphcl embed"
            raise InputError(f"`eval` {name} needs dense rows, but those of encoder {encoder} are {form}; {advice}.")


def with_usable_evaluation(config: Config, dataset: GraphDataset, copies: bool = False) -> Config:
    """Return the settings with at most as many folds as the smallest class has graphs, with a warning.

    `copies` is whether augmented copies can be drawn, for evaluators that need them.

    Raises:
        InputError: an evaluator does not fit the data set.
    """
    for name in config.eval:
        if is_by_copies(name) and not (copies and dataset.rows == "graphs"):
            raise InputError(f"`eval` {name} scores whole graphs in graphcl run only; drop it.")
    if not config.eval or not (dataset.scored or offered(dataset) - {"copies"}):
        return config
    needs = {name: need_of(name, dataset.rows, offered(dataset)) for name in config.eval}
    for name in (name for name, need in needs.items() if need is None):
        if dataset.targets is not None:
            why, fitting = f"is searched for graphs of {dataset.targets.name}", "groups"
        elif dataset.rows == "nodes":
            why, fitting = "has no train_mask, val_mask and test_mask", "nodes"
        elif dataset.benchmark is not None:
            why, fitting = "is scored on its own split", "targets"
        elif not dataset.labelled:
            why, fitting = "has groups but no classes", "groups"
        else:
            nodes = evaluators.fact(name, "rows") == "nodes"
            why, fitting = f"has no {'nodes to score' if nodes else 'split of its own'}", "labels"
        raise InputError(f"`eval` {name} does not fit {dataset.name}, which {why}; pass --eval {usual(fitting)}.")
    _check_form(config, dataset)
    if "groups" in needs.values():
        places(dataset, config.evaluation.within, "evaluation.within")  # raises if the graphs lack the attribute
    if "targets" in needs.values() and dataset.benchmark is not None:
        check_metric(dataset.benchmark.eval_metric, dataset.y, dataset.benchmark.split)
    facts = {each: any(need == "labels" and takes(name, each) for name, need in needs.items()) for each in _ON_FOLDS}
    alone = all(map(is_by_copies, config.eval)) and dataset.rows == "graphs" and dataset.targets is None
    warn_of_unused(config, {**facts, "place": "groups" in needs.values(), "sample": alone})
    if not facts["folds"]:
        return config
    folds, inner = usable_folds(dataset.y, config.evaluation.folds, config.evaluation.inner_folds)
    evaluation = config.evaluation.model_copy(update={"folds": folds, "inner_folds": inner})
    return config.model_copy(update={"evaluation": evaluation})
