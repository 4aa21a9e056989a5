"""Entry point of `graphcl COMMAND ...` and `python -m graphcl COMMAND ...`."""

from __future__ import annotations

import importlib
import platform
import signal
import sys
from collections.abc import Sequence

from graphcl.cli import program
from graphcl.commands import COMMANDS, command, summaries
from graphcl.errors import InputError
from graphcl.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command named by the first argument with the remaining arguments, and return the exit code."""
    with program("nothing was started") as this:
        this.code = _run(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:  # the process ends, so Ctrl-C would only print a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return this.code


def _run(arguments: Sequence[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "--help":  # as in graphcl --help losses
        arguments = ["run", *arguments]
    if not arguments or arguments[0] in ("--help", "-h"):
        lines = [f"  {name:10} {summary}" for name, summary in summaries().items()]
        print("usage: graphcl COMMAND ...     (or python -m graphcl COMMAND ...)\n", *lines, sep="\n")
        print("\n`graphcl COMMAND --help` prints a command's options, `graphcl --help losses` the losses;")
        print("`graphcl --version` prints the version, with `--verbose` all that a bug report needs.")
        print("Start with: graphcl run --seeds 0")
        return 0 if arguments else 2
    name, *rest = arguments
    if name == "--version":
        print(f"graphcl {__version__}")
        if rest == ["--verbose"]:
            print(*_versions(), sep="\n")
        return 0
    if name not in COMMANDS and name not in summaries():
        from graphcl.arguments import nearest  # imported here, as it loads pydantic

        raise InputError(f"unknown command `{name}`; {nearest(name, summaries())}.")
    code: int = command(name).main(rest)
    return code


def _versions() -> list[str]:
    """Return lines with the versions, the compiled parts and the machine, for a bug report."""
    import torch  # imported here, as it takes seconds

    from graphcl.report.summary import environment

    about = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    lines = [f"{name}: {version}" for name, version in about["versions"].items() if name != "graphcl"]
    for part in ("graphs._native", "losses._native", "models._gin", "evaluate.graphs._svm"):
        try:
            importlib.import_module(f"graphcl.{part}")
            lines.append(f"compiled {part}: yes")
        except ImportError as error:
            lines.append(f"compiled {part}: no ({error})")
    hardware = {name: value for name, value in about["hardware"].items() if name != "machine"}
    return [*lines, f"platform: {platform.platform()}", *(f"{name}: {value}" for name, value in hardware.items())]


if __name__ == "__main__":
    sys.exit(main())
