"""Load graphs from any source as a `GraphDataset`."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.arguments import named_arguments
from graphcl.datasets.dataset import NUMBER_CLASSES, Benchmark, GraphDataset, class_labels
from graphcl.datasets.disk.on_disk import is_on_disk, open_on_disk
from graphcl.datasets.features import check_features, node_features
from graphcl.datasets.molecules.smiles import load_molecules
from graphcl.datasets.molecules.table import SUFFIXES, is_molecules
from graphcl.datasets.names import SYNTHETIC, is_node_name
from graphcl.datasets.networks import convert_networkx, is_networkx
from graphcl.datasets.nodes import load_nodes
from graphcl.datasets.ogb import is_ogb, load_ogb
from graphcl.datasets.own import collate_dataset, collate_file, collate_graphs, hint, warn_of_one_way_edges
from graphcl.datasets.pyg import Collated
from graphcl.datasets.store import check_finite, check_store
from graphcl.datasets.tu.load import load_folder, load_tu
from graphcl.errors import InputError, InputTypeError, reason
from graphcl.registry import datasets


@named_arguments
def load_dataset(
    source: object,
    data_root: str | os.PathLike[str] = "datasets",
    mirror: str | os.PathLike[str] | None = None,
    features: str = "auto",
    max_degree: int = 64,
    degree_columns: int | None = None,
    categories: bool = False,
    nodes: bool = False,
    smiles: str | None = None,
    target: str | Sequence[str] = (),
    invalid: str = "skip",
    split: str | None = None,
    metric: str | None = None,
) -> GraphDataset:
    """Load graphs by name, from a file or folder, or from Python objects.

    | source | meaning |
    |---|---|
    | `"PROTEINS"` | a TU set: from the cache `data_root/PROTEINS`, else from `mirror`, else from the server |
    | `"ogbg-molhiv"` | an OGB set with its split: from `data_root/ogbg_molhiv`, else `hiv.zip` from mirror or server |
    | `"synthetic"` | generated graphs: no file, no network |
    | `"Cora"`, `"sbm-20000"` | one graph, whose nodes are contrasted: only with `nodes` |
    | another name | a data set that an installed package registered, entry point group `graphcl.datasets` |
    | `[data, ...]` | a list of PyG's `Data` or of networkx graphs (see `convert_networkx`) |
    | a PyG data set | tensors in memory are shared, not copied; a `GraphDataset` with "auto" is returned unchanged |
    | `"graphs.pt"` | a file of PyG's `InMemoryDataset.save`; code in it is never run |
    | `"./folder"` | a folder in TU text layout; it is only read, the cache is under `data_root` |
    | `"./folder"` | a folder that `write_on_disk` made: memory-mapped, with the features it was written with |
    | `"molecules.csv"` | a table with a column of SMILES: `.csv`, `.tsv`, or `.smi` without header, also with `.gz` |
    | a DataFrame | of pandas, with a column of SMILES or of RDKit molecules |
    | `["CCO", ...]` | a list of SMILES or of RDKit molecules; with `smiles`, graphs with that attribute |

    Args:
        source: see the table. A string without a path separator and without a suffix is a name.
        data_root: folder for downloads and caches.
        mirror: folder, `file://` URL or `http(s)://` URL that holds `NAME.zip`; read only if the data set is not yet
            under `data_root`, and never written to.
        features: "labels" (`x` as given; TU sets: one-hot node labels), "constant", "degree", "labels+degree", "auto"
            (labels if the graphs have `x`, else constant) or "auto+degree" (labels+degree, else degree).
        max_degree: degrees of `max_degree` and more share a column.
        degree_columns: number of degree columns, e.g. the number that an encoder trained on other graphs expects;
            larger degrees share the last column. Default: as many as these graphs need, at most `max_degree + 1`.
        categories: whether to keep integers in `x` as category indices, for an encoder with embedding tables.
            Otherwise they become floating point, with a warning if any is not 0 or 1.
        nodes: whether to load one graph with a class per node, see `graphcl.datasets.nodes.load_nodes`.
        smiles: column of the SMILES; default: `smiles`, in any case. Only for molecules, like the arguments below.
        target: columns of the targets, one name or several; an empty cell is a missing target.
        invalid: "skip" leaves out rows without a valid molecule, with a warning; "stop" raises InputError.
        split: "random", "stratified" or "scaffold" for a benchmark on the targets; default: none, see
            `graphcl.datasets.molecules.split`.
        metric: score of the split: "rocauc", "ap", "acc", "rmse" or "mae"; default: rocauc for targets of 0 and 1, acc
            for texts, else rmse.

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
    check_features(features, max_degree, degree_columns)
    if not isinstance(data_root, str | os.PathLike):
        raise InputTypeError(f"`data_root` must be a folder, got {type(data_root).__name__}.")
    for name, given in (("data_root", data_root), ("mirror", mirror)):
        if isinstance(given, str | os.PathLike) and "\0" in str(given):
            raise InputError(f"`{name}` {str(given)!r} holds a NUL character, which no file name can.")
    molecules = is_molecules(source, smiles)
    for name, value in (("smiles", smiles), ("target", target), ("split", split), ("metric", metric)):
        if value and not molecules:
            raise InputError(f"`{name}` {value!r} is for molecules: {', '.join(SUFFIXES)}, or a list of SMILES.")
    if isinstance(source, str) and not _is_path(source) and source in datasets:
        return _load_registered(source, data_root, mirror, features, max_degree, categories)
    if isinstance(source, GraphDataset) and features == "auto" and (nodes or len(source) > 1):
        return source
    if isinstance(source, str | os.PathLike) and _is_path(source) and is_on_disk(os.path.expanduser(source)):
        return _checked(open_on_disk(source), features, degree_columns)
    folder = Path(os.path.abspath(os.path.expanduser(data_root)))
    if nodes:
        return load_nodes(source, folder, mirror, features, max_degree)
    if is_node_name(source):
        raise InputError(
            f"{source} is one graph, whose nodes are contrasted; use graphcl run --method grace, or "
            "load_dataset(..., nodes=True)."
        )
    # a subset has no benchmark, as the split refers to the whole data set
    benchmark = source.benchmark if isinstance(source, GraphDataset) and source._indices is None else None
    try:
        if is_ogb(source):
            name = str(source)
            (data, slices), benchmark = load_ogb(name, folder, mirror)
        elif molecules:
            target = [target] if isinstance(target, str) else target
            name, (data, slices), benchmark = load_molecules(source, smiles, target, invalid, split, metric)
        else:
            name, (data, slices) = _collate(source, folder, mirror, features)
        categories = categories or molecules or benchmark is not None or isinstance(source, GraphDataset)
        dataset = prepare(data, slices, name, features, max_degree, degree_columns, benchmark, categories)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot load {source!r}: {reason(error)}.") from None
    except Exception as error:
        if not isinstance(source, str | os.PathLike):
            raise
        # a defect of the file that no check has found; chain the exception for debugging
        raise InputError(f"cannot load {str(source)!r}, its parts are inconsistent: {reason(error)}.") from error
    given_graphs = isinstance(source, list | tuple) and not molecules
    if given_graphs or (isinstance(source, str | os.PathLike) and str(source).endswith(".pt")):
        warn_of_one_way_edges(dataset)
    return dataset


