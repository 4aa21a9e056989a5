"""Embed one partition of a table, for the engines that map a function over partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphcl.arguments import named_arguments
from graphcl.commands.embed import Embed, arrow_table, joined, open_inputs
from graphcl.commands.shards import opened_once
from graphcl.datasets.invalid import kept_rows
from graphcl.errors import InputError, reason
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
        rows: a PyArrow table or batch, or a pandas frame. Its rows are molecules, a column of SMILES; or graphs, with
            the columns `edge_index`, `x` and others of nested lists. Or, with `dataset`, consecutive numbers of
            graphs. Or a list of `Data`.
        encoder: see `load_encoder`, as for `seed` and `role`.
        dataset: name or path of a data set, best one that `graphcl pack` wrote.
        batch_size: number of graphs that are embedded at a time.
        device: auto, cpu, cuda or cuda:N.
        **table: settings of molecules, see `load_dataset`, such as `smiles="column"` or `invalid="skip"`.

    Returns:
        A table with the columns `id`, `y` if the graphs have labels, `h0`, `h1`, ... The `id` is the column `id` of
        `rows`, if there is one; else the attribute `id`, or the number of the row.

    Raises:
        InputError: the encoder or the graphs cannot be used.

    Example:
        >>> from graphcl import load_dataset
        >>> embed_partition(range(2), "runs/mine", dataset="./packed")  # doctest: +SKIP
    """
    optional("pyarrow", "embed_partition returns a PyArrow table", "parquet")
    given = {
        "encoder": encoder,
        "out": "unused",
        "seed": seed,
        "role": role,
        "batch_size": batch_size,
        "device": device,
    }
    settings = Embed.of({**given, "dataset": dataset or "own", **table})
    if dataset is not None:
        opened, numbers = opened_once(settings.model_dump_json(), None), np.asarray(rows).ravel()
        n, valid = len(opened.dataset), numbers.size and numbers.dtype.kind in "iuf"
        if not valid or (np.diff(numbers) != 1).any() or numbers[0] not in range(n) or numbers[-1] >= n:
            raise InputError(f"`rows` must be consecutive numbers of the {n} graphs, got {numbers[:8]}.")
        return arrow_table(joined(list(opened.blocks(range(int(numbers[0]), int(numbers[-1]) + 1)))))
    source, ids = _graphs(rows)
    opened = open_inputs(settings, source)
    block = joined(list(opened.blocks()))
    if ids is not None:
        block["id"] = np.asarray(ids)[kept_rows(len(opened.dataset), opened.dataset.invalid)]
    return arrow_table(block)


def _graphs(rows: Any) -> tuple[Any, Any]:
    """Return what `load_dataset` takes of the rows of a partition, and their ids; None without a column of them."""
    if isinstance(rows, list):
        return rows, None
    import pyarrow
    import torch
    from torch_geometric.data import Data

    table = rows if hasattr(rows, "to_pylist") else pyarrow.Table.from_pandas(rows, preserve_index=False)
    ids = table.column("id").to_pylist() if "id" in table.schema.names else None
    if "edge_index" not in table.schema.names:
        return table.to_pandas(), ids
    graphs = []
    for number, row in enumerate(table.to_pylist()):
        if missing := [key for key, value in row.items() if value is None]:
            raise InputError(f"`{missing[0]}` of row {number} is missing; leave out the column or the row.")
        try:
            values = {key: value if isinstance(value, str) else torch.tensor(value) for key, value in row.items()}
            edges = torch.tensor(row["edge_index"] or [[], []], dtype=torch.long)
        except (TypeError, ValueError) as error:  # lists of different lengths
            raise InputError(f"row {number} is not a graph: {reason(error)}.") from None
        if edges.dim() != 2 or len(edges) != 2:
            raise InputError(f"`edge_index` of row {number} must be [2, E], as in PyG, got {list(edges.shape)}.")
        graphs.append(Data(**{**values, "edge_index": edges}))
    return graphs, ids
