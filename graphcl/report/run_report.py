"""Write `report.html`, a self-contained page about a run, from the files in the run folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from graphcl.config import make_config
from graphcl.config.nested import flat_values
from graphcl.errors import InputError, reason
from graphcl.evaluate import FoldScores, holm, paired_gain, paired_test, summarise
from graphcl.evaluate.needs import is_by_copies
from graphcl.evaluate.pca import plot_indices, principal_plane
from graphcl.references.rows import is_trained, row_labels
from graphcl.registry import evaluators, methods
from graphcl.report.figures import (
    CLASSES,
    KINDS,
    class_style,
    curves,
    density,
    embedding_map,
    gains,
    metric_label,
    similarities,
)
from graphcl.report.patterns import pattern_figure, weights_figure
from graphcl.report.predicted import predicted_section
from graphcl.report.run_files import EDGES, Run, read_run
from graphcl.report.style import BEST, MUTED, TRAINED, UNTRAINED, style
from graphcl.report.summary import mean_rank, protocol_line, unit
from graphcl.report.svg import inline
from graphcl.sparse.explain import load_patterns
from graphcl.system.files import write_text

_MEASURES = {
    "loss": "loss",
    "alignment": "alignment (lower is closer)",
    "uniformity": "uniformity (lower is more uniform)",
}
_NOT_DRAWN = ("seed", "epoch", "seconds", "data_seconds", "start", "fold")
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
Section = dict[str, Any] | None
"""Content of a section of the page, None if its files are missing. Figures have a label for screen readers."""


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
    numbers, mode = itertools.count(), run.config.get("mode")
    method = None if mode else run.config["method"]["name"]
    listed = [(key, _shown(value), None) for key, value in flat_values(run.config)]
    settings = listed if mode else compare_with_defaults(run.config)
    seconds = run.result.get("seconds", {})
    folder = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = pages.get_template("report.html.jinja").render(
        **vars(run) | ({"result": {**run.result, "seeds": run.config["seeds"]}} if mode and run.result else {}),
        # a plug-in used by the run may not be installed here
        rows=methods.facts(method).get("rows", "graphs") if method and method in methods else "graphs",
        mode=mode,
        about=_about(run) if mode else "",
        predicted=predicted_section(run),
        pairs=run.config.get("positives") == "group",
        svg=lambda figure, label: Markup(inline(figure, f"f{next(numbers)}", label)),
        glyphs={"o": "●", "^": "▲", "s": "■", "D": "◆", "v": "▼"},
        lines={"-": "solid", "--": "dashed"},
        title=f"{Path(run.config['dataset']).stem}, {mode or run.config.get('name') or run.config['loss']['name']}",
        command=_command(run.result["command"]) if run.result else "",
        scores=_scores(run.result),
        curves=_curves(run.metrics),
        maps=_maps(run),
        cosines=_cosines(run.snapshots),
        patterns=_patterns(run.snapshots),
        times=", ".join(f"{stage} {value:.2f} s" for stage, value in ({} if mode else seconds).items()),
        changed=[(key, value, default) for key, value, default in settings if default is not None],
        unchanged=[(key, value) for key, value, default in settings if default is None],
    )
    return page.replace(" ± ", "\u00a0±\u00a0")  # no line break around ±


def _row_names(result: Mapping[str, Any]) -> tuple[dict[str, str], str, str]:
    """Return row -> label, the row that gains are over, and what the validation part chooses."""
    names = row_labels({row for kept in result["scores"].values() for row in kept["per_seed"][0]})
    if result.get("config", {}).get("mode") == "finetune":
        return names | _TUNED, "from scratch", "epoch"
    return names, "the untrained encoder", "C"


def _about(run: Run) -> str:
    """Return the heading of the report of a transfer."""
    config, encoder = run.config, run.result.get("encoder", {})
    made = f"{encoder['encoder']['name']}, trained on {encoder['dataset']}" if encoder else "an encoder"
    if config["mode"] == "probe":
        return f"Probe of the frozen encoder {config['encoder']} ({made})."
    length = f"{config['epochs']} epochs, batches of {config['batch_size']}"
    return f"Fine-tuned encoder {config['encoder']} ({made}), {length}, labels of {100 * config['label_rate']:g} %."


def compare_with_defaults(config: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return `(name, value, default)` for every setting, as text; `default` is None if the value is the default."""
    names = {key: {"name": config[key]["name"]} for key in ("loss", "method", "encoder")}
    # keep the members of a composed augmentation, which are required arguments
    names["views"] = {
        key: {part: view[part] for part in ("name", "members") if part in view} for key, view in config["views"].items()
    }
    plain = same_names = dict(flat_values(make_config({}).model_dump()))
    with contextlib.suppress(InputError):  # a plug-in used by the run may not be installed here
        same_names = dict(flat_values(make_config(names).model_dump()))
    found = []
    for key, value in flat_values(config):
        default = (plain if key.endswith(".name") else same_names).get(key)
        same = value == default or key in ("out", "mirror", "data_root") or (key == "features" and default == "auto")
        found.append((key, _shown(value), None if same else _shown(default)))
    return found


