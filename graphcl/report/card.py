"""Write the card of a run: what was trained on what, how it scores, what it is for and what it is not for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcl.evaluate import metric_name
from graphcl.evaluate.scores import interval_words
from graphcl.references.rows import row_labels
from graphcl.report.summary import PLUS_MINUS, deviation, protocol_line


def card(result: Mapping[str, Any], graphs: str, encoder: str) -> str:
    """Return the text of `card.md`, in the style of the model cards of sentence-transformers.

    Args:
        result: content of `result.json`.
        graphs: description of the data set in one line.
        encoder: description of the encoder in one line.

    Reference: Mitchell et al., "Model Cards for Model Reporting", FAT* 2019 (arXiv 1810.03993).
    """
    config = result["config"]
    name = config["name"] or config["loss"]["name"]
    lines = [f"# {name} on {config['dataset']}", "", "An encoder of graphs, trained by contrast with graphcl.", ""]
    lines += ["## Training", "", *_bullets(_training(result, graphs, encoder)), ""]
    for evaluator, scores in result.get("scores", {}).items():
        lines += [f"## Scores by {evaluator}", "", *_table(scores), "", f"{protocol_line(result)}. {PLUS_MINUS}", ""]
    lines += ["## Use", "", "```python", "from graphcl import GraphCL", ""]
    role = ', role="query")  # or role="target"' if config["towers"] == "separate" else ")"
    lines += ['h = GraphCL.load("encoder.pt").transform(graphs' + role, "```", ""]
    lines += ["## Intended use and limits", "", *_bullets(_limits(config))]
    return "\n".join(lines) + "\n"


def _training(result: Mapping[str, Any], graphs: str, encoder: str) -> list[str]:
    config, versions = result["config"], result["versions"]
    kinds = {"views": "two augmented views of each graph", "group": "two graphs of a group"}
    positives = kinds.get(config["positives"], f"the pairs in {config['positives']}")
    views = " and ".join(dict.fromkeys(each["name"] for each in config["views"].values()))
    length = f"{config['steps']} steps" if config["steps"] else f"{result['epochs']} epochs"
    found = [
        f"Data: {graphs}",
        *([f"Targets: {config['targets']}"] if config["targets"] else []),
        f"Positives: {positives}; views: {views}",
        f"Encoder: {encoder}, from {config['init'] or 'random weights'}",
        f"Method {config['method']['name']}, loss {_spec(config['loss'])}",
        f"{length} of batches of {config['batch_size']}, seeds {', '.join(map(str, result['seeds']))}",
        f"graphcl {versions['graphcl']}, torch {versions['torch']}, commit {result['commit'] or 'unknown'}",
    ]
    if config["hard_negatives"]:
        found.insert(3, f"Hard negatives: {config['hard_negatives']} per pair, every {config['mine_every']} epochs")
    return found


def _spec(named: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{key} {value}" for key, value in named.items() if key != "name" and value is not None)
    return f"{named['name']} ({arguments})" if arguments else str(named["name"])


def _table(scores: Mapping[str, Any]) -> list[str]:
    """Return the table of rows: mean, deviation over seeds and, of searches, the interval over groups."""
    rows, seeds = scores["per_seed"][0], scores["per_seed"]
    with_ends = [each["figures"] for each in rows.values() if "mrr_low" in each["figures"]]
    searched = bool(with_ends)
    over = "".join(interval_words(with_ends[0].get("mrr_units"))) if searched else ""
    lines = [f"| row | {metric_name(scores['metric'])} | ± seeds |{f' 95 % over {over} |' * searched}"]
    lines += [f"|---|---|---|{'---|' * searched}"]
    for name, label in row_labels(rows).items():
        ends = [[seed[name]["figures"].get(f"mrr_{end}") for seed in seeds] for end in ("low", "high")]
        known = searched and None not in ends[0] + ends[1]
        interval = (
            f" {sum(ends[0]) / len(seeds):.2f} to {sum(ends[1]) / len(seeds):.2f} |" if known else " |" * searched
        )
        lines.append(f"| {label} | {scores[name]['mean']:.2f} | {deviation(scores[name])} |{interval}")
    return lines


def _limits(config: Mapping[str, Any]) -> list[str]:
    scored = "search for counterparts" if config["positives"] != "views" else "features for a classifier"
    return [
        f"Use: {scored}, on graphs with the same node and edge columns, from the same source as the training graphs.",
        "Rows without training stand in the table; where one of them is as good, use it instead.",
        "Scores are of this data and split. Graphs of other sources, sizes or label frequencies can score lower.",
        "Node order has no effect; graphs that message passing cannot tell apart get equal embeddings.",
    ]


def _bullets(lines: list[str]) -> list[str]:
    return [f"- {line}" for line in lines]
