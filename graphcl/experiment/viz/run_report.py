"""`report.html`: a run's folder as one page, from the files that are there."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.config.settings import flat_values, make_config
from graphcl.errors import InputError, reason
from graphcl.evaluate import FoldScores, paired_gain, paired_test
from graphcl.evaluate.pca import chosen, principal_plane
from graphcl.experiment.snapshot import EDGES
from graphcl.experiment.summary import unit
from graphcl.experiment.viz.curves import curves
from graphcl.experiment.viz.embedding_map import CLASSES, class_style, embedding_map
from graphcl.experiment.viz.gains import gain_by_seed, gains, metric_label
from graphcl.experiment.viz.page import folded, legend, page, paragraph, pictures, section, table
from graphcl.experiment.viz.run_files import Run, read_run
from graphcl.experiment.viz.similarities import KINDS, density, similarities
from graphcl.experiment.viz.stages import stages
from graphcl.experiment.viz.style import MUTED, TRAINED, UNTRAINED, style
from graphcl.experiment.viz.weights import mean_weight, weights
from graphcl.system.files import write_text

_MOMENTS = (("before", "before training"), ("after", "after training"))
_MEASURES = {"loss": "loss", "alignment": "alignment (lower is closer)", "uniformity": "uniformity (lower is evener)"}
_OWN = ("seed", "epoch", "seconds", "data_seconds", *_MEASURES)


def write_report(folder: str | Path) -> Path:
    """Draw `report.html` into a run's folder, in place of an earlier one, and give its path.

    Args:
        folder: of `python -m graphcl.run`, finished or not.

    Raises:
        InputError: not the folder of a run, a file in it cannot be read or written, or matplotlib is not installed.
    """
    path = Path(folder) / "report.html"
    with style():
        run = read_run(Path(folder))
        try:
            text = report(run)
        except Exception as error:  # of a folder that somebody else has written into
            raise InputError(f"{folder} is damaged, its files do not fit together: {reason(error)}.") from error
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from None
    return path


def report(run: Run) -> str:
    """The page."""
    config = run.config
    title = f"{Path(config['dataset']).stem}, {config['loss']['name']}"
    parts = [*_header(run, title), *_scores(run), *_curves(run), *_maps(run), *_similarities(run), *_weights(run)]
    return page(f"{title}: graphcl", [*parts, *_stages(run), _settings(run)])


def differences(config: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Every setting with its value, its default beside the same names, and whether they differ."""
    names = {key: {"name": config[key]["name"]} for key in ("loss", "method", "encoder")}
    views = {key: _names_only(value) for key, value in config["views"].items()}
    plain = beside = dict(flat_values(make_config({}).model_dump()))
    with contextlib.suppress(InputError):  # a name that is not registered here, such as a plug-in's
        beside = dict(flat_values(make_config({**names, "views": views}).model_dump()))
    found = []
    for key, value in flat_values(config):
        default = (plain if key.endswith(".name") else beside).get(key)
        same = value == default or key in ("out", "mirror", "data_root") or (key == "features" and default == "auto")
        found.append((key, _shown(value), "" if same else _shown(default), not same))
    return found


def _header(run: Run, title: str) -> Iterator[str]:
    config, result = run.config, run.result
    seeds = config["seeds"]
    yield f"<header>\n{paragraph('graphcl, a run', 'note')}\n<h1>{escape(title)}</h1>"
    count, what = (config["steps"], "step") if config["steps"] else (config["epochs"], "epoch")
    told = f"Method {config['method']['name']}, {config['encoder']['name']} encoder, {count} {what}{'s' * (count != 1)}"
    which = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    yield paragraph(f"{told}, batches of {config['batch_size']}; {which}.")
    for name, scores in result.get("scores", {}).items():
        yield paragraph(_gain_in_words(name, scores), "lead")
    if result and "scores" not in result:
        yield paragraph("These graphs have no class labels, so there is nothing to score.", "lead")
    if not result:
        yield paragraph("This run has no result yet: it was stopped before its first seed was done.", "lead")
    else:
        hardware, versions = result["hardware"], result["versions"]
        where = hardware["device"] if hardware["device"] != "cpu" else hardware["processor"] or hardware["machine"]
        yield paragraph(f"`{_command(result['command'])}`")
        commit = f"commit `{result['commit']}`, " if result["commit"] else ""
        packages = f"graphcl {versions['graphcl']}, torch {versions['torch']}, Python {versions['python']}"
        yield paragraph(f"{result['finished']}; {commit}{packages}; {where}, {hardware['threads']} thread(s).", "note")
    yield "</header>"


