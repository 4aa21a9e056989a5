"""`graphcl diagnose`: answer what carries a score, edges, features, sizes, copies or training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from graphcl.arguments import Count
from graphcl.cli.command_line import Command
from graphcl.config import Config, make_config
from graphcl.config.settings import Evaluation, Seeds
from graphcl.datasets.settings import Names
from graphcl.errors import warn
from graphcl.system.files import write_text

SUMMARY = "answer what carries a score: edges, features, sizes, copies or training"
ROWS = ("majority", "random", "statistics", "bag", "wl_oa", "untrained", "calibrated", "trained")
"""Rows to score by default, those of them that fit."""


class Diagnose(Config):
    """Answer what carries the score of a data set: edges, features, sizes, copies or training. Rows with and without
    training are scored on the graphs as they are, without edges, with random edges, with shuffled or constant features.
    All settings of `graphcl run` apply to the trained row and the evaluation; see --help all.
    """

    seeds: Seeds = Field([0, 1, 2], description="seeds of weights, folds and random controls")
    evaluation: Evaluation = Evaluation(inner_folds=3)
    """numbers of folds, and whether the SVM scales columns"""
    rows: Names = Field(list(ROWS), title="NAME ...", description="rows to score")
    graphs: Annotated[Count, Field(title="N")] = 1500
    """graphs to draw from a larger data set with classes"""
    quick: bool = False
    """one seed and 500 graphs"""
    out: Annotated[str | None, Field(title="FOLDER")] = None
    """new or unfinished folder; default: runs/DATASET-diagnosis-N"""


OWN = ("rows", "graphs", "quick")
QUICK: dict[str, Any] = {"seeds": [0], "graphs": 500}


def _validate(values: dict[str, Any], own: Sequence[str]) -> Diagnose:
    """Return the settings: those of a run, completed as there, and those of this command."""
    fields = Diagnose.model_fields
    usual = {"seeds": fields["seeds"].default, "graphs": fields["graphs"].default}
    usual |= QUICK if values.get("quick") else {}
    values = {**usual, **values}
    mine = COMMAND.model_validate({key: values.pop(key) for key in OWN if key in values})
    config = make_config(values, [name for name in own if name.split(".")[0] not in OWN])
    extra = {key: getattr(mine, key) for key in OWN}
    if "inner_folds" not in values.get("evaluation", {}):
        fewer = {"inner_folds": fields["evaluation"].default.inner_folds}
        config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update=fewer)})
    fields_set = config.model_fields_set | (mine.model_fields_set & set(OWN))
    return Diagnose.model_construct(fields_set, **{**dict(config), **extra})


COMMAND = Command(
    "graphcl diagnose --dataset NAME [--quick] [--KEY VALUE ...]",
    Diagnose,
    validate=_validate,
    common=("dataset", "mirror", "features", "positives", "eval", "seeds", "rows", "graphs", "quick", "epochs", "out"),
    of_run=True,
    without=("score_every", "track", "resume", "checkpoint", "report", "name", "rank_timeout", "sync_batchnorm"),
)


def diagnose(settings: Diagnose) -> str:
    """Write `diagnosis.md`, `diagnosis.svg` and `diagnosis.json` into a folder and return the text to print.

    The folder is new, or holds an unfinished diagnosis with these settings, which is continued.

    Raises:
        InputError: the folder exists or is in use, or the graphs cannot be loaded or scored.
    """
    # imported here, as help texts need no torch
    from graphcl.evaluate.needs import usual
    from graphcl.experiment.encoder_input import load_arguments, load_with_pairs
    from graphcl.experiment.fingerprint import data_fingerprint
    from graphcl.experiment.record.run_folder import MARK, unfinished
    from graphcl.experiment.runtime import pick_device
    from graphcl.experiment.trial import Trial
    from graphcl.extensions.diagnosis.answers import AS_IS
    from graphcl.extensions.diagnosis.page import as_json, diagnosis_figure, markdown
    from graphcl.extensions.diagnosis.run import check_inputs, diagnose
    from graphcl.report.style import to_svg
    from graphcl.system.memory import keep_freed_memory
    from graphcl.tasks.evaluation import with_usable_evaluation
    from graphcl.tasks.task import make_task

    keep_freed_memory()
    with unfinished(settings.out, f"{Path(settings.dataset).stem}-diagnosis") as place:
        dataset = load_with_pairs(**load_arguments(settings))
        config: Config = settings.model_copy(update={"features": dataset.features})
        if not dataset.labelled and dataset.components is not None and "eval" not in settings.model_fields_set:
            config = config.model_copy(update={"eval": [usual("groups")]})
        task = with_usable_evaluation(make_task(config, dataset))
        config = task.config
        Trial(task, config.seeds[0], pick_device(config.device)).try_step()
        check_inputs(config, dataset, settings.rows)
        folder = place.start({**settings.model_dump(), "data": data_fingerprint(config, dataset)})
        diagnosis = diagnose(config, dataset, settings.rows, most=settings.graphs, folder=folder / MARK)
        unused = set(settings.rows) - set(diagnosis.table.get(AS_IS, {}))
        if unused and "rows" in settings.model_fields_set:
            warn(f"`rows` {', '.join(sorted(unused))} left out, as they do not fit the data or `eval`.")
        page = markdown(diagnosis, next(iter(config.eval), ""), "diagnosis.svg")
        if diagnosis.answers is not None:
            write_text(folder / "diagnosis.svg", to_svg(diagnosis_figure(diagnosis)))
        write_text(folder / "diagnosis.json", json.dumps(as_json(diagnosis, settings.model_dump()), indent=1) + "\n")
        write_text(folder / "diagnosis.md", page)
        place.finish()
    figure = "" if diagnosis.answers is None else "diagnosis.svg, "
    return f"{page}\nsaved in {folder}/: diagnosis.md, {figure}diagnosis.json"


main = COMMAND.main(diagnose)
