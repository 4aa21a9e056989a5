"""From the words of a command line to a checked configuration."""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from graphcl.arguments import nearest
from graphcl.config.files import parse_value, read_config, shipped_configs
from graphcl.config.settings import Config, make_config, set_value, to_yaml
from graphcl.errors import EXIT_CODE, InputError, Stopped
from graphcl.evaluate import EVALUATORS, SPLIT_EVALUATORS
from graphcl.registry import Registry, augmentations, encoders, losses, methods
from graphcl.version import __version__


def parse(words: Sequence[str]) -> Config | None:
    """The configuration that a command line asks for, or None where it asked for something to be printed, which is.

    Later wins: defaults, then `--config FILE`, then the other options, in their order. `--loss adnce` names a loss and
    takes its defaults; `--loss.mu 0.5` sets one of its arguments. Any setting can be reached by its dotted path.
    `--resume FOLDER` takes the settings that lie there, if any do and no file is given.

    Raises:
        InputError: with one line for each mistake.
    """
    options = split_options(words, [*Config.model_fields, "config", "print_config"])
    values: dict[str, Any] = {}
    shown = False
    for key, given in options:
        if key == "config":
            values = read_config(one_value(key, given))
        elif key == "print_config":
            shown = True
    if folder := _resumed(options):
        kept = Path(folder) / "config.yaml"
        values = values or (read_config(kept) if kept.is_file() else {})
        values |= {"out": folder, "resume": True}
    for key, given in options:
        if key not in ("config", "print_config", "resume"):
            set_value(values, key.split("."), read_value(key, given))
    config = make_config(values)
    if shown:
        print(to_yaml(config), end="")
        return None
    return config


def _resumed(options: Sequence[tuple[str, list[str]]]) -> str | None:
    """The folder of the run to go on with, if that is asked for."""
    given = {key: words for key, words in options if key in ("out", "resume")}
    if "resume" not in given:
        return None
    folders = list(dict.fromkeys([*given["resume"], *given.get("out", [])]))
    if len(folders) > 1:
        raise InputError(f"`--resume` and `--out` name different folders, {' and '.join(folders)}; give one.")
    return one_value("resume", folders)