def _scores(run: Run) -> Iterator[str]:
    if "scores" not in run.result:
        return
    rows, lines = [], []
    for name, scores in run.result["scores"].items():
        before, after = _fold_scores(scores)
        told = _gain_in_words(name, scores)
        figures = [(told, gains(name, before, after))]
        if len(after) > 1:
            figures.append((told, gain_by_seed(f"{name}, gain", before, after)))
        rows.append(pictures(name, figures))
        for old, new in zip(before, after, strict=True):
            gained = paired_gain([new], [old]).mean
            lines.append((name, str(new.seed), f"{old.mean:.2f}", f"{new.mean:.2f}", f"{gained:+.2f}"))
    metric = metric_label(after[0].metric)
    yield section(
        f"{metric[0].upper()}{metric[1:]}, beside the untrained encoder's",
        legend([("untrained", UNTRAINED, "o"), ("trained", TRAINED, "o"), ("a seed, both times", MUTED, "-")]),
        *rows,
        paragraph(_protocol(run.result), "note"),
        folded("Every seed", table(("evaluator", "seed", "untrained", "trained", "gain"), lines)),
    )


def _protocol(result: Mapping[str, Any]) -> str:
    """What the dots are."""
    if "split" in result:
        train, valid, test = result["split"].values()
        how = f"the benchmark's split: {train} training graphs, {valid} for validation, {test} for the test"
        return f"A dot is a seed on {how}; bold: the mean of the seeds."
    return (
        f"Large dots: a seed's mean over {result['folds']} stratified folds; small ones: its folds; bold: the mean of "
        f"the seeds. Settings of the evaluator are chosen on {result['inner_folds']} inner folds, so no test fold "
        "chooses anything."
    )


def _curves(run: Run) -> Iterator[str]:
    if not run.metrics:
        return
    extra = [key for key in run.metrics[-1] if key not in _OWN]
    shown = []
    for key in (*_MEASURES, *extra):
        by_seed: dict[int, list[float]] = {}
        for line in run.metrics:
            if key in line:
                by_seed.setdefault(line["seed"], []).append(line[key])
        label = f"{key}: {', '.join(f'seed {seed} ends at {values[-1]:.4g}' for seed, values in by_seed.items())}"
        shown.append((label, curves(_MEASURES.get(key, key), by_seed)))
    several = len({line["seed"] for line in run.metrics}) > 1
    lines = [("mean of the seeds", TRAINED, "-"), ("a seed", MUTED, "-")] if several else []
    main, more = shown[: len(_MEASURES)], shown[len(_MEASURES) :]
    yield section(
        "Training",
        legend(lines) if lines else "",
        pictures("curve", main),
        paragraph(
            "Means over an epoch's steps. Alignment: squared distance between a graph's two views. Uniformity: log "
            "mean of e^(-2 d²) over pairs of graphs, 0 where all coincide, about -4 at best.",
            "note",
        ),
        folded("Further measures", pictures("measure", more)) if more else "",
    )


