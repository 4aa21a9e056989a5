"""Define the settings of loading: node features, and how a table is read, split and scored.

An installed package adds settings by an entry point of the group `graphcl.loading_settings`, a subclass of
`graphcl.arguments.Settings`; `load_dataset`, runs and commands take them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, create_model

from graphcl.arguments import KEPT, Count, MetricName, Needs, Settings, SplitName
from graphcl.registry import load_points

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
    tu_features: Annotated[TUFeatures, Field(title="KIND"), KEPT] = "labels"
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


if TYPE_CHECKING:

    class Added(Settings):
        """Settings that installed packages and extensions add."""

else:
    Added = create_model("Added", __base__=(*load_points("graphcl.loading_settings").values(), Settings))


class Table(Added, Attributes):
    """How a table, or networkx graphs, are read."""

    id: Annotated[str | None, Field(title="COLUMN")] = None
    """column of the ids in a table; default: id, else the rows are numbered from 0"""
    target: Annotated[Columns, Field(title="COLUMN ...")] = []  # noqa: RUF012, pydantic copies it
    """columns of the targets in a table, separated by commas"""
    group: Annotated[str | None, Field(title="COLUMN")] = None
    """column of the groups in a table; rows of the same group are positives"""
    invalid: Annotated[Literal["skip", "stop"] | None, Field(title="ACTION")] = None
    """on an invalid row, cell of a target or graph: skip it, or stop; default: skip only rows that hold no graph"""


class SplitTable(Table):
    """How a table is read, split and scored."""

    split: Annotated[SplitName | None, Field(title="KIND")] = None
    """split of a table with targets: random, stratified or scaffold, or by a seed: scaffold-1; default: folds"""
    metric: Annotated[MetricName | None, Field(title="NAME")] = None
    """score of the split; default: rocauc for 0 and 1, acc for strings, else rmse"""


class Loading(SplitTable, NodeFeatures):
    """All settings of `load_dataset`."""


KEPT_SETTINGS = {name for name, field in Loading.model_fields.items() if KEPT in field.metadata}
"""Settings that are saved with an encoder, whose graphs are later read likewise."""


def loading(target: str | Sequence[str] = (), **values: Any) -> Loading:
    """Return the settings given as keywords; in Python, a string `target` is one column, never split."""
    return Loading.of({**values, "target": [target] if isinstance(target, str) else [*map(str, target)]})
