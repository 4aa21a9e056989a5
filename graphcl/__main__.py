"""`python -m graphcl COMMAND ...`, and the console script `graphcl`: one door to all commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from graphcl.arguments import nearest
from graphcl.config.command_line import command
from graphcl.version import __version__

COMMANDS = {
    "run": ("graphcl.run", "train an encoder by contrast, embed the data set, score the embedding"),
    "sweep": ("graphcl.sweep.__main__", "any settings x data sets x seeds, in parallel; makes tables"),
    "embed": ("graphcl.commands.embed", "embed graphs with a trained encoder"),
    "transfer": (
        "graphcl.commands.transfer",
        "a trained encoder on another data set: probed, or fine-tuned with labels",
    ),
    "show": ("graphcl.commands.show", "draw graphs under each augmentation, or a run's report anew"),
    "pack": ("graphcl.commands.pack", "write a data set to disk, to be mapped into memory from there"),
}
"""Each command's module, whose `main(words)` returns the exit code, and what it does."""


@command("nothing had begun")
def main(words: Sequence[str]) -> int:
    """Hand the words behind a command to its module; returns its exit code, and 2 where there is no such command."""
    if not words or words[0] in ("--help", "-h"):
        lines = [f"  {name:8} {summary}" for name, (_, summary) in COMMANDS.items()]
        print("usage: graphcl COMMAND ...     (or python -m graphcl COMMAND ...)\n", *lines, sep="\n")
        print("\n`graphcl COMMAND --help` prints a command's options, `graphcl --version` the version.")
        return 0 if words else 2
    if words[0] == "--version":
        print(f"graphcl {__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(f"graphcl: `{words[0]}` is no command; {nearest(words[0], COMMANDS)}.", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[words[0]][0])
    code: int = module.main(words[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