def _maps(run: Run) -> Iterator[str]:
    found = {name: run.moments[f"{name}_map"] for name, _ in _MOMENTS if f"{name}_map" in run.moments}
    shares = {name: run.moments[f"{name}_shares"] for name in found}
    y = run.embeddings.get("y")
    if y is not None and (y.ndim != 1 or y.dtype.kind not in "iu"):  # targets of a benchmark, no classes
        y = None
    if "h" not in run.embeddings or not run.embeddings["h"].size:
        return
    graphs = chosen(run.embeddings["h"].shape[1])
    if not found:  # a folder of an earlier version: what is kept is the trained encoder's
        found["after"], shares["after"] = principal_plane(run.embeddings["h"][0][graphs])
    y = None if y is None else y[graphs]
    words = {"before": "untrained encoder", "after": "trained encoder"}
    entries = []
    if y is not None:
        classes = int(y.max()) + 1
        entries = [(f"class {number} ({(y == number).sum()})", *class_style(number)) for number in range(classes)]
        if classes > CLASSES:
            entries = [*entries[:CLASSES], (f"{classes - CLASSES} further classes", *class_style(CLASSES))]
    figures = [
        (f"map of {len(graphs)} graphs, {words[name]}", embedding_map(words[name], points, shares[name], y))
        for name, points in found.items()
    ]
    total = run.embeddings["h"].shape[1]
    some = "all" if len(graphs) == total else f"{len(graphs)} of the"
    classed = "classes are for the eye only" if y is not None else "they have no classes to be seen"
    yield section(
        "Map of the embeddings",
        legend(entries) if entries else "",
        pictures("map", figures),
        paragraph(
            f"First two principal components of the standardised columns, {some} {total} graphs, "
            f"seed {run.config['seeds'][0]}; {classed}. Points beyond the outer 1 % are moved to the border.",
            "note",
        ),
    )


def _similarities(run: Run) -> Iterator[str]:
    counts = {
        name: {kind: run.moments[f"{name}_{kind}"] for kind in KINDS if f"{name}_{kind}" in run.moments}
        for name, _ in _MOMENTS
    }
    counts = {name: kinds for name, kinds in counts.items() if kinds}
    if not counts:
        return
    classed = any("same_class" in kinds for kinds in counts.values())
    tops = [density(each, EDGES).max() for kinds in counts.values() for each in kinds.values() if each.sum()]
    names = {**KINDS, "negative": ("negatives of other classes" if classed else "negatives", *KINDS["negative"][1:])}
    entries = [names[kind] for kind in KINDS if any(kind in kinds for kinds in counts.values())]
    figures = []
    for name, words in _MOMENTS:
        if name in counts:
            told = ", ".join(
                f"{names[kind][0]} {_mean(each):+.2f}" for kind, each in counts[name].items() if each.sum()
            )
            figures.append(
                (f"cosines {words}, means: {told}", similarities(words, EDGES, counts[name], 1.05 * max(tops)))
            )
    pairs = next(iter(counts.values()))
    yield section(
        "Similarity of positives and negatives",
        legend(entries),
        pictures("cosine", figures),
        paragraph(". ".join(label[0].upper() + label[1:] for label, _ in figures) + "."),
        paragraph(
            f"Cosines of the projections that the loss compares, two fresh views of {int(pairs['positive'].sum())} "
            f"graphs in batches as in training, seed {run.config['seeds'][0]}; each area is 1"
            + (". Labels are looked at here only, not in training." if classed else "."),
            "note",
        ),
    )


def _weights(run: Run) -> Iterator[str]:
    rows: dict[str, list[tuple[str, Any]]] = {}
    for kind in ("push", "weight"):
        for name, words in _MOMENTS:
            moments = run.moments.get(f"{name}_{kind}")
            if moments is None or (kind == "weight" and not _is_weighted(run)):
                continue
            negatives = run.moments[f"{name}_negative"] + run.moments.get(f"{name}_same_class", 0)
            drawn = weights(f"{kind}, {words}", EDGES, negatives, moments, f"{kind} (anchor's mean: 1)")
            rows.setdefault(kind, []).append((f"{kind} {words}", drawn))
    if not rows:
        return
    loss = run.config["loss"]
    numbers = [f"{key} {value}" for key, value in loss.items() if type(value) in (int, float)]
    arguments = f" ({', '.join(numbers)})" if numbers else ""
    weighted = ""
    if _is_weighted(run):
        weighted = (
            " The weight is what the loss does to negatives besides: the push over that of DCL and InfoNCE at the same "
            "temperature, whose weight is 1 everywhere. Where it falls to the right, the most similar negatives, which "
            "may be false, are spared."
        )
    elif _is_flat(run):
        weighted = " Beside DCL and InfoNCE at the same temperature this loss weighs all negatives of an anchor alike."
    yield section(
        "What a negative weighs",
        *(pictures(kind, figures) for kind, figures in rows.items()),
        paragraph(
            f"{loss['name']}{arguments}. Line: how hard the loss pushes a negative of that cosine away, relative to "
            "the mean of its anchor's negatives; band: one deviation between pairs; grey: how many negatives there are."
            + weighted,
            "note",
        ),
    )