def prepare(
    given: object,
    slices: dict[str, Tensor] | None,
    name: str,
    features: str = "auto",
    max_degree: int = 64,
    degree_columns: int | None = None,
    benchmark: Benchmark | None = None,
    categories: bool = False,
) -> GraphDataset:
    """Check a collated data set and return it with node features and class indices; the inputs are not modified.

    Args:
        given: all graphs, collated, as in `InMemoryDataset._data`.
        slices: start of each graph in each attribute, as in `InMemoryDataset.slices`.
        name: name of the data set.
        features: see `load_dataset`, like `max_degree`, `degree_columns` and `categories`.
        benchmark: split and metric of a benchmark's data set; if given, `y` becomes floating-point targets instead of
            class indices.

    Raises:
        InputError: a class in `y` is a string; see also `check_store` and `node_features`.
    """
    data, slices, ptr = check_store(given, slices, name)
    num_graphs = ptr.numel() - 1
    x, features, degrees = node_features(
        data, slices["edge_index"], ptr, features, max_degree, name, degree_columns, categories
    )
    check_finite(x, ptr, "x", name)
    data.x, slices["x"] = x, ptr.cpu()
    # a stored number of nodes would be wrong in views that drop nodes
    del data.num_nodes
    if hasattr(data, "_num_nodes"):
        del data._num_nodes

    if benchmark is not None:
        data.y = data.y.float()
        return GraphDataset(data, slices, name, features, degree_columns=degrees, benchmark=benchmark)
    if isinstance(data.y, list):  # PyG collates strings and NumPy numbers into a list
        for number, each in enumerate(data.y):
            if isinstance(each, str):
                raise InputError(
                    f"{name}: `y` of graph {number} must be a number, got {each[:60]!r}; {NUMBER_CLASSES}."
                )
        with contextlib.suppress(ValueError, TypeError):
            data.y = torch.from_numpy(np.asarray(data.y))
    labels = class_labels(data.y, slices.get("y"), num_graphs)
    classes = None
    if labels is not None:
        data.y, classes = labels
        slices["y"] = torch.arange(num_graphs + 1)
    return GraphDataset(data, slices, name, features, classes, degrees)


