"""Put a diagnosis into words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphcl.diagnose.answers import AS_IS, KINDS, OVER, untrained_best
from graphcl.diagnose.run import Diagnosis
from graphcl.diagnose.scored import LEVEL, Seeds, mean
from graphcl.evaluate import metric_name
from graphcl.evaluate.scores import Interval, interval_words, sample_deviation
from graphcl.references.rows import row_labels

QUESTIONS = {
    "signal": ("Is there anything to learn?", "over {none}"),
    "sizes": ("Do sizes tell it?", "sizes alone, over {none}"),
    "edges": ("Do edges add to features and sizes?", "over no edges"),
    "features": ("Do features add to edges and sizes?", "over constant features"),
    "beyond_degrees": ("Do edges add to degrees?", "over random edges of the same degrees"),
    "places": ("Does it matter which node has which features?", "over features shuffled within each graph"),
    "without_copies": ("Is there a signal without copies?", "over {none}, on test graphs without a copy in training"),
    "training": ("Does training add anything?", "over the best row without training"),
    "over_untrained": ("Does training change the encoder?", "over the untrained encoder"),
}
"""Name of a gain -> the question, and what the gain is over."""
FIGURE = {
    "sizes": "sizes alone",
    "edges": "edges",
    "features": "features",
    "training": "training",
    "without_copies": "all, without copies",
}
"""Name of a gain -> its label in the figure."""
UNCHANGED = {
    "edges": "the graphs have no edges",
    "features": "the nodes have no features of their own",
    "beyond_degrees": "no other edges have these degrees",
    "places": "the nodes of a graph have equal features",
}
"""Name of a gain -> why it is missing, if its control changes nothing."""


def short(found: Diagnosis) -> str:
    """Return the verdict in one or two sentences."""
    if found.answers is None:
        dataset = found.dataset
        if dataset.scored or dataset.groups is not None or dataset.relation is not None:
            return "Only copies were counted, as `eval` is none."
        return (
            f"{dataset.name} has neither classes nor groups: what carries a score, and whether training adds to "
            "it, cannot be answered."
        )
    what = "the classes" if _by_class(found) else "groups" if found.dataset.relation is None else "pairs"
    trained = {
        1: "Training adds to the best row without training.",
        0: "That training adds to the best row without training is not shown.",
        -1: "The trained row is below the best row without training.",
    }
    gain = found.answers.gains.get("training")
    last = f" {trained[gain.sign]}" if gain is not None else ""
    return KINDS[found.answers.kind].format(what=what) + last


def copies_line(found: Diagnosis) -> str:
    """Return a sentence on isomorphic copies."""
    copies, answers = found.copies, found.answers
    without = ", without edge_attr" if found.dataset.num_edge_features else ""
    text = (
        f"{100 * copies.repeated:.1f} % of the graphs have an isomorphic copy (by WL colours, with features{without})"
    )
    if answers is not None and answers.leak:
        text += f"; {100 * answers.leak:.1f} % of the test graphs have one in training"
        scores = answers.scores
        if "best_without_copies" in scores:
            text += f". Without these, the best row without training scores {scores['best_without_copies']:.1f}"
            text += f" (with them {scores['best']:.1f}), and {none_label(found)} of these "
            text += f"{scores['none_without_copies']:.1f}"
    if copies.conflicting and (answers is None or _by_class(found)):
        text += f". {100 * copies.conflicting:.1f} % have a copy of another class"
        text += f", so no function of features and edges exceeds {copies.ceiling:.1f} % on all graphs"
    return f"{text}."


def further_lines(found: Diagnosis) -> Iterator[str]:
    """Yield sentences on the number of graphs and on the settings of the trained row."""
    rows = found.table.get(AS_IS, {})
    if found.curve:
        curve = {**found.curve, len(found.dataset): rows}
        counts = ", ".join(map(str, curve))
        text = f"With {counts} graphs, the best row without training scores "
        text += ", ".join(f"{mean(untrained_best(each)):.1f}" for each in curve.values())
        if "trained" in rows:
            text += ", and the trained one " + ", ".join(f"{mean(each['trained']):.1f}" for each in curve.values())
        yield f"{text}."
    if found.settings:
        spread = sample_deviation([each.score.mean for each in rows["trained"]])
        over = "" if spread is None else f" ± {spread:.1f} (n - 1) over seeds"
        text = f"The trained row scores {mean(rows['trained']):.1f}{over}; with "
        yield text + ", ".join(f"{name} {mean(seeds):.1f}" for name, seeds in found.settings.items()) + "."


def markdown(found: Diagnosis, evaluator: str, figure: str) -> str:
    """Return the page of a diagnosis; `figure` is the name of its file."""
    dataset, answers = found.dataset, found.answers
    head = [f"# {dataset.name}: what carries the score", "", f"**{short(found)}**", ""]
    if answers is None:
        return "\n".join([*head, copies_line(found), ""])
    one = next(iter(found.table[AS_IS].values()))[0].score
    folds = f"{one.folds} folds" if one.folds > 1 else "one test part"
    if answers.units is not None:
        over, note = interval_words(answers.units)
        folds += f" of {over}{note.replace('too narrow', 'intervals are too narrow')}"
    seeds = len(next(iter(found.table[AS_IS].values())))
    size = f"{len(dataset)} graphs" if len(dataset) == found.total else f"{len(dataset)} of {found.total} graphs"
    chosen = "inner folds" if one.folds > 1 else "the validation part"
    how = (
        f"{size}; {evaluator}, {metric_name(one.metric)}, {folds}, {seeds} seed{'s' * (seeds > 1)}. Gains are in "
        f"points, with {100 * LEVEL:.0f} % intervals; a gain is shown if its interval does not hold zero. The best row "
        f"without training is chosen by {chosen}: it scores {answers.scores['best']:.1f}, {none_label(found)} "
        f"{answers.scores['none']:.1f}."
    )
    lines = [*head, f"![What carries the score]({figure})", "", how, ""]
    lines += ["| question | answer | gain |", "|---|---|---|"]
    for name, (question, over) in QUESTIONS.items():
        if name in answers.gains:
            over = over.format(none=none_label(found))
            lines.append(f"| {question} | {answered(answers.gains[name])} | {answers.gains[name]} {over} |")
        elif name in UNCHANGED and OVER[name] in found.unchanged:
            lines.append(f"| {question} | - | {UNCHANGED[name]} |")
    lines += ["", f"- {copies_line(found)}", *(f"- {line}" for line in further_lines(found)), ""]
    return "\n".join([*lines, *table_lines(found), ""])


def table_lines(found: Diagnosis) -> list[str]:
    """Return the table of mean scores in Markdown: a line for each control, a column for each row."""
    rows = row_labels(found.table[AS_IS])
    lines = [f"| graphs | {' | '.join(rows.values())} | best without training |", "|---" * (len(rows) + 2) + "|"]
    for control, by_row in found.table.items():
        cells = [f"{mean(by_row[row]):.1f}" if row in by_row else "-" for row in rows]
        lines.append(f"| {control} | {' | '.join(cells)} | {mean(untrained_best(by_row)):.1f} |")
    return lines


def answered(gain: Interval) -> str:
    """Return the answer that an interval gives."""
    return {1: "yes", 0: "not shown", -1: "no, it is lower"}[gain.sign]


def none_label(found: Diagnosis) -> str:
    """Return the name of the row without information."""
    return "the majority class" if _by_class(found) else "a random order"


def _by_class(found: Diagnosis) -> bool:
    return "majority" in found.table.get(AS_IS, {})


def as_json(found: Diagnosis, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `diagnosis.json`: `settings`, answers, and the scores of every control, row and seed."""

    def plain(rows: Mapping[str, Seeds]) -> dict[str, Any]:
        return {row: [vars(each.score) for each in seeds] for row, seeds in rows.items()}

    copies = found.copies
    kept: dict[str, Any] = {"dataset": found.dataset.name, "graphs": len(found.dataset), "of": found.total}
    kept |= {"answer": short(found), "copies": {"repeated": copies.repeated, "conflicting": copies.conflicting}}
    kept["copies"]["ceiling"] = copies.ceiling
    if (answers := found.answers) is not None:
        kept |= {"kind": answers.kind, "level": LEVEL, "units": answers.units, "scores": answers.scores}
        kept["copies"]["in_training"] = answers.leak
        kept["gains"] = {name: vars(each) for name, each in answers.gains.items()}
        kept |= {"table": {name: plain(rows) for name, rows in found.table.items()}}
        kept |= {"curve": {count: plain(rows) for count, rows in found.curve.items()}}
        kept["settings"] = plain(found.settings)
    return kept | {"config": settings}
