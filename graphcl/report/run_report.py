"""Write `report.html`, a self-contained page about a run, from the files in the run folder."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from graphcl.config import make_config
from graphcl.config.recipes import flat_values, read_yaml
from graphcl.errors import InputError, reason
from graphcl.evaluate import holm, paired_gain, paired_test, summarise
from graphcl.evaluate.needs import is_by_copies
from graphcl.evaluate.scores import NUMBERS
from graphcl.references.rows import is_trained, row_labels
from graphcl.registry import encoders, evaluators, methods
from graphcl.report import figures
from graphcl.report.style import BEST, MUTED, TRAINED, UNTRAINED, inline, style
from graphcl.report.summary import EDGES, ScoreTable, protocol_line, render, score_tables, unit
from graphcl.system.arrays import read_arrays
from graphcl.system.files import MAX_METRICS, parse_json, read_json, read_text, write_text

_MEASURES = {
    "loss": "loss",
    "alignment": "alignment (lower is closer)",
    "uniformity": "uniformity (lower is more uniform)",
}
_NOT_DRAWN = ("seed", "epoch", "seconds", "data_seconds", "start", "fold", "mi_limit")
_TUNED = {"untrained": "from scratch", "trained": "from trained"}
"""Row -> label in a fine-tuning."""
_PROGRAMS = {"graphcl/run.py": "python -m graphcl.run", "graphcl/__main__.py": "graphcl", "bin/graphcl": "graphcl"}
_LEGEND = [
    ("untrained encoder", UNTRAINED, "o"),
    ("best row without training, if another", BEST, "o"),
    ("trained encoder", TRAINED, "o"),
    ("one seed", MUTED, "-"),
]
"""Name, colour and mark of each entry in the legend of the scores."""
_PANELS = 8
"""Largest number of figures of predictions, as a run may have hundreds of targets."""
Section = dict[str, Any] | None
"""Content of a section of the page, None if its files are missing. Figures have a label for screen readers."""


@dataclass(frozen=True)
class Run:
    """The content of the files of a run, or of a transfer, whose settings have a `mode`.

    If a file is missing, its attribute is empty. `snapshots` maps `before` and `after` to arrays of `report_arrays`;
    `predictions` are the rows of `predictions.csv`, and `left_out` the number of rows of `invalid.csv`.
    """

    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    result: Mapping[str, Any]
    embeddings: Mapping[str, np.ndarray]
    snapshots: Mapping[str, Mapping[str, np.ndarray]]
    predictions: Sequence[Mapping[str, str]] = ()
    left_out: int = 0


def read_run(folder: Path) -> Run:
    """Read and return the content of a run folder.

    Raises:
        InputError: `folder` is not a run folder, or a file in it cannot be read.
    """
    wanted = "pass one with a config.yaml, such as runs/MUTAG-adnce-1"
    if not (folder / "config.yaml").is_file():
        sweep = "; use graphcl sweep for a sweep" if (folder / "sweep.yaml").is_file() else ""
        raise InputError(f"{folder} is not a run folder; {wanted}{sweep}.")
    config = read_yaml(folder / "config.yaml")
    for key in ("encoder",) if "mode" in config else ("loss", "views"):
        if key not in config:
            raise InputError(f"{folder} is not a run folder, its config.yaml has no `{key}`; {wanted}.")

    def content(name: str, read: Callable[[Path], Any], missing: Any) -> Any:
        return read(folder / name) if (folder / name).exists() else missing

    def rows(path: Path) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(read_text(path, MAX_METRICS), newline="")))

    def epochs(path: Path) -> list[dict[str, Any]]:
        return [parse_json(line, str(path)) for line in read_text(path, MAX_METRICS).splitlines()]

    snapshots: dict[str, dict[str, np.ndarray]] = {}
    try:
        for key, values in content("report.npz", read_arrays, {}).items():
            when, _, name = key.partition("_")
            snapshots.setdefault(when, {})[name] = values
        return Run(
            config,
            content("metrics.jsonl", epochs, []),
            content("result.json", read_json, {}),
            content("embeddings.npz", read_arrays, {}),
            snapshots,
            content("predictions.csv", rows, []),
            len(content("invalid.csv", rows, [])),
        )
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not, and return the path of the file.

    Raises:
        InputError: `folder` is not a run folder, or a file in it cannot be read or written.
    """
    path = Path(folder) / "report.html"
    with style():
        run = read_run(Path(folder))
        try:
            text = report(run)
        except Exception as error:  # damaged files can raise any exception
            raise InputError(f"{folder} is damaged, its files do not fit together: {reason(error)}.") from error
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from None
    return path