def _stages(run: Run) -> Iterator[str]:
    seconds = run.result.get("seconds")
    if not seconds:
        return
    told = ", ".join(f"{stage} {value:.2f} s" for stage, value in seconds.items())
    share = f"Cutting out and augmenting batches took {run.result['data_share']:.0%} of the training."
    median = f"Median epoch {run.result['epoch_seconds']:.3f} s. " if run.metrics else ""
    yield section(
        "Time",
        pictures("stage", [(f"seconds per stage: {told}", stages("", seconds))]),
        paragraph(median + (share if run.metrics else ""), "note"),
    )


def _settings(run: Run) -> str:
    every = differences(run.config)
    changed = [(key, value, default) for key, value, default, differs in every if differs]
    same = [(key, value) for key, value, _, differs in every if not differs]
    first = (
        table(("setting", "value", "default"), changed, changed=True)
        if changed
        else paragraph("All settings have their defaults.")
    )
    return section(
        "Settings",
        paragraph("Different from the defaults:") if changed else "",
        first,
        folded(f"{len(same)} others, at their defaults", table(("setting", "value"), same)),
        paragraph("`python -m graphcl.run --config FOLDER/config.yaml --out NEW_FOLDER` repeats the run.", "note"),
    )


def _fold_scores(scores: Mapping[str, Any]) -> tuple[list[FoldScores], list[FoldScores]]:
    """Before and after training, a seed each."""
    before, after = ([FoldScores.of(each[name]) for each in scores["per_seed"]] for name in ("untrained", "trained"))
    return before, after


def _gain_in_words(name: str, scores: Mapping[str, Any]) -> str:
    """The gain, its spread, and whether chance gives as much."""
    before, after = _fold_scores(scores)
    gain, test = paired_gain(after, before), paired_test(after, before)
    up, seeds = round(gain.positive * len(gain.seeds)), len(gain.seeds)
    means = scores["trained"]["mean"], scores["untrained"]["mean"]
    told = f"{name}: {means[0]:.2f} {unit(after[0].metric)} trained, {means[1]:.2f} untrained: gain "
    spread = f" ± {gain.std_seeds:.2f} over seeds, better in {up} of {seeds}" if seeds > 1 else ", one seed"
    p = "p < 0.001" if test.p < 0.001 else f"p = {test.p:.3f}"
    chance = "more than chance gives" if test.p < 0.05 else "no more than chance may give"
    tested = f" ({p}, {chance})" if sum(len(each.accuracy) for each in after) > 1 else ""
    return f"{told}{gain.mean:+.2f}{spread}{tested}."


def _is_weighted(run: Run) -> bool:
    """Whether the loss weighs negatives by their cosine, other than DCL does, and none of them below zero."""
    means = [mean_weight(run.moments[f"{name}_weight"])[0] for name, _ in _MOMENTS if f"{name}_weight" in run.moments]
    return bool(means) and all(np.nanmin(mean) >= 0 for mean in means) and not _is_flat(run)


def _is_flat(run: Run) -> bool:
    found = [run.moments[f"{name}_weight"] for name, _ in _MOMENTS if f"{name}_weight" in run.moments]
    return bool(found) and all(np.nanmax(np.abs(mean_weight(each)[0] - 1)) < 1e-3 for each in found)


def _mean(counts: np.ndarray) -> float:
    mean = (counts * (EDGES[1:] + EDGES[:-1]) / 2).sum() / counts.sum()
    return round(float(mean), 2) + 0.0  # not minus zero


def _command(words: list[str]) -> str:
    """The words of a command as they were typed, from those that Python was started with."""
    typed = {
        "graphcl/run.py": ["python", "-m", "graphcl.run"],
        "graphcl/__main__.py": ["graphcl"],
        "bin/graphcl": ["graphcl"],
    }
    program = next((typed[end] for end in typed if words and words[0].endswith(end)), words[:1])
    return shlex.join([*program, *words[1:]])


def _names_only(view: Mapping[str, Any]) -> dict[str, Any]:
    """An augmentation without its arguments, whose members, if it has any, cannot be left out."""
    return {key: value for key, value in view.items() if key in ("name", "members")}


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return json.dumps(value) if isinstance(value, (bool, dict, list)) else str(value)