def _scores(result: Mapping[str, Any]) -> Section:
    if "scores" not in result:
        return None
    heads, figures, head, columns, seed_rows = [], [], [""], [], []
    names, base, chosen = _row_names(result)
    trained = "trained" in names  # else `epochs` is 0
    paired = trained and not all(map(is_by_copies, result["scores"]))
    for evaluator, kept in result["scores"].items():
        rows = {row: [FoldScores.of(each[row]) for each in kept["per_seed"]] for row in names if row in kept}
        best, several = kept["best_reference"], len(kept["per_seed"]) > 1
        shown = "trained" if trained else best
        # a score by copies does not measure classes, so the page does not start with it
        number = "" if is_by_copies(evaluator) else f"{kept[shown]['mean']:.2f}"
        # from the scores, as a `result.json` of an earlier version holds deviations with divisor n
        spreads = {row: f" ± {summarise(seeds).std_seeds:.2f}" if several else "" for row, seeds in rows.items()}
        head.append(f"{evaluator}, {metric_label(kept['metric'])}")
        columns.append([f"{kept[row]['mean']:.2f}{spreads[row]}" if row in rows else "-" for row in names])
        spread = f"{spreads[shown]} over {len(kept['per_seed'])} seeds" if several else ", one seed"
        interval = f"{unit(kept['metric'])}{spread}, {evaluator}"
        before, after, gained = rows["untrained"], rows[shown], trained and not is_by_copies(evaluator)
        if is_by_copies(evaluator):
            head.append("effective rank")
            columns.append([f"{mean_rank(kept, row):.1f}" if row in rows else "-" for row in names])
            verdict = evaluators.fact(evaluator, "note")
        elif gained:
            verdict, texts = _compared(rows, best, names[best])
            columns[-1] += texts
            label = f"{evaluator}: trained encoder {number} {unit(kept['metric'])}. {verdict}"
            middle = {} if best == "untrained" else {names[best]: rows[best]}
            figures.append((label, gains(evaluator, {"untrained": before, **middle, "trained": after})))
        else:
            verdict = f"Nothing was trained; the best row without training is that of the {names[best]}."
        heads.append({"number": number, "interval": interval, "verdict": verdict})
        for i, score in enumerate(after):
            means = (f"{rows[row][i].mean:.2f}" if row in rows else "-" for row in names)
            gain = [f"{paired_gain([score], [before[i]]).mean:+.2f}" if gained else "-"] if paired else []
            seed_rows.append((evaluator, score.seed, *means, *gain))
    over_rows = [f"gain over {base}", "gain over the best row without training"] if paired else []
    return {
        "heads": heads,
        "head": head,
        "rows": list(itertools.zip_longest([*names.values(), *over_rows], *columns, fillvalue="-")),
        "protocol": protocol_line(result, chosen),
        "paired": paired,
        "legend": _LEGEND,
        "figures": figures,
        "seed_head": ["evaluator", "seed", *names.values(), *over_rows[:1]],
        "seed_rows": seed_rows,
    }


def _compared(rows: Mapping[str, Sequence[FoldScores]], best: str, name: str) -> tuple[str, list[str]]:
    """Return what training gains over `best` in words, and the texts of its gains over the untrained and that row."""
    after = rows["trained"]
    p = _adjusted(after, {row: scores for row, scores in rows.items() if not is_trained(row)})
    over = _gain(after, rows[best], p.get(best))
    verdict = f"{_verdict(after, rows[best], p.get(best))} the best row without training ({name}): {over}."
    return verdict, [_gain(after, rows["untrained"], p.get("untrained")), f"{over} ({name})"]


def _adjusted(after: Sequence[FoldScores], rows: Mapping[str, Sequence[FoldScores]]) -> dict[str, float]:
    """Return the p-value of the gain of `after` over each row, adjusted (Holm) for all rows; empty for one seed.

    The best row is chosen by the scores that are tested, so its test is one of several. The folds of one seed do not
    show how much training varies with the seed.
    """
    if len(after) < 2:
        return {}
    p = holm([paired_test(after, scores).p for scores in rows.values()])
    return dict(zip(rows, p, strict=True))


def _verdict(after: Sequence[FoldScores], best: Sequence[FoldScores], p: float | None) -> str:
    """Return whether training improves on `best`, the scores of the best row without training, in words."""
    if p is None:
        return "One seed allows no test of the gain over"
    if p >= 0.05:
        return "No gain beyond chance over"
    return f"Training {'gains over' if paired_gain(after, best).mean > 0 else 'loses to'}"


def _gain(after: Sequence[FoldScores], before: Sequence[FoldScores], p: float | None) -> str:
    """Return the paired gain of `after` over `before` as text: "+1.20 ± 0.30, better in 4 of 5 seeds, p = 0.012"."""
    gain, seeds = paired_gain(after, before), len(after)
    if p is None:
        return f"{gain.mean:+.2f}"
    text = f"{gain.mean:+.2f} ± {gain.std_seeds:.2f}, better in {round(gain.positive * seeds)} of {seeds} seeds"
    return f"{text}, {'p < 0.001' if p < 0.001 else f'p = {p:.3f}'}"


