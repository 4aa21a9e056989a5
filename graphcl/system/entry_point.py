"""Decorator for command-line programs: print errors as one line each, and return exit codes."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from graphcl.errors import EXIT_CODE, InputError, Stopped, reason

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""Texts that identify torch's out-of-memory errors, which are plain RuntimeErrors."""
INTERRUPTED = 128 + signal.SIGINT


def entry_point(interrupted: str) -> Callable[[Callable[[Sequence[str]], int | None]], Callable[..., int]]:
    """Return a decorator that turns a function of arguments into a program's `main(arguments=None)`.

    If `arguments` is None, `main` uses `sys.argv[1:]`. It returns the exit code: the function's result (0 for None), or

    - 2 for invalid input or a system error, after printing the problems on stderr, one per line;
    - 130 after an interruption;
    - 75 if the program was asked to stop, or lost another rank, and can be resumed (see `graphcl.system.signals`);
    - 0 if the reader of the output has closed it, as `| head` does.

    Args:
        interrupted: text after "stopped; " in the message on an interruption. If the `KeyboardInterrupt` has a text,
            that text is used instead.
    """

    def decorate(work: Callable[[Sequence[str]], int | None]) -> Callable[..., int]:
        @functools.wraps(work)
        def main(arguments: Sequence[str] | None = None) -> int:
            if hasattr(sys.stdout, "reconfigure"):  # file names may not be encodable, and printing them must not raise
                sys.stdout.reconfigure(errors="backslashreplace")
            code = 0
            try:
                code = work(sys.argv[1:] if arguments is None else arguments) or 0
                print(end="", flush=True)
                return code
            except InputError as error:
                if str(error):  # the text is empty if another rank of the job prints the message
                    _print_error(f"graphcl: {error}".replace("\n", "\ngraphcl: "))
                return error.exit_code
            except KeyboardInterrupt as interrupt:
                if interrupt.args or not isinstance(interrupt, Stopped):
                    _print_error(f"\ngraphcl: stopped; {str(interrupt) or interrupted}.")
                return EXIT_CODE if isinstance(interrupt, Stopped) else INTERRUPTED
            except BrokenPipeError:
                return code
            except (MemoryError, RuntimeError) as error:
                if not isinstance(error, MemoryError) and not any(text in str(error) for text in _OUT_OF_MEMORY):
                    raise
                _print_error(f"graphcl: out of memory ({reason(error)}); use smaller batches or a smaller model.")
                return 2
            except OSError as error:
                file = f": {error.filename}" if error.filename else ""
                _print_error(f"graphcl: {error.strerror or error}{file}.")
                return 2
            finally:
                _flush_stdout()

        return main

    return decorate


def _flush_stdout() -> None:
    """Flush stdout; on a closed pipe or full disk, redirect it to /dev/null so that shutdown does not raise."""
    try:
        print(end="", flush=True)
    except OSError:
        if sys.stdout is sys.__stdout__:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)


def _print_error(line: str) -> None:
    """Print a line on stderr; ignore a closed stderr, as the exit code also reports the error."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
