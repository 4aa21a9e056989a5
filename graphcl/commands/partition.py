"""Embed one partition of a table, for the engines that map a function over partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphcl.arguments import named_arguments
from graphcl.commands.blocks import Block, arrow_table, joined
from graphcl.commands.embed import Embed, Opened, open_inputs, opened_once
from graphcl.datasets.tables import NoGraphLeftError, kept_rows
from graphcl.errors import InputError, reason
from graphcl.evaluate.on_split import task_names
from graphcl.system.optional import optional

if TYPE_CHECKING:
    import pyarrow


@named_arguments
def embed_partition(
    rows: Any,
    encoder: str,
    *,
    dataset: str | None = None,
    seed: int | None = None,
    role: Literal["query", "target"] = "query",
    batch_size: int = 1024,
    device: str = "auto",
    **table: Any,
) -> pyarrow.Table:
    """Return the embeddings of one partition of a larger table, for `map_partitions` of Dask, or Ray or Spark.

    With `dataset`, a process reads the encoder and opens the data set once. Embeddings are bit-equal to those of
    `graphcl embed` on the CPU if the partition starts at a multiple of `batch_size` of its rows.

    Args:
        rows: a PyArrow table or batch, a pandas or polars frame, or a dict of arrays. Its rows are those of a table
            that `load_dataset` reads; or graphs, with the columns `edge_index`, `x` and others of nested lists. Or,
            with `dataset`, consecutive numbers of graphs. Or a list of `Data`.
        encoder: see `load_encoder`, as for `seed` and `role`.
        dataset: name or path of a data set, best one that `graphcl pack` wrote.
        batch_size: number of graphs that are embedded at a time.
        device: auto, cpu, cuda or cuda:N.
        **table: settings of tables, see `load_dataset`, such as `target="column"` or `invalid="skip"`.

    Returns:
        A table with the columns `id`, labels, `h0`, `h1`, ... A partition without valid rows has the same columns, and
        no rows. Of a table, `id`, the targets (`y`, or `y0`, `y1`, ...) and `group` are its own columns; without a
        column `id`, it is the number of the row. Of other rows, they are as in `graphcl embed`.

    Raises:
        InputError: the encoder or the graphs cannot be used.

    Example:
        >>> from graphcl import load_dataset
        >>> embed_partition(range(2), "runs/mine", dataset="./packed")  # doctest: +SKIP
    """
    optional("pyarrow", "embed_partition returns a PyArrow table", "parquet")
    arguments = {"encoder": encoder, "seed": seed, "role": role, "batch_size": batch_size, "device": device}
    settings = Embed.of({**arguments, "out": "unused", "dataset": dataset or "own", **table})
    if dataset is not None:
        return _numbered(rows, opened_once(settings.model_dump_json(), None))
    if isinstance(rows, list):
        return arrow_table(_embedded(settings, rows, len(rows))[0])
    whole = _table(rows)
    labels = _labels(whole, settings)
    block, kept = _embedded(settings, _source(whole), len(whole))
    embeddings = arrow_table({"id": block["id"], "h": block["h"]})
    columns = {"id": embeddings["id"], **{name: whole.column(column).take(kept) for name, column in labels.items()}}
    return type(embeddings).from_pydict(columns | {name: embeddings[name] for name in embeddings.column_names[1:]})


def _numbered(rows: Any, opened: Opened) -> pyarrow.Table:
    """Return the embeddings of the graphs of a data set with the consecutive numbers `rows`."""
    if isinstance(rows, dict) and len(rows) == 1:
        (rows,) = rows.values()
    numbers, n = np.asarray(rows).ravel(), len(opened.dataset)
    if not numbers.size:
        return arrow_table(joined(list(opened.blocks(range(1))))).slice(0, 0)
    first = int(numbers[0])
    wanted = range(first, first + len(numbers))
    if not 0 <= first <= wanted[-1] < n or not np.array_equal(numbers, wanted):
        raise InputError(f"`rows` must be consecutive numbers of the {n} graphs, got {numbers[:8]}.")
    return arrow_table(joined(list(opened.blocks(wanted))))


def _embedded(settings: Embed, source: Any, count: int) -> tuple[Block, np.ndarray]:
    """Return ids, labels and embeddings of the `count` rows of `source`, and the indices of the valid rows."""
    from torch import Tensor

    from graphcl.models.contrastive import model_of
    from graphcl.models.saved import read_encoder

    try:
        if count == 0:
            raise NoGraphLeftError("the partition is empty", ())
        opened = open_inputs(settings, source)
    except NoGraphLeftError:
        encoder, _ = read_encoder(settings.encoder, settings.seed, role=settings.role)
        h = model_of(encoder, projector="none").no_rows()
        return {"id": np.zeros(0, np.int64), "h": h.numpy() if isinstance(h, Tensor) else h}, np.zeros(0, np.int64)
    return joined(list(opened.blocks())), kept_rows(len(opened.dataset), opened.dataset.invalid)


def _table(rows: Any) -> pyarrow.Table:
    """Return the rows as a PyArrow table, with one type of strings, also for a column without values."""
    import pyarrow

    if isinstance(rows, pyarrow.RecordBatch):
        rows = pyarrow.Table.from_batches([rows])
    elif isinstance(rows, dict) or (hasattr(rows, "iloc") and hasattr(rows, "columns")):  # a frame of pandas
        rows = pyarrow.table({str(name): _column(rows[name]) for name in rows})
    elif hasattr(rows, "to_arrow"):  # of polars
        rows = rows.to_arrow()
    if not isinstance(rows, pyarrow.Table):
        raise InputError(f"`rows` must be a table, a frame, a dict of arrays or a list, got {type(rows).__name__}.")
    texts = pyarrow.null(), pyarrow.large_string(), pyarrow.string_view()
    types = [(field.name, pyarrow.string() if field.type in texts else field.type) for field in rows.schema]
    return rows.cast(pyarrow.schema(types))


def _column(values: Any) -> Any:
    """Return a column of a frame or a dict as an Arrow array, with nested arrays as lists."""
    import pyarrow

    def plain(cell: Any) -> Any:
        cell = cell.tolist() if isinstance(cell, np.ndarray) else cell
        return [plain(part) for part in cell] if isinstance(cell, list) else cell

    if getattr(values, "ndim", 0) == 1 and values.dtype != object:
        return pyarrow.array(values, from_pandas=True)
    # NaN is a missing cell, but not within a list
    return pyarrow.array([None if isinstance(cell, float) and cell != cell else plain(cell) for cell in values])


def _labels(table: pyarrow.Table, settings: Embed) -> dict[str, str]:
    """Return the columns of ids and labels: name in the result -> name in the table."""
    from graphcl.datasets.load import claiming

    names = table.column_names
    if "edge_index" in names:
        return {name: name for name in ("id", "y", "group") if name in names}
    kind = claiming(table)
    columns = [] if kind is None else kind.columns(names, settings)
    targets = [name for role, name, _ in columns if role == "target"]
    labels = {role: name for role, name, _ in columns if role == "id"}
    labels |= dict(zip(task_names(len(targets)) if targets else (), targets, strict=True))
    return labels | {role: name for role, name, _ in columns if role == "group"}


def _source(table: pyarrow.Table) -> Any:
    """Return what `load_dataset` takes of a table: a frame, or a list of graphs."""
    import torch
    from torch_geometric.data import Data

    if "edge_index" not in table.column_names:
        return table.to_pandas()
    graphs = []
    for number, row in enumerate(table.to_pylist()):
        try:
            values = {key: value if isinstance(value, str) else torch.tensor(value) for key, value in row.items()}
            edges = torch.tensor(row["edge_index"] or [[], []], dtype=torch.double)
            if bool((edges != edges.round()).any()):  # also of NaN
                raise ValueError("`edge_index` must be whole numbers, as in PyG")
            values["edge_index"] = edges.long()
        except (RuntimeError, TypeError, ValueError) as error:  # lists of different lengths, or missing numbers
            raise InputError(f"row {number} is not a graph: {reason(error)}.") from None
        graphs.append(Data(**values))
    return graphs