def _curves(metrics: Sequence[Mapping[str, Any]]) -> Section:
    if not metrics:
        return None
    metrics = [line for line in metrics if line.get("start", "trained") == "trained"]
    drawn = [*_MEASURES, *(key for key in metrics[-1] if key not in (*_NOT_DRAWN, *_MEASURES))]
    figures = []
    for key in (key for key in drawn if key in metrics[-1]):
        by_seed: dict[str, list[float]] = {}
        for line in metrics:
            if key in line:
                curve = f"{line['seed']}, fold {line['fold']}" if line.get("fold") else f"{line['seed']}"
                by_seed.setdefault(curve, []).append(line[key])
        ends = ", ".join(f"seed {seed} ends at {values[-1]:.4g}" for seed, values in by_seed.items())
        figures.append((f"{key}: {ends}", curves(_MEASURES.get(key, key), by_seed)))
    several = len({line["seed"] for line in metrics}) > 1
    return {
        "legend": [("mean of the seeds", TRAINED, "-"), ("a seed", MUTED, "-")] if several else [],
        "figures": figures[: len(_MEASURES)],
        "more": figures[len(_MEASURES) :],
    }


def _maps(run: Run) -> Section:
    if "h" not in run.embeddings or not run.embeddings["h"].size or "ptr" in run.embeddings:
        return None
    h, y = run.embeddings["h"], run.embeddings.get("y")
    graphs = plot_indices(h.shape[1])
    planes = {when: (kept["map"], kept["shares"]) for when, kept in run.snapshots.items() if "map" in kept}
    if not planes:  # with `--report false` there is no report.npz, so map the first seed's embeddings
        planes["after"] = principal_plane(h[0][graphs])
    legend, numbers = [], None
    if y is not None and y.ndim == 1 and y.dtype.kind in "iu":  # classes, not a benchmark's targets
        classes, counts = np.unique(y, return_counts=True)
        numbers = np.searchsorted(classes, y[graphs])
        legend = [(f"class {classes[i]} ({counts[i]})", *class_style(i)) for i in range(min(len(classes), CLASSES))]
        if len(classes) > CLASSES:
            legend.append((f"further classes: {len(classes) - CLASSES}", *class_style(CLASSES)))
    figures = []
    for when, plane in planes.items():
        label = f"{'un' if when == 'before' else ''}trained encoder"
        figures.append((f"map of {len(graphs)} graphs, {label}", embedding_map(label, *plane, numbers)))
    return {"legend": legend, "figures": figures, "shown": len(graphs), "total": h.shape[1]}


def _cosines(snapshots: Mapping[str, Mapping[str, np.ndarray]]) -> Section:
    counts = {when: {kind: kept[kind] for kind in KINDS if kind in kept} for when, kept in snapshots.items()}
    if not counts:
        return None
    labelled = any("same_class" in kinds for kinds in counts.values())
    styles = {**KINDS, "negative": ("negatives of other classes" if labelled else "negatives", *KINDS["negative"][1:])}
    top = max(density(each).max() for kinds in counts.values() for each in kinds.values() if each.sum())
    figures = []
    for when, kinds in counts.items():
        means = ", ".join(f"{styles[kind][0]} {_mean(each):+.2f}" for kind, each in kinds.items() if each.sum())
        title = f"{when} training"
        figures.append((f"Cosines {title}, means: {means}", similarities(title, kinds, 1.05 * top)))
    return {
        "legend": [styles[kind] for kind in KINDS if any(kind in kinds for kinds in counts.values())],
        "figures": figures,
        "graphs": int(next(iter(counts.values()))["positive"].sum()),
        "labelled": labelled,
    }


def _patterns(snapshots: Mapping[str, Mapping[str, np.ndarray]]) -> Section:
    arrays = {
        name.removeprefix("patterns_"): values
        for name, values in snapshots.get("after", {}).items()
        if name.startswith("patterns_")
    }
    if not arrays:
        return None
    frequency, weight = arrays["frequency"], arrays["weight"]
    label = f"weights of {len(weight)} patterns, {weight.min():.2f} to {weight.max():.2f}"
    heaviest = load_patterns(arrays)
    return {
        "figures": [(label, weights_figure(frequency, weight, arrays["depth"]))],
        "heaviest": [(f"the {len(heaviest)} heaviest patterns", pattern_figure(heaviest))],
    }


def _mean(counts: np.ndarray) -> float:
    mean = (counts * (EDGES[1:] + EDGES[:-1]) / 2).sum() / counts.sum()
    return round(float(mean), 2) + 0.0  # adding 0.0 turns -0.0 into 0.0


def _command(arguments: Sequence[str]) -> str:
    """Return the command line as typed, with the path in `sys.argv[0]` replaced by the name of the program."""
    program, *words = arguments or [""]
    typed = next((typed for end, typed in _PROGRAMS.items() if program.endswith(end)), program)
    return " ".join([typed, *map(shlex.quote, words)])


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