def help_text() -> str:
    """What `--help` prints."""
    from graphcl.datasets import dataset_names  # not before help is asked for

    parser = Parser(
        prog="python -m graphcl.run",
        description="Train a graph encoder by contrast, embed the data set, and score the embedding.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [--dataset NAME] [--loss NAME] [--KEY VALUE ...] [--KEY.KEY VALUE ...]",
        epilog="\n\n".join(
            [
                "Any argument of a loss, a method, an augmentation or the encoder is set by its dotted path:\n"
                "  --loss adnce --loss.mu 0.5 --views.first identity --views.second node_drop --views.second.ratio 0.1",
                _listing("losses", losses),
                _listing("methods", methods),
                _listing("augmentations", augmentations),
                _listing("encoders", encoders),
                _evaluators(),
                _wrapped("data sets", dataset_names()),
                _wrapped("configurations", sorted(shipped_configs())),
            ]
        ),
        add_help=False,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file, or a configuration's name")
    for name, field in Config.model_fields.items():
        default = field.default.model_dump() if hasattr(field.default, "model_dump") else field.default
        # (`resume` is kept as true or false, but given as a folder.)
        default = "" if default is None or name == "resume" else f" [{_short(default)}]"
        metavar = "FOLDER" if name == "resume" else "VALUE"
        parser.add_argument(_flag(name), metavar=metavar, help=f"{field.description}{default}".replace("%", "%%"))
    parser.add_argument("--print-config", action="store_true", help="print the complete settings and stop")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.add_argument("--help", action="store_true", help="print this and stop")
    return parser.format_help()


def wants(words: Sequence[str]) -> str | None:
    """The text to print and stop, if the words ask for help or the version."""
    if "--help" in words or "-h" in words:
        return help_text()
    return f"graphcl {__version__}\n" if "--version" in words else None


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are a line like all others."""

    def error(self, message: str) -> NoReturn:
        """Raise `InputError` instead of leaving the program."""
        raise InputError(f"{message}; see --help.")


def command(stopped: str) -> Callable[[Callable[[Sequence[str]], int | None]], Callable[..., int]]:
    """Make a command's `main(words=None)`, by default of the program's own words, of what it does with them.

    Its exit code is 2 for what the user can mend, a line each, 130 if it was interrupted, 75 if it was asked to stop
    or lost another rank and can go on (`graphcl.system.signals`), 0 if the reader of its output went away, as `| head`
    does; else what the decorated function returns, None for 0.

    Args:
        stopped: what to say of the outcome when it was interrupted, unless the `KeyboardInterrupt` says it.
    """

    def decorate(work: Callable[[Sequence[str]], int | None]) -> Callable[..., int]:
        @functools.wraps(work)
        def main(words: Sequence[str] | None = None) -> int:
            if hasattr(sys.stdout, "reconfigure"):  # a file's name may be no text, and is still to be told
                sys.stdout.reconfigure(errors="backslashreplace")
            code = 0
            try:
                code = work(sys.argv[1:] if words is None else words) or 0
                print(end="", flush=True)
                return code
            except InputError as error:
                if str(error):  # else another rank of the job says it
                    _tell(f"graphcl: {error}".replace("\n", "\ngraphcl: "))
                return error.exit_code
            except KeyboardInterrupt as interrupt:
                if interrupt.args or not isinstance(interrupt, Stopped):
                    _tell(f"\ngraphcl: stopped; {str(interrupt) or stopped}.")
                return EXIT_CODE if isinstance(interrupt, Stopped) else 128 + signal.SIGINT
            except BrokenPipeError:
                return code
            except OSError as error:
                where = f": {error.filename}" if error.filename else ""
                _tell(f"graphcl: {error.strerror or error}{where}.")
                return 2
            finally:
                _let_go()

        return main

    return decorate


def _let_go() -> None:
    """What nobody reads, or no disk has room for, goes nowhere: Python would try it again at its end, and complain."""
    try:
        print(end="", flush=True)
    except OSError:
        if sys.stdout is sys.__stdout__:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)


def _tell(line: str) -> None:
    """A line on standard error; the exit code tells the rest where nobody reads that."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def split_options(words: Sequence[str], known: Sequence[str]) -> list[tuple[str, list[str]]]:
    """`--key value value ...` and `--key=value`, in order; dashes within a key are underscores.

    Raises:
        InputError: a word without a key, or a key whose first part is not known.
    """
    options: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            options.append((key.replace("-", "_"), [value] if equals else []))
        elif options:
            options[-1][1].append(word)
        else:
            raise InputError(f"`{word}` belongs to no option; settings are given as --KEY VALUE, see --help.")
    for key, _ in options:
        if key.split(".")[0] not in known:
            raise InputError(f"`{_flag(key)}` is not a known option; {nearest(key, known)}.".replace("_", "-"))
    return options


def read_value(key: str, given: list[str]) -> Any:
    """The value that words give to a setting: a list for `seeds`, `eval` and `track`, true for none at all."""
    if key == "seeds":
        numbers = [parse_value(word) for word in given]
        return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], list) else numbers
    if key == "eval" or (key == "track" and given):
        # Words beside each other, with commas or without; a list in brackets, too.
        words = parse_value(" ".join(given))
        return words if isinstance(words, list) else " ".join(given)
    if not given:
        return True
    value = parse_value(one_value(key, given))
    # A text is meant where a text is wanted, whatever it looks like: `--dataset 123`, `--out 2026`.
    wanted = Config.model_fields[key].annotation if key in Config.model_fields else None
    return given[0] if wanted in (str, str | None) and value is not None else value


def one_value(key: str, given: list[str]) -> str:
    """The word given to an option.

    Raises:
        InputError: none is given, or several.
    """
    if len(given) != 1:
        raise InputError(f"`{_flag(key)}` takes one value, got {len(given)}.")
    return given[0]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _short(default: Any) -> str:
    if isinstance(default, dict):
        return ", ".join(_short(value) if key == "name" else f"{key}={_short(value)}" for key, value in default.items())
    if isinstance(default, list):
        return " ".join(map(str, default))
    return "null" if default is None else str(default)  # as it is to be written


def _listing(title: str, registry: Registry) -> str:
    lines = [f"{title}:"]
    for name in registry:
        arguments = registry.arguments(name)
        shown = [f"{key}={_short(value)}" for key, value in arguments.defaults.items() if key != "reduction"]
        lines.append(f"  {name:15} {registry.summary(name)}")
        if shown:
            lines.append(f"  {'':15} {', '.join(shown)}")
    return "\n".join(lines)


def _evaluators() -> str:
    known = {**EVALUATORS, **SPLIT_EVALUATORS}
    lines = [f"  {name:15} {(inspect.getdoc(known[name]) or '').splitlines()[0]}" for name in known]
    return "\n".join(["evaluators:", *lines])


def _wrapped(title: str, names: Sequence[str]) -> str:
    body = textwrap.fill(", ".join(names), 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return f"{title}:\n{body}"
