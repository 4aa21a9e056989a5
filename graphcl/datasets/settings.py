"""Define the settings of loading: node features, and how a table of molecules is read, split and scored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from graphcl.arguments import Count, MetricName, Needs, Settings, SplitName

FeatureName = Literal["auto", "labels", "constant", "degree", "labels+degree", "auto+degree"]
TUFeatures = Literal["labels", "attributes", "both"]
FEATURES: tuple[str, ...] = get_args(FeatureName)


def split_names(value: Any) -> Any:
    """Return a string split at commas and blanks; other values are returned unchanged."""
    return re.findall(r"[^\s,]+", value) if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(split_names)]
"""A list of names; a string is split at commas and blanks."""


def split_columns(value: Any) -> Any:
    """Return a string split at commas; other values are returned unchanged."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Columns = Annotated[list[str], BeforeValidator(split_columns)]
"""Names of columns, which may hold blanks; a string is split at commas."""


class Features(Settings):
    """Node features of a data set."""

    features: Annotated[FeatureName, Field(title="KIND")] = "auto"
    """node features; auto: labels if any, else constant (auto+degree: no constant)"""
    max_degree: Annotated[
        Count, Needs("degrees", "{value} has no effect on `features` {features}; pass --features degree or auto+degree")
    ] = 64
    """larger degrees share the last column"""
    tu_features: Annotated[TUFeatures, Field(title="KIND")] = "labels"
    """features of nodes and edges of a TU set: its labels, one-hot, its attributes (numbers), or both"""


class NodeFeatures(Features):
    """Node features of a data set, with the settings that an encoder decides."""

    degree_columns: Count | None = None
    """number of degree columns; default: as many as the graphs need, at most `max_degree + 1`"""
    categories: bool = False
    """keep whole numbers in `x` as categories"""


class Attributes(Settings):
    """Which attributes of networkx graphs are read."""

    node_attrs: Annotated[Names, Field(title="NAME ...")] = []  # noqa: RUF012, pydantic copies it
    """networkx: attributes of nodes that become the columns of x, or all; default: x"""
    edge_attrs: Annotated[Names, Field(title="NAME ...")] = []  # noqa: RUF012
    """networkx: attributes of edges that become the columns of edge_attr, or all; default: edge_attr"""
    edge_weight: Annotated[str | None, Field(title="NAME")] = None
    """networkx: attribute of edges that becomes edge_weight; default: edge_weight"""


class Table(Attributes):
    """How a table of molecules, or networkx graphs, are read."""

    smiles: Annotated[str | None, Field(title="COLUMN")] = None
    """column of the SMILES in a table; default: smiles"""
    id: Annotated[str | None, Field(title="COLUMN")] = None
    """column of the ids in a table of molecules; default: id, else the rows are numbered from 0"""
    target: Annotated[Columns, Field(title="COLUMN ...")] = []  # noqa: RUF012, pydantic copies it
    """columns of the targets in a table of molecules, separated by commas"""
    group: Annotated[str | None, Field(title="COLUMN")] = None
    """column of the groups in a table of molecules; molecules of the same group are positives"""
    invalid: Annotated[Literal["skip", "stop"] | None, Field(title="ACTION")] = None
    """on an invalid molecule, cell of a target or graph: skip its row, or stop; default: skip only molecules"""
    standardise: bool = False
    """reduce each molecule to its largest fragment, neutralised"""


class SplitTable(Table):
    """How a table of molecules is read, split and scored."""

    split: Annotated[SplitName | None, Field(title="KIND")] = None
    """split of molecules with targets: random, stratified or scaffold, or by a seed: scaffold-1; default: folds"""
    metric: Annotated[MetricName | None, Field(title="NAME")] = None
    """score of the split; default: rocauc for 0 and 1, acc for strings, else rmse"""


class Loading(SplitTable, NodeFeatures):
    """All settings of `load_dataset`."""


def loading(target: str | Sequence[str] = (), **values: Any) -> Loading:
    """Return the settings given as keywords; in Python, a string `target` is one column, never split."""
    return Loading.of({**values, "target": [target] if isinstance(target, str) else [*map(str, target)]})
