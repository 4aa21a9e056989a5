"""Entry point of `graphcl COMMAND ...` and `python -m graphcl COMMAND ...`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from graphcl.cli.entry_point import program
from graphcl.commands import COMMANDS
from graphcl.errors import InputError
from graphcl.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command named by the first argument with the remaining arguments, and return the exit code."""
    with program("nothing was started") as this:
        this.code = _run(sys.argv[1:] if arguments is None else arguments)
    return this.code


def _run(arguments: Sequence[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "--help":  # as in graphcl --help losses
        arguments = ["run", *arguments]
    if not arguments or arguments[0] in ("--help", "-h"):
        lines = [f"  {name:10} {summary}" for name, summary in COMMANDS.items()]
        print("usage: graphcl COMMAND ...     (or python -m graphcl COMMAND ...)\n", *lines, sep="\n")
        print("\n`graphcl COMMAND --help` prints a command's options, `graphcl --help losses` the losses;")
        print("`graphcl --version` prints the version. Start with: graphcl run --seeds 0")
        return 0 if arguments else 2
    name, *rest = arguments
    if name == "--version":
        print(f"graphcl {__version__}")
        return 0
    if name not in COMMANDS:
        from graphcl.arguments import nearest  # imported here, as it loads pydantic

        raise InputError(f"unknown command `{name}`; {nearest(name, COMMANDS)}.")
    code: int = importlib.import_module(f"graphcl.commands.{name}").main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main())