def report(run: Run) -> str:
    """Return the report of a run as HTML that is also well-formed XML."""
    config, result, numbers = run.config, run.result, itertools.count()
    mode, method = config.get("mode"), "" if "mode" in config else config["method"]["name"]
    settings = _settings(config)
    seconds = {} if mode else result.get("seconds", {})
    values = vars(run) | {
        "mode": mode,
        # a plug-in used by the run may not be installed here
        "rows": methods.facts(method).get("rows", "graphs") if method in methods else "graphs",
        "pairs": config.get("positives") == "group",
        "title": f"{Path(config['dataset']).stem}, {mode or config.get('name') or config['loss']['name']}",
        "command": _command(result["command"]) if result else "",
        "svg": lambda figure, label: Markup(inline(figure, f"f{next(numbers)}", label)),
        "glyphs": {"o": "●", "^": "▲", "s": "■", "D": "◆", "v": "▼"},
        "lines": {"-": "solid", "--": "dashed"},
        "scores": _scores(result) if "scores" in result else None,
        "predicted": predicted_section(run),
        "curves": _curves(run.metrics) if run.metrics else None,
        "maps": _maps(run),
        "cosines": _cosines(run.snapshots) if run.snapshots else None,
        "of_encoder": _of_encoder(run),
        "times": ", ".join(f"{stage} {value:.2f} s" for stage, value in seconds.items()),
        "changed": [setting for setting in settings if setting[2] is not None],
        "unchanged": [(key, value) for key, value, default in settings if default is None],
    }
    page = render("report.html.jinja", **values)
    return page.replace(" ± ", "\u00a0±\u00a0")  # no line break around ±


def _of_encoder(run: Run) -> Section:
    """Return the section of an encoder whose class has a `report_section`, a function of the arrays of `after`."""
    encoder = run.config["encoder"]
    name = encoder["name"] if isinstance(encoder, Mapping) else ""  # in a transfer, the path of a file
    section = getattr(encoders[name], "report_section", None) if name in encoders else None
    return None if section is None else section(run.snapshots.get("after", {}))


def _command(arguments: Sequence[str]) -> str:
    """Return the command line as typed, with the path in `sys.argv[0]` replaced by the name of the program."""
    program, *words = arguments or [""]
    typed = next((typed for end, typed in _PROGRAMS.items() if program.endswith(end)), program)
    return " ".join([typed, *map(shlex.quote, words)])


