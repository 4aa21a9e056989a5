"""Find configurations, which are YAML files of the user or shipped with the package, and read them for a data set."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcl.arguments import named_arguments, nearest
from graphcl.config.files import read_yaml
from graphcl.config.nested import expanded, set_value
from graphcl.config.settings import Config
from graphcl.errors import InputError

_PACKAGE = Path(__file__).parents[1]
# an installed wheel contains the configurations; in a checkout they are next to the package
_SHIPPED = _PACKAGE / "configs" if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent / "configs"


@named_arguments
def read_config(path: str | Path, dataset: str | None = None) -> dict[str, Any]:
    """Read settings from a YAML file, or from the result file of a run or of a sweep's cell, and return them.

    A file may contain settings for single data sets, which override its others:

        loss: {name: adnce, temperature: 0.15}
        by_dataset:
          NCI1: {loss.temperature: 0.05, views.second: random3}

    Args:
        path: path of the file, or the name of a shipped configuration such as `graphcl`.
        dataset: data set whose settings are returned; of a path such as `data/NCI1.pt`, the name without suffix counts.
            Default: the data set that the file names.

    Raises:
        InputError: the file is not found, contains no YAML mapping, or its `by_dataset` is not a mapping of mappings.
    """
    file, name, shipped = Path(path), str(path), shipped_configs()
    if name in shipped and not file.is_file():  # a checkout contains a folder `graphcl`
        values = {"name": name, **read_yaml(shipped[name])}
    elif file.exists():
        values = read_yaml(file)
        kept = values.get("config")  # result files contain the settings under `config`
        values = kept if isinstance(kept, dict) else values
    else:
        raise InputError(f"file or configuration {name!r} not found; {nearest(name, shipped)}.")
    groups = values.pop("by_dataset", {})
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise InputError(f"{path}: `by_dataset` must map names of data sets to settings, got {groups!r}.")
    return override(expanded(values), groups.get(Path(str(dataset or values.get("dataset"))).stem, {}))


def override(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested `values` with the given settings, such as `{"loss.mu": 0.5, "loss": "adnce"}`.

    Shorter names are set first, so that `loss` does not reset `loss.mu`.
    """
    found, defaults = copy.deepcopy(dict(values)), Config().model_dump()
    for key, value in sorted(settings.items(), key=lambda item: item[0].count(".")):
        set_value(found, key.split("."), value, defaults)
    return found


def shipped_configs() -> dict[str, Path]:
    """Return the configurations shipped with the package, as a dict from name to file."""
    return {file.stem: file for file in sorted(_SHIPPED.glob("*.yaml"))}


def shipped_sweeps() -> dict[str, Path]:
    """Return the sweeps shipped with the package, as a dict from name to file."""
    return {file.stem: file for file in sorted(_SHIPPED.glob("sweeps/*.yaml"))}
