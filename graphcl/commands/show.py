"""`graphcl show`: draw graphs under augmentations, or redraw the report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from graphcl.arguments import Ratio, Seed
from graphcl.cli.command_line import Command
from graphcl.commands.options import Force
from graphcl.config import build_augmentation, check_augmentation
from graphcl.config.settings import DatasetName, Imports, Place
from graphcl.config.specs import as_spec
from graphcl.datasets.settings import Features
from graphcl.errors import InputError
from graphcl.registry import augmentations
from graphcl.system.files import new_file, write_whole


class Show(Features, Place, Imports):
    """Draw graphs of a data set under each augmentation, or redraw the report of a run."""

    run: str | None = Field(None, title="FOLDER", description="run folder whose report.html is redrawn")
    dataset: Annotated[DatasetName | None, Field(title="NAME", description="data set whose graphs are drawn")] = None
    graph: list[int] = Field([0], description="numbers of the graphs, from 0")
    augmentations: list[Annotated[Any, BeforeValidator(as_spec)]] = Field(
        ["node_drop", "subgraph", "edge_perturb", "attribute_mask"], title="NAME ...", description="augmentations"
    )
    ratio: Ratio = Field(0.2, description="ratio of every augmentation that takes a ratio and sets none")
    seed: Seed = Field(0, description="seed of the random draws")
    out: str | None = Field(None, title="FILE", description="new .svg or .png; default: DATASET-augmentations.svg")
    force: Force = False


COMMAND = Command(
    "graphcl show FOLDER, or graphcl show --dataset NAME [--KEY VALUE ...]",
    Show,
    positional="run",
    details=lambda: (
        f"augmentations: {', '.join(augmentations)};\n"
        "composed ones take members, as in '{name: compose, members: [node_drop, attribute_mask]}'"
    ),
)


def show(given: Show) -> str:
    """Draw graphs under augmentations, or redraw the report of a run, and return the text to print."""
    if (given.run is None) == (given.dataset is None):
        raise InputError("pass a run folder, or --dataset NAME to draw graphs under augmentations; see --help.")
    if given.run is not None and given.out is not None:
        raise InputError("`--out` needs --dataset; a run's report.html is written into the run folder.")
    if given.run is None:
        return show_augmentations(given)
    from graphcl.report.run_report import write_report

    if not Path(given.run).exists():
        raise InputError(f"folder {given.run!r} not found; pass a run folder, or --dataset {given.run} for its graphs.")
    return str(write_report(given.run))


main = COMMAND.main(show)


def show_augmentations(given: Show) -> str:
    """Draw graphs of a data set under augmentations into a new file.

    Returns:
        A text with one line per view, its difference from the graph, and a last line with the path of the file.

    Raises:
        InputError: a setting is invalid, the file exists, or its folder does not.
    """
    name = str(given.dataset)
    out = new_file(given.out or f"{Path(name).stem}-augmentations.svg", given.force)
    if out.suffix not in (".svg", ".png"):
        raise InputError(f"`out` must end in .svg or .png, got {str(out)!r}.")
    specs = [check_augmentation(_with_ratio(each, given.ratio), "augmentations") for each in given.augmentations]
    views = dict(zip(_labels(specs), map(build_augmentation, specs), strict=True))

    from graphcl.datasets import load_dataset
    from graphcl.report.augmentations import augmentations as draw
    from graphcl.report.style import style
    from graphcl.report.svg import to_png, to_svg

    with style():
        features = given.model_dump(include=set(Features.model_fields))
        dataset = load_dataset(name, given.data_root, given.mirror, **features)
        graphs = {}
        for number in given.graph:
            if not 0 <= number < len(dataset):
                raise InputError(f"`graph` must be in 0 to {len(dataset) - 1} for {dataset.name}, got {number}.")
            graphs[f"{dataset.name} {number}"] = dataset[number]
        figure, drawn = draw(graphs, views, given.seed, dataset.name)
        picture = to_png(figure) if out.suffix == ".png" else to_svg(figure).encode()
    write_whole(out, lambda file: file.write(picture))
    return "\n".join([*(f"{graph}, {label}: {text}" for graph, label, text in drawn), str(out)])


def _with_ratio(spec: Any, ratio: float) -> Any:
    """Return a specification with `ratio` added to each augmentation and member that takes a ratio and has none."""
    spec = as_spec(spec)
    if not isinstance(spec, dict) or spec.get("name") not in augmentations:
        return spec  # invalid; `check_augmentation` reports it
    members = spec.get("members")
    inner = {"members": [_with_ratio(member, ratio) for member in members]} if isinstance(members, list) else {}
    own = {"ratio": ratio} if "ratio" in augmentations.arguments(spec["name"]).defaults else {}
    return own | spec | inner


def _labels(specs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a title for each specification: its name and members. Repeated titles get the suffix `(2)`, `(3)`, ..."""
    labels = []
    for spec in specs:
        members = ", ".join(member["name"] for member in spec.get("members", []))
        labels.append(f"{spec['name']}: {members}" if members else spec["name"])
    counts = [labels[: i + 1].count(label) for i, label in enumerate(labels)]
    return [f"{label} ({count})" if count > 1 else label for label, count in zip(labels, counts, strict=True)]
