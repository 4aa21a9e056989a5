"""`python -m graphcl.pack`: write a data set to disk, to be mapped into memory from there."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from graphcl.command_line import Parser
from graphcl.datasets import FEATURES, write_on_disk
from graphcl.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 0 done, 2 for a mistake of the user's, said in one line."""
    parser = Parser(
        prog="python -m graphcl.pack",
        description="Write a data set into a folder that python -m graphcl.run --dataset ./FOLDER maps into memory.",
        allow_abbrev=False,
    )
    parser.add_argument("--dataset", required=True, help="TU or OGB name, `synthetic`, a .pt file, a TU folder")
    parser.add_argument("--out", required=True, help="the new folder")
    parser.add_argument("--data-root", default="datasets", help="where downloaded and processed data sets lie")
    parser.add_argument("--mirror", help="folder, file:// or http(s) URL holding NAME.zip")
    parser.add_argument("--features", choices=FEATURES, default="auto", help="node features, stored with the graphs")
    parser.add_argument("--max-degree", type=int, default=64, help="degrees above it share a column [64]")
    try:
        given = parser.parse_args(words)
        dataset = write_on_disk(
            given.dataset, given.out, given.data_root, given.mirror, given.features, given.max_degree
        )
        size = sum(file.stat().st_size for file in dataset.folder.iterdir())
        print(f"{dataset}, features: {dataset.features}; {size / 1e6:.1f} MB in {given.out}")
    except InputError as error:
        print(f"graphcl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngraphcl: stopped; nothing was written.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
