"""Predict the targets of new graphs by a finished run: embed them, and apply the head by which the run was scored.

| evaluator | head | fitted on |
|---|---|---|
| `svm`, `logreg`, `knn` | as on each fold, with the C or k that most folds chose | all labelled rows |
| `ogb`, `ogb_forest` | the one that was scored | the training part of the split |
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphcl.arguments import named_arguments
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError, one_line
from graphcl.evaluate import FoldScores, metric_name
from graphcl.evaluate.folds import is_constant, worker_count
from graphcl.evaluate.graphs import knn, logreg, ogb, svm
from graphcl.evaluate.on_split import task_names
from graphcl.evaluate.scores import NUMBERS
from graphcl.experiment.encoder_input import load_for, rows_of
from graphcl.experiment.record.seed_files import EMBEDDINGS, OUTPUTS, with_target
from graphcl.experiment.runtime import pick_device
from graphcl.loaders.loader import make_loader
from graphcl.models.contrastive import model_of
from graphcl.models.saved import read_encoder, read_saved
from graphcl.registry import encoders
from graphcl.system.arrays import read_arrays
from graphcl.system.files import read_json
from graphcl.training.loop import embed

HEADS = ("svm", "logreg", "knn", "ogb", "ogb_forest")
"""Evaluators with a head."""


class Predictions(NamedTuple):
    """Predictions for a data set.

    Attributes:
        columns: `id` and the columns of `with_target` for each target.
        dataset: the graphs.
        text: what predicted, and how well it did in the run.
    """

    columns: dict[str, np.ndarray]
    dataset: GraphDataset
    text: str


@named_arguments
def predict(
    run: str | os.PathLike[str], source: object, *, eval: str | None = None, seed: int | None = None, **settings: Any
) -> dict[str, np.ndarray]:
    """Return predictions for new graphs by a finished run, as columns: `id`, the targets, probabilities of classes.

    The head is that of the run's evaluator. On a split it is the one that was scored, fitted on the training part. On
    folds it is fitted on all labelled graphs with the C or k that most folds chose, so the run's score is the estimate
    of the folds, not a measurement of this head.

    Args:
        run: folder of `graphcl run`, or of `graphcl transfer` in either mode.
        source: the new graphs, see `load_dataset`.
        eval: evaluator of the run; default: the first that has a head.
        seed: seed of the run; default: the first.
        **settings: `device`, `data_root`, `mirror`, and the settings of tables in `load_dataset`.

    Returns:
        A column for each target, named as in the table of the run, else `y`, or `y0`, `y1`, ...: numbers or names of
        classes. Classes have columns `TARGET_p_CLASS` of probabilities; of two classes, only the second one. The SVM
        has none. A target `id`, `seed` or `eval` gets `_` at its end. Invalid rows are left out; `id` names the
        others.

    Raises:
        InputError: the folder holds no head, or see `load_dataset`.

    Example:
        >>> columns = predict("runs/molecules-infonce-1", ["CCO", "CCN"])  # doctest: +SKIP
        >>> columns["id"], columns["logS"]  # doctest: +SKIP
        (array([0, 1]), array([0.81, 0.62]))
    """
    return predictions(run, source, eval, seed, **settings).columns


def predictions(
    run: str | os.PathLike[str], source: object, eval: str | None = None, seed: int | None = None,
    device: str = "auto", **settings: Any,
) -> Predictions:  # fmt: skip
    """Return the `Predictions` of a run for new graphs; for the arguments, see `predict`."""
    if unused := [name for name in ("target", "group", "split", "metric") if settings.get(name)]:
        raise InputError(f"`{unused[0]}` is not read, as the targets are those of the run; leave it out.")
    place, folder = pick_device(device), Path(run).expanduser()
    result = _result(folder)
    name = _evaluator(folder, list(result.get("scores") or {}), eval)
    per_seed = [rows.get("trained") or rows["untrained"] for rows in result["scores"][name]["per_seed"]]
    scores = {score["seed"]: FoldScores.of(score) for score in per_seed}
    seed = next(iter(scores)) if seed is None else seed
    if seed not in scores:
        raise InputError(f"{folder} holds no seed {seed!r}; it holds {', '.join(map(str, scores))}.")
    score = scores[seed]
    only = len(read_saved(folder)[1]) == 1  # all seeds of a transfer may use it
    encoder, description = read_encoder(folder, None if only else seed)
    rows = rows_of(description.settings)
    if rows != "graphs":
        raise InputError(f"{folder} holds an encoder of {rows}, and predictions are for whole graphs.")
    file = folder / (OUTPUTS if name == "finetune" else EMBEDDINGS)
    if not file.exists():
        raise InputError(f"{folder} has no {file.name}, so it is incomplete; run it again.")
    arrays = read_arrays(file)
    form = encoders.fact(description.encoder.name, "form")
    if form != "dense":
        raise InputError(f"{folder} holds {form} rows, for which no head is fitted; use graphcl embed.")
    if name == "finetune":
        heads, how = _output_layer(arrays, score)
    else:
        scale = bool((result["config"].get("evaluation") or {}).get("scale"))
        heads, how = _fitted(name, arrays, score, scale)
    names = arrays["classes"] if len(arrays.get("classes", ())) else None
    targets = arrays["tasks"].tolist() if "tasks" in arrays else result["config"].get("target") or []
    tasks = task_names(len(heads), targets if len(targets) == len(heads) else ())
    dataset = load_for(description, source, **settings)
    embedded, _ = embed(model_of(encoder.to(place), projector="none"), make_loader(dataset, 1024, device=place))
    h, columns = embedded.double().numpy(), {"id": dataset.ids}
    for task, head in zip(tasks, heads, strict=True):
        columns = with_target(columns, task, head.outputs(h), head.classes, names, head.certain)
    metric = metric_name(score.metric)
    quality = f"test {metric} of this head: {score.mean:.2f}"
    if score.folds > 1:
        estimate = f"{metric} {score.mean:.2f} is the estimate of {score.folds} folds"
        quality = f"{estimate}, whose heads had not seen their test graphs; this head has seen all"
    listed = one_line(", ".join(tasks[:5]), 200) + ", ..." * (len(tasks) > 5)
    return Predictions(columns, dataset, f"{listed} by {how}; {quality}")


def _result(folder: Path) -> Mapping[str, Any]:
    """Return the content of `result.json`; raise InputError if there is none with scores."""
    if not (file := folder / "result.json").is_file():
        unfinished = (folder / "config.yaml").is_file()
        what = "has no finished seed" if unfinished else "is not the folder of a run or a transfer"
        raise InputError(f"{str(folder)!r} {what}; pass one with a result.json, such as runs/MUTAG-infonce-1.")
    result: Mapping[str, Any] = read_json(file)
    return result


def _evaluator(folder: Path, scored: list[str], wanted: str | None) -> str:
    """Return the evaluator whose head predicts."""
    usable = [name for name in scored if name in HEADS or name == "finetune"]
    if not usable:
        how = f"is scored by {', '.join(scored)}" if scored else "has no scores"
        advice = f"train on labels or targets, with --eval {', '.join(HEADS)}"
        raise InputError(f"{folder} {how}, so it has no head to predict by; {advice}.")
    if wanted is not None and wanted not in usable:
        raise InputError(f"{folder} has no head of {wanted!r}; choose from: {', '.join(usable)}.")
    return wanted or usable[0]


def _fitted(name: str, arrays: Mapping[str, np.ndarray], score: FoldScores, scale: bool) -> tuple[list[Head], str]:
    """Return the heads of a frozen embedding, fitted again from the rows and labels of the run, and a text on them."""
    on_folds, seeds = score.metric == "accuracy", arrays["seeds"].tolist()
    h = arrays["h"][seeds.index(score.seed) if score.seed in seeds else 0].astype(np.float64)
    chosen = most_chosen(score.chosen)
    rows = np.arange(len(h)) if on_folds else np.flatnonzero(arrays["part"] == 0)
    y = arrays["y"].astype(np.float64).reshape(len(h), -1)[rows]
    heads = [fit_head(name, h[rows], column, chosen, score.metric, score.seed, scale) for column in y.T]
    fitted_on = f"all {len(rows)} labelled graphs" if on_folds else f"the {len(rows)} training graphs of the split"
    return heads, f"{name} (chosen: {chosen:g}), fitted on {fitted_on}"


def _output_layer(arrays: Mapping[str, np.ndarray], score: FoldScores) -> tuple[list[Head], str]:
    """Return the heads of a fine-tuned model, which are columns of its output layer, and a text on them."""
    from scipy.special import expit, softmax

    place = arrays["seeds"].tolist().index(score.seed)
    weight, bias = (arrays[key][place].astype(np.float64) for key in ("weight", "bias"))
    numbers, one_of = score.metric in NUMBERS, score.metric == "acc"

    def outputs(task: int, h: np.ndarray) -> np.ndarray:
        out: np.ndarray = h @ weight.T + bias
        if one_of:
            return np.asarray(softmax(out, axis=1))
        return out[:, task] if numbers else expit(np.stack([-out[:, task], out[:, task]], axis=1))

    classes = np.empty(0) if numbers else np.arange(len(bias) if one_of else 2)
    heads = [Head(partial(outputs, task), classes) for task in range(1 if one_of else len(bias))]
    graphs, epochs = int(arrays["graphs"][place]), int(arrays["epochs"][place])
    return heads, f"a model fine-tuned on {graphs} graphs for {epochs} epoch{'s' if epochs > 1 else ''}"


@dataclass(frozen=True)
class Head:
    """A fitted head of one target.

    Attributes:
        outputs: function from rows `[n, D]` to numbers `[n]`, or to a probability or a vote for each class `[n, C]`.
        classes: class numbers that the outputs stand for, `[C]`; empty for numbers.
        certain: whether the outputs are the predicted class only, without a probability.
    """

    outputs: Callable[[np.ndarray], np.ndarray]
    classes: np.ndarray
    certain: bool = False


def most_chosen(chosen: Sequence[float]) -> float:
    """Return the hyper-parameter that most folds chose; the smallest of equally frequent ones."""
    counts = Counter(chosen)
    return min(counts, key=lambda value: (-counts[value], value))


def fit_head(name: str, h: np.ndarray, y: np.ndarray, chosen: float, metric: str, seed: int, scale: bool) -> Head:
    """Return the head of the evaluator `name` of `HEADS`, for one target.

    Args:
        name: name of the evaluator.
        h: training rows `[n, D]`, in float64.
        y: target of each row `[n]`; NaN where it is missing.
        chosen: C, k or the least number of rows in a leaf.
        metric: metric of the score: `accuracy` on folds.
        seed: seed of the run.
        scale: whether the SVM standardises columns.
    """
    from sklearn.dummy import DummyClassifier, DummyRegressor

    labelled, numbers = ~np.isnan(y), metric in NUMBERS
    rows, labels = (h[labelled], y[labelled]) if labelled.any() else (h[:1], np.zeros(1))
    labels = labels if numbers else labels.astype(int)
    constant = len(np.unique(labels)) < 2 or is_constant(h)
    change: Callable[[np.ndarray], np.ndarray] = lambda z: z  # noqa: E731
    if constant:  # nothing to learn, so the mean, or the frequencies of the classes
        model: Any = (DummyRegressor() if numbers else DummyClassifier()).fit(rows, labels)
    elif name == "ogb":  # standardised over all training rows, also those without this target
        change = ogb.scaler(h)
        model = ogb.linear_models(change(rows), labels, [chosen], metric)[0]
    elif name == "ogb_forest":
        change = ogb.coder(h)
        model = ogb.forests(seed, ogb.TREES, worker_count(None), change(rows), labels, [chosen], metric)[0]
    else:
        order = np.random.default_rng(seed).permutation(len(rows)) if name == "knn" else slice(None)  # of equal cosines
        model = _classifier(name, labels, h.shape[1], chosen, scale).fit(rows[order], labels[order])
    if numbers:
        return Head(lambda z: model.predict(change(z)), np.empty(0))
    if name == "svm" and not constant:
        return Head(lambda z: np.equal.outer(model.predict(z), model.classes_).astype(float), model.classes_, True)
    return Head(lambda z: model.predict_proba(change(z)), model.classes_)


def _classifier(name: str, labels: np.ndarray, columns: int, chosen: float, scale: bool) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if name == "knn":
        vote: Any = lambda distance: np.exp(-distance / knn.TEMPERATURE)  # noqa: E731
        return KNeighborsClassifier(min(int(chosen), len(labels)), metric="cosine", algorithm="brute", weights=vote)
    if name == "svm":
        model: Any = SVC(C=chosen, tol=svm.TOLERANCE, max_iter=svm.STEPS, random_state=0)
    else:
        newton = logreg.use_newton(np.unique(labels, return_inverse=True)[1], columns)
        solver = "newton-cholesky" if newton else "lbfgs"
        model = LogisticRegression(C=chosen, solver=solver, tol=logreg.TOLERANCE, max_iter=10000)
    return make_pipeline(StandardScaler() if scale or name == "logreg" else "passthrough", model)
