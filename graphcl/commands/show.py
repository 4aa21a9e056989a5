"""`python -m graphcl.commands.show`: graphs under augmentations, or the report of a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphcl.arguments import shown
from graphcl.config.command_line import Parser, command
from graphcl.config.files import parse_value
from graphcl.config.settings import build_augmentation, check_augmentation
from graphcl.datasets import FEATURES, load_dataset
from graphcl.errors import InputError
from graphcl.registry import augmentations
from graphcl.system.files import write_whole

_SHOWN = ("node_drop", "subgraph", "edge_perturb", "attribute_mask")


@command("nothing was written")
def main(words: Sequence[str]) -> None:
    """The command line; returns the exit code."""
    given = _parser().parse_args(words)
    if (given.run is None) == (given.dataset is None):
        raise InputError("give the folder of a run, or --dataset NAME for graphs under augmentations; see --help.")
    if given.run is not None and given.out is not None:
        raise InputError("`--out` goes with --dataset; a run's report.html lies in the run's folder.")
    print(show_run(given.run) if given.run is not None else show_augmentations(given))


def show_run(folder: str) -> str:
    """Draw a run's `report.html` anew; gives what is to be said."""
    from graphcl.experiment.viz.run_report import write_report

    return str(write_report(folder))


def show_augmentations(given: argparse.Namespace) -> str:
    """Draw graphs of a data set under augmentations; gives what is to be said."""
    out = Path(given.out or f"{Path(given.dataset).stem}-augmentations.svg")
    if out.suffix not in (".svg", ".png"):
        raise InputError(f"`--out` must end in .svg or .png, got {str(out)!r}.")
    if out.exists():
        raise InputError(f"{out} exists already, and nothing is ever overwritten; pass another file with --out.")
    if not 0 <= given.ratio < 1:
        raise InputError(f"`--ratio` must be in [0, 1), got {given.ratio}.")
    if not 0 <= given.seed < 2**32:
        raise InputError(f"`--seed` must be in [0, {2**32}), got {shown(given.seed)}.")
    drawn = [_augmentation(word, given.ratio) for word in given.augmentations]
    views = dict(zip(_labels(given.augmentations), drawn, strict=True))

    from graphcl.experiment.viz.augmentations import augmentations as draw
    from graphcl.experiment.viz.style import style
    from graphcl.experiment.viz.svg import to_png, to_svg

    with style():  # without matplotlib, refused before anything is loaded
        dataset = load_dataset(given.dataset, given.data_root, given.mirror, given.features, given.max_degree)
        graphs = {}
        for number in given.graph:
            if not 0 <= number < len(dataset):
                raise InputError(f"`--graph` must be in 0 to {len(dataset) - 1} for {dataset.name}, got {number}.")
            graphs[f"{dataset.name} {number}"] = dataset[number]
        figure, seen = draw(graphs, views, given.seed, dataset.name)
        picture = to_png(figure) if out.suffix == ".png" else to_svg(figure).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, lambda file: file.write(picture))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; pass another file with --out.") from None
    lines = [f"{name}, {label}: {found}" for name, label, found in seen]
    return "\n".join([*lines, str(out)])


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m graphcl.commands.show",
        description="Draw graphs of a data set under each augmentation; or, of a run's folder, its report.html anew.",
        epilog=f"augmentations: {', '.join(augmentations)}; those made of others with their members, "
        "such as '{name: compose, members: [node_drop, attribute_mask]}'.",
        allow_abbrev=False,
    )
    add: Any = parser.add_argument
    add("run", nargs="?", metavar="FOLDER", help="of a run; its report.html is written from the files that are there")
    add("--dataset", help="TU or OGB name, `synthetic`, a .pt file, a folder in TU layout or on disk")
    add("--graph", nargs="+", type=int, default=[0], metavar="N", help="which graphs of it, counted from 0 [0]")
    add("--augmentations", nargs="+", default=list(_SHOWN), metavar="NAME", help=f"[{' '.join(_SHOWN)}]")
    add("--ratio", type=float, default=0.2, help="fraction that each of them changes [0.2]")
    add("--seed", type=int, default=0, help="of what they draw [0]")
    add("--out", help="a new file, .svg or .png [DATASET-augmentations.svg]")
    add("--data-root", default="datasets", help="where downloaded and processed data sets lie [datasets]")
    add("--mirror", help="folder, file:// or http(s) URL holding NAME.zip")
    add("--features", choices=FEATURES, default="auto", help="node features [auto]")
    add("--max-degree", type=int, default=64, help="degrees from this on share a column [64]")
    return parser


def _augmentation(word: str, ratio: float) -> Any:
    """The augmentation that a word names, with the ratio where it takes one and the word gives none."""
    value = parse_value(word)
    spec = _with_ratio(value, ratio)
    return build_augmentation(check_augmentation(spec, "--augmentations"))


def _with_ratio(value: Any, ratio: float) -> Any:
    spec = {"name": value} if isinstance(value, str) else value
    if not isinstance(spec, dict) or spec.get("name") not in augmentations:
        return spec  # refused with a message when it is checked
    spec = dict(spec)
    if isinstance(spec.get("members"), list):
        spec["members"] = [_with_ratio(member, ratio) for member in spec["members"]]
    if "ratio" in augmentations.arguments(spec["name"]).defaults:
        spec.setdefault("ratio", ratio)
    return spec


def _labels(words: Sequence[str]) -> list[str]:
    """What the pictures are headed with; the second of those that are called alike, with other arguments, is `(2)`."""
    labels: list[str] = []
    for label in map(_label, words):
        before = sum(label == _label(word) for word in words[: len(labels)])
        labels.append(f"{label} ({before + 1})" if before else label)
    return labels


def _label(word: str) -> str:
    """What a picture is headed with: the name, and its members where it has some."""
    value = parse_value(word)
    if not isinstance(value, dict) or not isinstance(value.get("members"), list):
        return str(value.get("name") if isinstance(value, dict) else value)
    members = [str(each.get("name")) if isinstance(each, dict) else str(each) for each in value["members"]]
    return f"{value.get('name')}: {', '.join(members)}"


if __name__ == "__main__":
    sys.exit(main())
