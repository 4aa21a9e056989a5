"""`python -m graphcl.commands.pack`: write a data set to disk, to be mapped into memory from there."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from graphcl.config.command_line import Parser, command
from graphcl.datasets import FEATURES, write_on_disk


@command("nothing was written")
def main(words: Sequence[str]) -> None:
    """The command line; returns the exit code."""
    parser = Parser(
        prog="python -m graphcl.commands.pack",
        description="Write a data set into a folder that python -m graphcl.run --dataset ./FOLDER maps into memory.",
        allow_abbrev=False,
    )
    parser.add_argument("--dataset", required=True, help="TU or OGB name, `synthetic`, a .pt file, a TU folder")
    parser.add_argument("--out", required=True, help="the new folder")
    parser.add_argument(
        "--data-root", default="datasets", help="where downloaded and processed data sets lie [datasets]"
    )
    parser.add_argument("--mirror", help="folder, file:// or http(s) URL holding NAME.zip")
    parser.add_argument(
        "--features", choices=FEATURES, default="auto", help="node features, stored with the graphs [auto]"
    )
    parser.add_argument("--max-degree", type=int, default=64, help="degrees from this on share a column [64]")
    given = parser.parse_args(words)
    dataset = write_on_disk(given.dataset, given.out, given.data_root, given.mirror, given.features, given.max_degree)
    size = sum(file.stat().st_size for file in dataset.folder.iterdir())
    print(f"{dataset}, features: {dataset.features}; {size / 1e6:.1f} MB in {given.out}")


if __name__ == "__main__":
    sys.exit(main())
