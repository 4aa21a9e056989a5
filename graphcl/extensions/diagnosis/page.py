"""Put a diagnosis into words, tables and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcl.evaluate import metric_name
from graphcl.evaluate.scores import interval_words
from graphcl.extensions.diagnosis.answers import AS_IS, KINDS, LEVEL, QUESTIONS, Seeds, mean, untrained_best
from graphcl.extensions.diagnosis.run import Diagnosis
from graphcl.references.rows import row_labels
from graphcl.report.figures import metric_label
from graphcl.report.style import GRID, INK, MUTED, TRAINED, UNTRAINED, panels, style

FIGURE = {
    "sizes": "sizes alone",
    "edges": "edges",
    "features": "features",
    "training": "training",
    "without_copies": "all, without copies",
}
"""Name of a gain -> its label in the figure."""
_TRAINING = {
    1: "Training adds to the best row without training.",
    0: "That training adds to the best row without training is not shown.",
    -1: "The trained row is below the best row without training.",
}
_ANSWERS = {1: "yes", 0: "not shown", -1: "no, it is lower"}
"""Sign of a gain -> answer."""


def short(diagnosis: Diagnosis) -> str:
    """Return the verdict in one or two sentences."""
    dataset, answers = diagnosis.dataset, diagnosis.answers
    if answers is None:
        if dataset.scored or dataset.components is not None:
            return "Only copies were counted, as `eval` is none."
        return (
            f"{dataset.name} has neither classes nor groups: what carries a score, and whether training adds to "
            "it, cannot be answered."
        )
    what = "the classes" if _by_class(diagnosis) else "groups" if dataset.relation is None else "pairs"
    sentences = [KINDS[answers.kind].format(what=what)]
    if "training" in answers.gains:
        sentences.append(_TRAINING[answers.gains["training"].sign])
    return " ".join(sentences)


def copies_line(diagnosis: Diagnosis) -> str:
    """Return a sentence on isomorphic copies."""
    copies, answers = diagnosis.copies, diagnosis.answers
    without = ", without edge_attr" if diagnosis.dataset.num_edge_features else ""
    text = (
        f"{100 * copies.repeated:.1f} % of the graphs have an isomorphic copy (by WL colours, with features{without})"
    )
    if answers is not None and answers.leak:
        text += f"; {100 * answers.leak:.1f} % of the test graphs have one in training"
        scores = answers.scores
        if "best_without_copies" in scores:
            text += (
                f". Without these, the best row without training scores {scores['best_without_copies']:.1f} (with them "
                f"{scores['best']:.1f}), and {none_label(diagnosis)} of these {scores['none_without_copies']:.1f}"
            )
    if copies.conflicting and (answers is None or _by_class(diagnosis)):
        text += (
            f". {100 * copies.conflicting:.1f} % have a copy of another class, so no function of features and edges "
            f"exceeds {copies.ceiling:.1f} % on all graphs"
        )
    return f"{text}."


def markdown(diagnosis: Diagnosis, evaluator: str, figure: str) -> str:
    """Return the page of a diagnosis; `figure` is the name of its file."""
    dataset, answers = diagnosis.dataset, diagnosis.answers
    head = [f"# {dataset.name}: what carries the score", "", f"**{short(diagnosis)}**", ""]
    if answers is None:
        return "\n".join([*head, copies_line(diagnosis), ""])
    rows = diagnosis.table[AS_IS]
    seeds = next(iter(rows.values()))
    first, none = seeds[0].score, none_label(diagnosis)
    folds, chosen = "one test part", "the validation part"
    if first.folds > 1:
        folds, chosen = f"{first.folds} folds", "inner folds"
    if answers.units is not None:
        over, note = interval_words(answers.units)
        folds += f" of {over}{note.replace('too narrow', 'intervals are too narrow')}"
    size = f"{len(dataset)}" if len(dataset) == diagnosis.total else f"{len(dataset)} of {diagnosis.total}"
    num_seeds = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    how = (
        f"{size} graphs; {evaluator}, {metric_name(first.metric)}, {folds}, {num_seeds}. "
        f"Gains are in points, with {100 * LEVEL:.0f} % intervals; a gain is shown if its interval does not hold zero. "
        f"The best row without training is chosen by {chosen}: it scores {answers.scores['best']:.1f}, {none} "
        f"{answers.scores['none']:.1f}."
    )
    lines = [*head, f"![What carries the score]({figure})", "", how, ""]
    lines += ["| question | answer | gain |", "|---|---|---|"]
    for name, question in QUESTIONS.items():
        gain = answers.gains.get(name)
        if gain is not None and question.text:
            over = question.over.format(none=none)
            lines.append(f"| {question.text} | {_ANSWERS[gain.sign]} | {gain} {over} |")
        elif question.unchanged and question.control in diagnosis.unchanged:
            lines.append(f"| {question.text} | - | {question.unchanged} |")
    lines += ["", f"- {copies_line(diagnosis)}", ""]
    labels = row_labels(rows)
    lines += [f"| graphs | {' | '.join(labels.values())} | best without training |", "|---" * (len(labels) + 2) + "|"]
    for control, by_row in diagnosis.table.items():
        cells = [f"{mean(by_row[row]):.1f}" if row in by_row else "-" for row in labels]
        lines.append(f"| {control} | {' | '.join(cells)} | {mean(untrained_best(by_row)):.1f} |")
    return "\n".join([*lines, ""])


def none_label(diagnosis: Diagnosis) -> str:
    """Return the name of the row without information."""
    return "the majority class" if _by_class(diagnosis) else "a random order"


def _by_class(diagnosis: Diagnosis) -> bool:
    return "majority" in diagnosis.table.get(AS_IS, {})


@style()
def diagnosis_figure(diagnosis: Diagnosis) -> Any:
    """Return a figure: on the left a bar of each control's score, on the right the gains that answer the questions.

    Bars start at the score without information. A gain whose interval does not hold zero is drawn in colour.
    """
    from matplotlib.lines import Line2D

    answers = diagnosis.answers
    assert answers is not None
    none, metric = answers.scores["none"], next(iter(diagnosis.table[AS_IS].values()))[0].score.metric
    gains = {label: answers.gains[name] for name, label in FIGURE.items() if name in answers.gains}
    figure, (left, right) = panels(2, 4.6, max(2.4, 0.9 + 0.3 * max(len(diagnosis.table), len(gains))))
    title = f"{diagnosis.dataset.name}: {short(diagnosis)}"
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10, wrap=True)
    offset: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
    for place, rows in enumerate(diagnosis.table.values()):
        best, trained = mean(untrained_best(rows)), mean(rows["trained"]) if "trained" in rows else none
        left.barh(place, best - none, left=none, color=UNTRAINED, alpha=0.75, height=0.6)
        left.annotate(f"{best:.1f}", (max(best, trained, none), place), **offset, color=INK)
        if "trained" in rows:
            left.plot([trained] * 2, [place - 0.38, place + 0.38], color=TRAINED, lw=2.2)
    left.axvline(none, color=MUTED, lw=1)
    left.set(title="what is left of the graphs", xlabel=f"{metric_label(metric)}, from {none_label(diagnosis)}")
    for place, gain in enumerate(gains.values()):
        colour = {1: TRAINED, 0: MUTED, -1: UNTRAINED}[gain.sign]
        right.plot([gain.low, gain.high], [place] * 2, color=colour, lw=2.2)
        right.plot(gain.mean, place, "o", color=colour, ms=5)
        text = f"{gain.mean:+.1f}{'' if gain.sign else ', not shown'}"
        right.annotate(text, (gain.high, place), **offset, color=INK if gain.sign else MUTED)
    right.axvline(0, color=INK, lw=1)
    right.set(title="gain in points, 99 % interval")
    right.margins(x=0.3)
    for axis, names in ((left, [*diagnosis.table]), (right, [*gains])):
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.grid(True, axis="x", color=GRID)
    left.margins(x=0.14)
    marks = [
        Line2D([], [], color=UNTRAINED, lw=6, alpha=0.75, label="best row without training"),
        Line2D([], [], ls="", color=TRAINED, marker="|", ms=11, mew=2.2, label="trained encoder"),
    ]
    figure.legend(handles=marks, loc="outside lower left", ncols=2)
    return figure


def as_json(diagnosis: Diagnosis, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `diagnosis.json`: `settings`, answers, and the scores of every control, row and seed."""

    def plain(rows: Mapping[str, Seeds]) -> dict[str, Any]:
        return {row: [vars(scored.score) for scored in seeds] for row, seeds in rows.items()}

    dataset, copies, answers = diagnosis.dataset, diagnosis.copies, diagnosis.answers
    counted = {"repeated": copies.repeated, "conflicting": copies.conflicting, "ceiling": copies.ceiling}
    content: dict[str, Any] = {"dataset": dataset.name, "graphs": len(dataset), "of": diagnosis.total}
    content |= {"answer": short(diagnosis), "copies": counted}
    if answers is not None:
        counted["in_training"] = answers.leak
        content |= {
            "kind": answers.kind,
            "level": LEVEL,
            "units": answers.units,
            "scores": answers.scores,
            "gains": {name: vars(gain) for name, gain in answers.gains.items()},
            "table": {name: plain(rows) for name, rows in diagnosis.table.items()},
        }
    return content | {"config": settings}
