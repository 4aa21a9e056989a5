"""`graphcl predict`: predict the targets of new graphs by a finished run, and write a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from graphcl.arguments import Seed
from graphcl.cli.command_line import Command
from graphcl.commands.blocks import WRITERS
from graphcl.config.settings import TABLE, DatasetName, Force, Hardware, Imports, Place
from graphcl.datasets.settings import Table
from graphcl.datasets.tables import write_invalid
from graphcl.errors import InputError
from graphcl.system.files import new_file, write_whole
from graphcl.system.optional import optional


class Predict(Hardware, Place, Table, Imports):
    """Predict the targets of new graphs by a run that was scored by labels or targets, or by a transfer.
    On a split, the head is the one that was scored. On folds, it is fitted on all labelled graphs of the run, and the
    score is the estimate of the folds.
    """

    run: Annotated[str, Field(title="RUN", description="folder of graphcl run, or of graphcl transfer")]
    dataset: DatasetName
    out: Annotated[str | None, Field(title="FILE")] = None
    """new file, .csv or .parquet, with the columns id, a column for each target, and TARGET_p_CLASS, the probability of
    a class; default: NAME.predicted.csv"""
    force: Force = False
    eval: Annotated[str | None, Field(title="NAME", description="evaluator of the run; default: the first")] = None
    seed: Annotated[Seed | None, Field(description="seed of the run; default: the first")] = None


COMMAND = Command("graphcl predict RUN --dataset NAME [--out FILE] [--KEY VALUE ...]", Predict, positional="run")


def predict(settings: Predict) -> str:
    """Write the predictions for a data set to a new file and return a status line.

    Raises:
        InputError: the file exists or cannot be written, or the run or the graphs cannot be used.
    """
    out = settings.out or f"{Path(settings.dataset).name.partition('.')[0]}.predicted.csv"
    suffix = Path(out).suffix
    if suffix not in (".csv", ".parquet"):
        raise InputError(f"`out` must end in .csv or .parquet, got {out!r}.")
    file = new_file(out, settings.force, settings.dataset)
    names = new_file(file.with_name(f"{file.name}.invalid.csv"), settings.force, settings.dataset)
    if suffix == ".parquet":
        optional("pyarrow", ".parquet files, unlike .csv, need pyarrow", "parquet")
    import torch

    from graphcl.experiment.predict import predictions

    torch.set_num_threads(settings.threads)
    options: dict[str, Any] = settings.model_dump(include={*TABLE, "eval", "seed", "device", "data_root", "mirror"})
    columns, dataset, text = predictions(settings.run, settings.dataset, **options)
    names.unlink(missing_ok=True)  # the list of another data set
    # pyarrow does not take NumPy's fixed-width strings
    plain = {name: column.astype(object) if column.dtype.kind == "U" else column for name, column in columns.items()}
    write_whole(file, lambda opened: WRITERS[suffix](opened, iter([plain]), dataset.num_rows, 0))
    return f"{dataset.num_rows} predictions of {text}; in {file}{write_invalid(dataset.invalid, names)}"


main = COMMAND.main(predict)
