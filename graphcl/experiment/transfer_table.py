"""Run several transfers of one encoder, which a run trains first if there is none, and make one table of them.

FOLDER/pretrain/                     the run that trains the encoder, if none is given
FOLDER/1-NCI1-finetune-0.01/ ...     each transfer, as `graphcl transfer` alone writes it
FOLDER/table.md, table.json          the scores of all transfers
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcl.config import RUNTIME_SETTINGS, make_config
from graphcl.config.settings import TABLE, Hardware, Place
from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, metric_name, summarise
from graphcl.experiment.record.run_folder import MARK, unfinished
from graphcl.experiment.run_config import run
from graphcl.experiment.transfer import Plan, check, load_target, transfer
from graphcl.models.saved import read_saved
from graphcl.references.rows import scores_of
from graphcl.report.summary import PLUS_MINUS
from graphcl.system.files import read_json, write_text

Table = dict[str, dict[str, list[FoldScores]]]
"""Label of a column -> label of a row -> score of each seed."""


def transfer_table(file: str | None, plans: Sequence[Plan], pretrain: Mapping[str, Any], out: str | None) -> None:
    """Run all transfers, write their folders and their table, and print it; continue an unfinished folder.

    Args:
        file: the encoder, see `graphcl.load_encoder`; None: the encoder of a run with the settings `pretrain`.
        plans: the transfers.
        pretrain: settings of the run; data set, seeds, device and folders are those of the transfers by default.
        out: folder; default: a new one in `runs/`.

    Raises:
        InputError: a transfer cannot run; none has begun then.
    """
    names = list(dict.fromkeys(Path(plan.config.dataset).stem for plan in plans))
    run_settings = {} if file is not None else _run_settings(plans, pretrain)
    kept = [_lasting(plan.settings) for plan in plans]
    with unfinished(out, f"{names[0] if len(names) == 1 else 'several'}-transfer") as place:
        data = None if file is None else _load(file, plans)
        folder = place.start({"transfers": kept, "pretrain": _lasting(run_settings)})
        if file is None or data is None:
            file = str(folder / "pretrain")
            run(make_config({**run_settings, "out": file, "resume": True}))
            data = _load(file, plans)
        table = Table()
        for number, (plan, dataset) in enumerate(zip(plans, data, strict=True), start=1):
            rate = plan.settings.get("label_rate", 1.0)
            name = [f"{number}", Path(plan.config.dataset).stem, plan.mode, *([f"{rate:g}"] if rate < 1 else [])]
            child = folder / "-".join(name)
            if (child / "result.json").exists() and not (child / MARK).exists():
                result = read_json(child / "result.json")
            else:
                config = plan.config.model_copy(update={"out": str(child)})
                settings = {**plan.settings, "encoder": file}
                result = transfer(file, plan._replace(config=config, settings=settings), dataset)
            rows = table.setdefault(_column(plan, plans), {})
            for evaluator, scores in scores_of(result).items():
                rows |= {_row(plan.mode, evaluator, start): scores[start] for start in ("trained", "untrained")}
        text = "\n".join(_lines(table))
        write_text(folder / "table.md", f"{text}\n\n{PLUS_MINUS}\n")
        entries = {
            column: {row: {"metric": scores[0].metric, **vars(summarise(scores))} for row, scores in rows.items()}
            for column, rows in table.items()
        }
        write_text(folder / "table.json", json.dumps(entries, indent=2))
        place.finish()
    print(f"{text}\n{PLUS_MINUS} saved in {folder}/: table.md, table.json and a folder for each transfer")


def _lasting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that may change when a command continues."""
    return {key: value for key, value in settings.items() if key not in RUNTIME_SETTINGS}


def _run_settings(plans: Sequence[Plan], pretrain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the run that trains the encoder; InputError if they are invalid."""
    config = plans[0].config
    values = config.model_dump(include={*Place.model_fields, *Hardware.model_fields, "seeds"} & config.model_fields_set)
    if "dataset" not in pretrain:
        if len({plan.config.dataset for plan in plans}) > 1:
            raise InputError("several data sets, none to train the encoder on; pass one as --pretrain.dataset.")
        values |= config.model_dump(include={"dataset", *TABLE} & config.model_fields_set)
    values |= {"eval": [], **pretrain}
    try:
        make_config(values)
    except InputError as error:
        raise InputError(f"`pretrain`: {error}") from None
    return values


def _load(file: str, plans: Sequence[Plan]) -> list[GraphDataset]:
    """Return the data set of each plan, loaded once each; raise InputError for the first that cannot be used."""
    description, loaded, datasets = read_saved(file)[0], dict[str, GraphDataset](), list[GraphDataset]()
    for plan in plans:
        key = plan.config.model_dump_json(include={"dataset", *TABLE})
        if key not in loaded:
            loaded[key] = load_target(description, plan.config)
        check(file, plan, loaded[key])
        datasets.append(loaded[key])
    return datasets


def _column(plan: Plan, plans: Sequence[Plan]) -> str:
    """Return the data set, its targets if other plans use other targets of it, and the label rate."""
    of_same = {tuple(other.config.target) for other in plans if other.config.dataset == plan.config.dataset}
    rate = plan.settings.get("label_rate", 1.0)
    targets = f": {', '.join(plan.config.target)}" if len(of_same) > 1 else ""
    return f"{Path(plan.config.dataset).stem}{targets}{f', {100 * rate:g} % of labels' if rate < 1 else ''}"


def _row(mode: str, evaluator: str, start: str) -> str:
    if mode == "finetune":
        return {"trained": "pretrained, fine-tuned", "untrained": "from scratch"}[start]
    head = "linear layer" if mode == "linear" else evaluator
    return f"{'pretrained' if start == 'trained' else 'untrained'}, frozen, {head}"


def _lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table in Markdown: rows are starts, columns are targets."""
    rows = list(dict.fromkeys(row for column in table.values() for row in column))
    heads = [f"{name} ({metric_name(next(iter(of.values()))[0].metric)})" for name, of in table.items()]
    cells = [["", *heads]] + [
        [row, *(f"{summarise(of[row])}" if row in of else "-" for of in table.values())] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, line in enumerate(cells):
        yield f"| {' | '.join(text.ljust(width) for text, width in zip(line, widths, strict=True))} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"