def _collate(source: object, root: Path, mirror: str | os.PathLike[str] | None, features: str) -> tuple[str, Collated]:
    """Return the name and the collated graphs of `source`; TU sets and folders are cached under `root`."""
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        if not isinstance(text, str):
            raise InputTypeError("`source` must be a text path, got bytes.")
        if text == SYNTHETIC:
            from graphcl.datasets.synthetic import synthetic

            return SYNTHETIC, collate_graphs(synthetic(), SYNTHETIC)
        if not _is_path(source):
            return text, load_tu(text, root, mirror)
        return _collate_path(Path(os.path.expanduser(text)), root)
    if isinstance(source, torch.utils.data.Dataset):
        given = getattr(source, "name", None)
        name = given if isinstance(given, str) else type(source).__name__
        return name, collate_dataset(source, name)
    if isinstance(source, list | tuple):
        if any(is_networkx(graph) for graph in source):
            source = convert_networkx(source, "own", features)
        return "own", collate_graphs(source, "own")
    wrap = "; put it into a list with others" if isinstance(source, Data) or is_networkx(source) else ""
    raise InputTypeError(
        "`source` must be a TU name, a path, a list of torch_geometric.data.Data or networkx graphs, or a PyG data "
        f"set, got {type(source).__name__}{hint(source) or wrap}."
    )


def _load_registered(
    name: str,
    root: str | os.PathLike[str],
    mirror: str | os.PathLike[str] | None,
    features: str,
    max_degree: int,
    categories: bool,
) -> GraphDataset:
    """Return the data set that another package registered under `name`."""
    try:
        given = datasets[name](root)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot load {name!r} from {datasets[name].__module__}: {reason(error)}.") from error
    dataset = copy.copy(load_dataset(given, root, mirror, features, max_degree, categories=categories))
    dataset.name = name
    return dataset


def _is_path(source: str | os.PathLike[str]) -> bool:
    """Return True if `source` is the path of a file or folder, False if it is a name."""
    return not isinstance(source, str) or bool({"/", os.sep} & set(source) or Path(source).suffix)


def _checked(dataset: GraphDataset, features: str, degree_columns: int | None) -> GraphDataset:
    if features not in ("auto", dataset.features):
        raise InputError(
            f"`features` is {features!r}, but {dataset.name} was written to disk with {dataset.features!r}; choose "
            "that or 'auto', or write it again from its source."
        )
    if "degree" in features and degree_columns not in (None, dataset.degree_columns):
        raise InputError(
            f"`degree_columns` is {degree_columns}, but {dataset.name} was written to disk with "
            f"{dataset.degree_columns}; load it from its source."
        )
    return dataset


def _collate_path(path: Path, root: Path) -> tuple[str, Collated]:
    if os.path.isdir(path):
        return load_folder(path, root)
    if os.path.isfile(path) and path.suffix == ".pt":
        return path.stem, collate_file(path)
    if os.path.isfile(path) and path.suffix in (".pkl", ".pickle"):
        raise InputError(
            f"file {str(path)!r} is a pickle, which can hold code and is never read; if you trust it, convert its "
            f"graphs, a list of Data: InMemoryDataset.save(graphs, {f'{path.stem}.pt'!r})."
        )
    if os.path.isfile(path):
        raise InputError(
            f"file {str(path)!r} is not a data set: give a .pt file saved by PyG or a folder in TU text layout; for an "
            "archive NAME.zip give the name as `source` and its folder as `mirror`."
        )
    raise InputError(f"file or folder {str(path)!r} not found.")
