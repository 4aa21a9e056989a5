"""Load graphs from any source as a `GraphDataset`."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate

from graphcl.arguments import checked, keywords
from graphcl.datasets.dataset import NUMBER_CLASSES, Benchmark, Collated, GraphDataset, class_labels
from graphcl.datasets.disk.on_disk import is_on_disk, open_on_disk
from graphcl.datasets.features import node_features
from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.invalid import NoGraphLeftError, describe_invalid, kept_rows
from graphcl.datasets.molecules.columns import SUFFIXES
from graphcl.datasets.molecules.smiles import load_molecules
from graphcl.datasets.molecules.table import is_molecules
from graphcl.datasets.names import SYNTHETIC, is_node_name
from graphcl.datasets.networks import convert_networkx, is_networkx
from graphcl.datasets.nodes import load_nodes
from graphcl.datasets.ogb import load_ogb
from graphcl.datasets.own import (
    collate_dataset,
    collate_file,
    collate_folder,
    collate_graphs,
    hint,
    warn_of_one_way_edges,
)
from graphcl.datasets.settings import Features, Loading, NodeFeatures, SplitTable, loading
from graphcl.datasets.store import find_invalid
from graphcl.datasets.tu.load import load_folder, load_tu
from graphcl.errors import InputError, InputTypeError, reason, warn
from graphcl.registry import datasets


@checked
@keywords(Loading, [key for key in Loading.model_fields if key not in Features.model_fields])
def load_dataset(
    source: object,
    data_root: str | os.PathLike[str] = "datasets",
    mirror: str | os.PathLike[str] | None = None,
    features: str = "auto",
    max_degree: int = 64,
    *,
    nodes: bool = False,
    **settings: Any,
) -> GraphDataset:
    """Load graphs by name, from a file or folder, or from Python objects.

    | source | meaning |
    |---|---|
    | `"PROTEINS"` | a TU set: from the cache `data_root/PROTEINS`, else from `mirror`, else from the server |
    | `"ogbg-molhiv"` | an OGB set with its split: from `data_root/ogbg_molhiv`, else `hiv.zip` from mirror or server |
    | `"synthetic"` | generated graphs: no file, no network |
    | `"Cora"`, `"sbm-20000"` | one graph, whose nodes are contrasted: only with `nodes` |
    | another name | a data set that an installed package registered, entry point group `graphcl.datasets` |
    | `[data, ...]` | a list of PyG's `Data` or of networkx graphs (see `convert_networkx`), a generator, or one graph |
    | a PyG data set | tensors in memory are shared, not copied; a `GraphDataset` with "auto" is returned unchanged |
    | `"graphs.pt"` | a file of `InMemoryDataset.save`, or of one `Data` or a list of `Data`; code in it is never run |
    | `"./folder"` | a folder in TU text layout; it is only read, the cache is under `data_root` |
    | `"./folder"` | a folder of `.pt` files, each of one `Data` or a list; their names become the `id` |
    | `"./folder"` | a folder that `write_on_disk` made: memory-mapped, with the features it was written with |
    | `"molecules.csv"` | a table with a column of SMILES: `.csv`, `.tsv`, or `.smi` without header, also with `.gz` |
    | `"molecules.xlsx"` | likewise: the first sheet of a workbook, or a `.parquet` file |
    | a DataFrame | of pandas or polars or a table of pyarrow, with a column of SMILES or of RDKit molecules |
    | `["CCO", ...]` | a list or Series of SMILES or of RDKit molecules; with `smiles`, graphs with that attribute |
    | a molecule | of RDKit |

    Args:
        source: see the table. A string without a path separator and without a suffix is a name.
        data_root: folder for downloads and caches.
        mirror: folder, `file://` URL or `http(s)://` URL that holds `NAME.zip`; read only if the data set is not yet
            under `data_root`, and never written to.
        features: "labels" (`x` as given; TU sets: one-hot node labels), "constant", "degree", "labels+degree", "auto"
            (labels if the graphs have `x`, else constant) or "auto+degree" (labels+degree, else degree).
        max_degree: degrees of `max_degree` and more share a column.
        nodes: whether to load one graph with a class per node, see `graphcl.datasets.nodes.load_nodes`.
        degree_columns: number of degree columns, e.g. the number that an encoder trained on other graphs expects;
            larger degrees share the last column. Default: as many as these graphs need, at most `max_degree + 1`.
        categories: whether to keep integers in `x` as category indices, for an encoder with embedding tables.
            Otherwise they become floating point, with a warning if any is not 0 or 1.
        smiles: column of the SMILES; default: `smiles`, in any case. Only for molecules, like the arguments below.
        target: columns of the targets, one name or several; an empty cell is a missing target.
        invalid: "skip" leaves out rows without a valid molecule, and graphs without nodes, with a NaN or infinite
            feature or with an edge to a missing node; a warning counts them, and the attribute `invalid` lists them.
            "stop" raises InputError. Default: skip such rows, stop at such graphs.
        standardise: whether to reduce each molecule to its largest fragment, neutralised (RDKit's rdMolStandardize).
        split: "random", "stratified" or "scaffold" for a benchmark on the targets, with a seed if wanted, such as
            "scaffold-1"; default: none, see `graphcl.datasets.molecules.split`.
        metric: score of the split: "rocauc", "ap", "acc", "rmse" or "mae"; default: rocauc for targets of 0 and 1, acc
            for texts, else rmse.
        group: column of the groups, the `group` of each graph; an empty cell means no group.
        **settings: the last nine, keywords defined in `graphcl.datasets.settings`.

    Returns:
        The data set; every graph has `x`, in torch's default floating type (molecules: category indices).

    Raises:
        InputError: the source cannot be used; the message says what to do. No partial files remain.

    >>> import torch
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> load_dataset([Data(edge_index=path, num_nodes=n) for n in (3, 4)], features="degree").x.sum(0)
    tensor([1., 4., 2.])

    Reference: Morris et al., "TUDataset: A collection of benchmark datasets for learning with graphs", 2020.
    """
    given = loading(features=features, max_degree=max_degree, **settings)
    source = list(source) if isinstance(source, Iterator) else source
    molecules = is_molecules(source, given.smiles)
    for key in SplitTable.model_fields:
        if not molecules and key != "invalid" and (value := getattr(given, key)):
            raise InputError(f"`{key}` {value!r} is for molecules: {', '.join(SUFFIXES)}, or a list of SMILES.")
    path = None
    if isinstance(source, os.PathLike) or (isinstance(source, str) and ("/" in source or Path(source).suffix)):
        path = Path(os.path.expanduser(source))
    if isinstance(source, str) and path is None and source in datasets:
        try:
            made = datasets[source](data_root)
        except Exception as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"cannot load {source!r} from {datasets[source].__module__}: {reason(error)}.") from error
        dataset = copy.copy(load_dataset(made, data_root, mirror, features, max_degree, nodes=nodes, **settings))
        dataset.name = source
        return dataset
    if isinstance(source, GraphDataset) and features == "auto":
        return source
    if path is not None and is_on_disk(path):
        return _checked(open_on_disk(path), given)
    folder = Path(os.path.abspath(os.path.expanduser(data_root)))
    if nodes:
        return load_nodes(source, folder, mirror, given)
    if is_node_name(source):
        advice = "use graphcl run --method grace, or load_dataset(..., nodes=True)"
        raise InputError(f"{source} is one graph, whose nodes are contrasted; {advice}.")
    # a subset has no benchmark, as the split refers to the whole data set
    benchmark = source.benchmark if isinstance(source, GraphDataset) and source._indices is None else None
    try:
        if isinstance(source, str) and path is None and source.lower().startswith(("ogbg-", "ogbn-", "ogbl-")):
            name = source
            (data, slices), benchmark = load_ogb(name, folder, mirror)
        elif molecules:
            parser, (data, slices), benchmark = load_molecules(source, given)
            name = parser.table.name
        elif path is not None:
            name, (data, slices) = _collate_path(path, folder)
        elif isinstance(source, str) and source != SYNTHETIC:
            name, (data, slices) = source, load_tu(source, folder, mirror)
        else:
            name, (data, slices) = _collate(source, features)
        if molecules or benchmark is not None or isinstance(source, GraphDataset):
            given = given.model_copy(update={"categories": True})
        dataset = prepare(data, slices, name, given, benchmark)
        if molecules:
            dataset.invalid = parser.invalid
    except Exception as error:  # of a file: a defect that no check has found
        if isinstance(error, InputError) or not isinstance(source, str | os.PathLike):
            raise
        raise InputError(f"cannot load {str(source)!r}: {reason(error)}.") from error
    if dataset.invalid and not molecules:
        total = len(dataset) + len(dataset.invalid)
        warn(f"{describe_invalid(dataset.invalid, total, name)}; skipped.")
    if (isinstance(source, list | tuple) and not molecules) or (path is not None and path.suffix == ".pt"):
        warn_of_one_way_edges(dataset)
    return dataset


def prepare(
    given: object,
    slices: dict[str, Tensor] | None,
    name: str,
    settings: Loading | None = None,
    benchmark: Benchmark | None = None,
    numbers: GroupNumbers | None = None,
    start: int = 0,
) -> GraphDataset:
    """Check a collated data set; return it with node features, class indices and groups. The inputs are not modified.

    If invalid graphs are left out, the `id` of a graph without one becomes its index in the source.

    Args:
        given: all graphs, collated, as in `InMemoryDataset._data`.
        slices: start of each graph in each attribute, as in `InMemoryDataset.slices`.
        name: name of the data set.
        settings: the node features, and whether to leave invalid graphs out, see `load_dataset`.
        benchmark: split and metric of a benchmark's data set; if given, `y` becomes floating-point targets instead of
            class indices.
        numbers: converter of the groups, if the data set is one of several pieces.
        start: index in the source of the first graph, likewise.

    Raises:
        InputError: a graph is invalid and not to be left out, or a class in `y` is a string; see also `find_invalid`,
            `node_features` and `GroupNumbers`.
        NoGraphLeftError: all graphs are invalid and left out.
    """
    settings = settings or Loading()
    data, slices, ptr, invalid = find_invalid(given, slices, name, start)
    count = len(ptr) - 1
    if invalid and settings.invalid != "skip":
        raise InputError(f'{describe_invalid(invalid, count, name)}; correct the graphs, or set `invalid` to "skip".')
    if len(invalid) == count:
        raise NoGraphLeftError(describe_invalid(invalid, count, name), invalid)
    kept = kept_rows(count - len(invalid), invalid, start)
    if invalid:
        graphs = [separate(Data, data, row - start, slices, decrement=False) for row in kept.tolist()]
        data, slices, ptr, _ = find_invalid(*collate_graphs(graphs, name), name)
    if settings.invalid == "skip" and "id" not in data:
        data.id, slices["id"] = torch.from_numpy(kept), torch.arange(len(kept) + 1)
    x, features, degrees = node_features(data, slices["edge_index"], ptr, settings, name)
    data.x, slices["x"] = x, ptr.cpu()
    # a stored number of nodes would be wrong in views that drop nodes
    del data.num_nodes
    if hasattr(data, "_num_nodes"):
        del data._num_nodes

    if data.get("group") is not None:
        one_each = torch.arange(ptr.numel())
        if "group" not in slices or not torch.equal(slices["group"], one_each):
            raise InputError(f"{name}: `group` must be one whole number or string per graph; rename it if it is not.")
        data.group, slices["group"] = (numbers or GroupNumbers())(data.group, name), one_each
    if benchmark is not None:
        data.y = data.y.float()
        return GraphDataset(data, slices, name, features, degree_columns=degrees, benchmark=benchmark)
    if isinstance(data.y, list):  # PyG collates strings and NumPy numbers into a list
        for each in [each for each in data.y if isinstance(each, str)]:
            raise InputError(f"{name}: `y` must be a number, got {each[:60]!r}; {NUMBER_CLASSES}.")
        with contextlib.suppress(ValueError, TypeError):
            data.y = torch.from_numpy(np.asarray(data.y))
    classes = None
    if (labels := class_labels(data.y, slices.get("y"), ptr.numel() - 1)) is not None:
        data.y, classes = labels
        slices["y"] = torch.arange(ptr.numel())
    dataset = GraphDataset(data, slices, name, features, classes, degrees)
    dataset.invalid = invalid
    return dataset


def _collate(source: object, features: str) -> tuple[str, Collated]:
    """Return the name and the collated graphs of a Python object; a string is the name of the generated set."""
    if isinstance(source, str):
        from graphcl.datasets.synthetic import synthetic

        return SYNTHETIC, collate_graphs(synthetic(), SYNTHETIC)
    if isinstance(source, torch.utils.data.Dataset):
        name = str(getattr(source, "name", None) or type(source).__name__)
        return name, collate_dataset(source, name)
    if isinstance(source, Data) or is_networkx(source):
        source = [source]
    if isinstance(source, list | tuple):
        if any(is_networkx(graph) for graph in source):
            source = convert_networkx(source, "own", features)
        return "own", collate_graphs(source, "own")
    raise InputTypeError(
        "`source` must be a TU name, a path, a list of torch_geometric.data.Data or networkx graphs, or a PyG data "
        f"set, got {type(source).__name__}{hint(source)}."
    )


def _checked(dataset: GraphDataset, given: NodeFeatures) -> GraphDataset:
    """Return a data set on disk; raise InputError if its stored features are not those in `given`."""
    for key in ("features", "degree_columns") if "degree" in given.features else ("features",):
        asked, stored = getattr(given, key), getattr(dataset, key)
        if asked not in ("auto", None, stored):
            raise InputError(f"`{key}` is {asked!r}, but {dataset.name} was written with {stored!r}; leave it out.")
    return dataset


def _collate_path(path: Path, root: Path) -> tuple[str, Collated]:
    if path.is_dir():
        path = path.resolve()
        graphs = None if any(path.glob("*_A.txt")) else collate_folder(path)
        return load_folder(path, root) if graphs is None else (path.name, graphs)
    if not path.is_file():
        raise InputError(f"file or folder {str(path)!r} not found.")
    if path.suffix == ".pt":
        return path.stem, collate_file(path)
    raise InputError(
        f"file {str(path)!r} is not a data set: give a .pt file of InMemoryDataset.save (a pickle can hold code) or a "
        "folder in TU text layout; for an archive NAME.zip give the name as `source` and its folder as `mirror`."
    )