def _settings(config: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return `(name, value, default)` for every setting, as text.

    `default` is None if the value is the default, and of a transfer, whose settings depend on its mode.
    """
    plain: dict[str, Any] = {}
    if "mode" not in config:
        plain = same_names = dict(flat_values(make_config({}).model_dump()))
        names: dict[str, Any] = {key: {"name": config[key]["name"]} for key in ("loss", "method", "encoder")}
        # keep the members of a composed augmentation, which are required arguments
        names["views"] = {
            key: {part: view[part] for part in ("name", "members") if part in view}
            for key, view in config["views"].items()
        }
        with contextlib.suppress(InputError):  # a plug-in used by the run may not be installed here
            same_names = dict(flat_values(make_config(names).model_dump()))
    settings = []
    for key, value in flat_values(config):
        default = (plain if key.endswith(".name") else same_names).get(key) if plain else value
        same = value == default or key in ("out", "mirror", "data_root") or (key == "features" and default == "auto")
        settings.append((key, _shown(value), None if same else _shown(default)))
    return settings


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)


def _scores(result: Mapping[str, Any]) -> Section:
    names = row_labels({row for scores in result["scores"].values() for row in scores["per_seed"][0]})
    base, chosen = "the untrained encoder", "C"
    mode = result.get("config", {}).get("mode")
    if mode == "finetune":
        names, base = names | _TUNED, "from scratch"
    chosen = "epoch" if mode in ("finetune", "linear") else chosen
    heads, drawn, head, columns, seed_rows = [], [], [""], [], []
    trained = "trained" in names  # else `epochs` is 0
    paired = trained and not all(map(is_by_copies, result["scores"]))
    for table in score_tables(result, names):
        evaluator, rows, best = table.evaluator, table.rows, table.best
        shown = "trained" if trained else best
        means = {row: summarise(scores) for row, scores in rows.items()}
        mean, by_copies = f"{means[shown].mean:.2f}", is_by_copies(evaluator)
        head.append(f"{evaluator}, {figures.metric_label(table.metric)}")
        columns.append([str(means.get(row, "-")) for row in names])
        if by_copies:
            head.append("effective rank")
            ranks = [table.figures(row).get("effective_rank") for row in names]
            columns.append(["-" if rank is None else f"{rank:.1f}" for rank in ranks])
            verdict = evaluators.fact(evaluator, "note")
        elif trained:
            verdict, gains = _compared(table)
            columns[-1] += gains
            label = f"{evaluator}: trained encoder {mean} {unit(table.metric)}. {verdict}"
            middle = {} if best == "untrained" else {names[best]: rows[best]}
            picture = figures.gains(evaluator, {"untrained": rows["untrained"], **middle, "trained": rows["trained"]})
            drawn.append((label, picture))
        else:
            verdict = f"Nothing was trained; the best row without training is that of the {names[best]}."
        seeds = len(rows[shown])
        spread = f" ± {table.texts(shown)[1]} over {seeds} seeds" if seeds > 1 else ", one seed"
        # a score by copies does not measure classes, so the page does not start with it
        number = "" if by_copies else mean
        interval = f"{unit(table.metric)}{spread}, {evaluator}"
        heads.append({"number": number, "interval": interval, "verdict": verdict})
        for i, score in enumerate(rows[shown]):
            of_seed = [f"{rows[row][i].mean:.2f}" if row in rows else "-" for row in names]
            if paired:
                gain = "-" if by_copies else f"{paired_gain([score], [rows['untrained'][i]]).mean:+.2f}"
                of_seed.append(gain)
            seed_rows.append((evaluator, score.seed, *of_seed))
    over = [f"gain over {base}", "gain over the best row without training"] if paired else []
    return {
        "heads": heads,
        "head": head,
        "rows": list(itertools.zip_longest([*names.values(), *over], *columns, fillvalue="-")),
        "protocol": protocol_line(result, chosen),
        "paired": paired,
        "legend": _LEGEND,
        "figures": drawn,
        "seed_head": ["evaluator", "seed", *names.values(), *over[:1]],
        "seed_rows": seed_rows,
    }


def _compared(table: ScoreTable) -> tuple[str, list[str]]:
    """Return what training gains over the best row in words, and its gains over the untrained and the best row.

    The best row is chosen by the scores that are tested, so its test is one of several, and p is adjusted (Holm) for
    all rows. The folds of one seed do not show how much training varies with the seed, so one seed has no p.
    """
    after, texts = table.rows["trained"], []
    names = [row for row in table.rows if not is_trained(row)]
    p = holm([paired_test(after, table.rows[row]).p for row in names])
    verdict = "One seed allows no test of the gain over"
    for row in ("untrained", table.best):
        gain, adjusted = paired_gain(after, table.rows[row]), p[names.index(row)]
        text = f"{gain.mean:+.2f}"
        if len(after) > 1:
            better = f"better in {round(gain.positive * len(after))} of {len(after)} seeds"
            text += f" ± {gain.std_seeds:.2f}, {better}, {'p < 0.001' if adjusted < 0.001 else f'p = {adjusted:.3f}'}"
            verdict = f"Training {'gains over' if gain.mean > 0 else 'loses to'}"
            verdict = "No gain beyond chance over" if adjusted >= 0.05 else verdict
        texts.append(text)
    name = table.labels[table.best]
    return f"{verdict} the best row without training ({name}): {text}.", [texts[0], f"{text} ({name})"]


def predicted_section(run: Run) -> Section:
    """Return the figures of the first seed's predictions of numbers, and what they leave out; None without any."""
    scores = run.result.get("scores", {})
    rows = [row for row in run.predictions if scores.get(row["eval"], {}).get("metric") in NUMBERS]
    if not rows:
        return None
    seed, names = rows[0]["seed"], [name for name in rows[0] if f"{name}_predicted" in rows[0]]
    drawn = []
    for evaluator, name in itertools.product(dict.fromkeys(row["eval"] for row in rows), names):
        measured = [row for row in rows if (row["eval"], row["seed"]) == (evaluator, seed) and row[name]]
        if measured:
            pairs = np.array([[float(row[name]), float(row[f"{name}_predicted"])] for row in measured])
            label = f"{name} of {len(pairs)} test graphs, measured against predicted by {evaluator}"
            drawn.append((label, figures.agreement(f"{name}, {evaluator}", *pairs.T)))
    return {"figures": drawn[:_PANELS], "seed": seed, "more": len(drawn) - _PANELS}


def _curves(metrics: Sequence[Mapping[str, Any]]) -> Section:
    metrics = [line for line in metrics if line.get("start", "trained") == "trained"]
    others = [key for key in metrics[-1] if key not in (*_NOT_DRAWN, *_MEASURES)]
    drawn = []
    for key in [*(key for key in _MEASURES if key in metrics[-1]), *others]:
        by_seed: dict[str, list[float]] = {}
        for line in metrics:
            if key in line:
                curve = f"{line['seed']}, fold {line['fold']}" if line.get("fold") else f"{line['seed']}"
                by_seed.setdefault(curve, []).append(line[key])
        ends = ", ".join(f"seed {seed} ends at {values[-1]:.4g}" for seed, values in by_seed.items())
        drawn.append((f"{key}: {ends}", figures.curves(_MEASURES.get(key, key), by_seed)))
    several = len({line["seed"] for line in metrics}) > 1
    return {
        "legend": [("mean of the seeds", TRAINED, "-"), ("a seed", MUTED, "-")] if several else [],
        "figures": drawn[: len(_MEASURES)],
        "more": drawn[len(_MEASURES) :],
        "information": _information(metrics),
    }


def _information(metrics: Sequence[Mapping[str, Any]]) -> Section:
    """Return the figure of the estimates of mutual information, means over the seeds; None without `--diagnostics`."""
    estimated = [line for line in metrics if all(name in line for name in figures.ESTIMATES)]
    if not estimated:
        return None
    seeds: dict[int, list[list[float]]] = {}
    for line in estimated:
        seeds.setdefault(line["seed"], []).append([line[name] for name in figures.ESTIMATES])
    common = min(map(len, seeds.values()))
    mean = np.mean([values[:common] for values in seeds.values()], axis=0)
    means = dict(zip(figures.ESTIMATES, mean.T.tolist(), strict=True))
    ends = ", ".join(f"{figures.ESTIMATES[name][0]} {values[-1]:.3g}" for name, values in means.items())
    label = f"estimates of mutual information in nats, at the end: {ends}"
    return {
        "figure": (label, figures.information("mutual information", means)),
        "legend": [*figures.ESTIMATES.values()],
    }


def _maps(run: Run) -> Section:
    if "h" not in run.embeddings or not run.embeddings["h"].size or run.embeddings["h"].ndim < 3:
        return None
    h, y = run.embeddings["h"], run.embeddings.get("y")
    graphs = figures.plot_indices(h.shape[1])
    planes = {when: (arrays["map"], arrays["shares"]) for when, arrays in run.snapshots.items() if "map" in arrays}
    if not planes:  # with `--report false` there is no report.npz, so map the first seed's embeddings
        planes["after"] = figures.principal_plane(h[0][graphs])
    legend, numbers = [], None
    if y is not None and y.ndim == 1 and y.dtype.kind in "iu":  # classes, not a benchmark's targets
        classes, counts = np.unique(y, return_counts=True)
        numbers = np.searchsorted(classes, y[graphs])
        names = [f"class {value} ({count})" for value, count in zip(classes, counts, strict=True)]
        if len(names) > figures.CLASSES:
            names[figures.CLASSES :] = [f"further classes: {len(names) - figures.CLASSES}"]
        legend = [(name, *figures.class_style(number)) for number, name in enumerate(names)]
    drawn = []
    for when, plane in planes.items():
        label = f"{'un' if when == 'before' else ''}trained encoder"
        drawn.append((f"map of {len(graphs)} graphs, {label}", figures.embedding_map(label, *plane, numbers)))
    return {"legend": legend, "figures": drawn, "shown": len(graphs), "total": h.shape[1]}


def _cosines(snapshots: Mapping[str, Mapping[str, np.ndarray]]) -> Section:
    kinds = figures.KINDS
    counts = {when: {kind: arrays[kind] for kind in kinds if kind in arrays} for when, arrays in snapshots.items()}
    labelled = any("same_class" in of_kind for of_kind in counts.values())
    if labelled:
        kinds = {**kinds, "negative": ("negatives of other classes", *kinds["negative"][1:])}
    drawn, middles = [], (EDGES[1:] + EDGES[:-1]) / 2
    top = max(
        figures.density(values).max() for of_kind in counts.values() for values in of_kind.values() if any(values)
    )
    for when, of_kind in counts.items():
        means = {kind: (values * middles).sum() / values.sum() for kind, values in of_kind.items() if values.any()}
        texts = (f"{kinds[kind][0]} {round(float(mean), 2) + 0.0:+.2f}" for kind, mean in means.items())  # no -0.0
        title = f"{when} training"
        label = f"Cosines {title}, means: {', '.join(texts)}"
        drawn.append((label, figures.similarities(title, of_kind, 1.05 * top)))
    return {
        "legend": [kinds[kind] for kind in kinds if any(kind in of_kind for of_kind in counts.values())],
        "figures": drawn,
        "graphs": int(next(iter(counts.values()))["positive"].sum()),
        "labelled": labelled,
    }
