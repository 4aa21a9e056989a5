"""Run a command-line program: print errors as one line each, and determine the exit code."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from graphcl.errors import EXIT_CODE, READ_AS_OPTIONS, InputError, InputWarning, Stopped, printable, reason
from graphcl.system.progress import showing
from graphcl.system.signals import discard, lasting_streams, one_interrupt

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""Texts that identify torch's out-of-memory errors, which are plain RuntimeErrors."""
INTERRUPTED = 128 + signal.SIGINT


class Program:
    """A program that runs; `code` is its exit code."""

    code = 0


@contextmanager
def program(interrupted: str) -> Iterator[Program]:
    """Run a program in the block, print its errors and warnings, each as one line, and set its exit code.

    The code is that set in the block, or

    - 2 for invalid input or a system error, after printing the problems on stderr, one per line;
    - 130 after an interruption;
    - 75 if the program was asked to stop, or lost another rank, and can be resumed (see `graphcl.system.signals`);
    - 0 if the reader of the output has closed it, as `| head` does.

    Args:
        interrupted: text after "stopped; " in the message on an interruption. If the `KeyboardInterrupt` has a text,
            that text is used instead.
    """
    if hasattr(sys.stdout, "reconfigure"):  # file names may not be encodable, and printing them must not raise
        sys.stdout.reconfigure(errors="backslashreplace")
    this = Program()
    with one_interrupt():
        try:
            with lasting_streams() as errors, warnings_as_lines(), showing():
                yield this
            if errors:
                raise errors[0]
        except InputError as error:
            if str(error):  # the text is empty if another rank of the job prints the message
                _print_error(f"graphcl: {error}".replace("\n", "\ngraphcl: "))
            this.code = error.exit_code
        except KeyboardInterrupt as interrupt:
            if interrupt.args or not isinstance(interrupt, Stopped):
                _print_error(f"\ngraphcl: stopped; {str(interrupt) or interrupted}.")
            this.code = EXIT_CODE if isinstance(interrupt, Stopped) else INTERRUPTED
        except BrokenPipeError:
            pass
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not any(text in str(error) for text in _OUT_OF_MEMORY):
                raise
            _print_error(f"graphcl: out of memory ({reason(error)}); use smaller batches or a smaller model.")
            this.code = 2
        except OSError as error:
            file = f": {error.filename}" if error.filename else ""
            _print_error(f"graphcl: {error.strerror or error}{file}.")
            this.code = 2
        finally:
            try:
                print(end="", flush=True)
            except OSError:  # a closed pipe or a full disk, of which the interpreter would complain at its end
                discard(sys.stdout)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print each of this package's warnings once, as "graphcl: warning: ...", without the line of code."""
    before, texts = warnings.showwarning, set[str]()

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, InputWarning):
            before(message, category, *place, **more)
        elif (text := printable(str(message))) not in texts:  # Python forgets what it showed when filters change
            texts.add(text)
            _print_error(f"graphcl: warning: {text}")

    warnings.showwarning, token = show, READ_AS_OPTIONS.set(True)
    try:
        yield
    finally:
        warnings.showwarning = before
        READ_AS_OPTIONS.reset(token)


def _print_error(line: str) -> None:
    """Print a line on stderr; ignore a closed stderr, as the exit code also reports the error."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
