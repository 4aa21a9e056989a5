"""Where a training is saved while it is under way, and from where it goes on after a kill."""

from __future__ import annotations

import io
import re
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from graphcl.arguments import shown
from graphcl.distributed import ranks
from graphcl.errors import InputError, Stopped, one_line
from graphcl.system.files import read_plain, remove_partial, write_whole
from graphcl.system.signals import Stop

FORMAT, VERSION = "graphcl training", 1
KEPT = 2
"""How many checkpoints are kept: the newest, and the one before it in case that is damaged."""


class Checkpoints:
    """Checkpoints of one training in a folder: written whole or not at all, the one before kept.

    A checkpoint holds everything that the training depends on: weights, statistics, queue or bank, the optimiser's
    moments, every generator, and the place in the epoch. A training that is given a folder with checkpoints goes on
    from the newest that can be read, and ends bit by bit (on the same machine) as if it had never stopped. Reading one
    never runs code.

    One is written when the training is over, too, whatever the rules say. A disk that is full, or gone, costs a
    warning, not the training: it is tried again when the next one is due.

    Args:
        folder: for them alone; made when the first is written.
        epochs: epochs after which one is written; None for no such rule.
        minutes: minutes after which one is written, at the end of a step; None for no such rule.
        stop: looked at after each step; where a stop is wanted, the training is saved and raises `Stopped`.

    Raises:
        InputError: epochs below 1, or minutes not above 0.

    Example::

        train(method, loader, first, second, epochs=1000, checkpoints=Checkpoints("mine/checkpoints", minutes=10))
    """

    def __init__(
        self,
        folder: str | Path,
        epochs: int | None = None,
        minutes: float | None = None,
        stop: Stop | None = None,
    ) -> None:
        if epochs is not None and epochs < 1:
            raise InputError(f"`epochs` between checkpoints must be at least 1, got {epochs}.")
        if minutes is not None and not minutes > 0:
            raise InputError(f"`minutes` between checkpoints must be above 0, got {minutes}.")
        self.folder, self.epochs, self.minutes, self.stop = Path(folder), epochs, minutes, stop or Stop()
        self._saved = time.monotonic()

    def due(self, epochs: int | None = None) -> bool:
        """Whether one is to be written now, after a step or (with their number so far) after an epoch."""
        if epochs is not None and self.epochs is not None and epochs % self.epochs == 0:
            return True
        return self.minutes is not None and time.monotonic() - self._saved >= 60 * self.minutes

    def save(self, state: dict[str, Any], steps: int) -> bool:
        """Write a checkpoint, and remove those before the one before it; whether that succeeded.

        Args:
            state: plain values and tensors.
            steps: of the optimiser so far, which order the checkpoints.
        """
        self._saved = time.monotonic()
        if ranks.rank():  # what rank 0 writes holds all ranks'
            return True
        path = self.folder / f"step-{steps:09d}.pt"
        # In memory first: on a full disk PyTorch's own writer would end the process.
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, "version": VERSION, **state}, buffer)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda file: file.write(buffer.getbuffer()))
        except OSError as error:
            print(f"graphcl: no checkpoint at step {steps}: {error.strerror}: {self.folder}; "
                  f"the training goes on, and those before are kept.", file=sys.stderr)  # fmt: skip
            return False
        # A newer one is of steps that were gone back from, as it was damaged.
        files = self.files()
        for old in {*files} - {*files[files.index(path) :][:KEPT]}:
            old.unlink(missing_ok=True)
        return True

    def files(self) -> list[Path]:
        """The checkpoints in the folder, the newest first."""
        found = (each for each in self.folder.glob("step-*.pt") if _NAME.fullmatch(each.name))
        return sorted(found, key=lambda path: int(path.stem.removeprefix("step-")), reverse=True)

    def resume(self, restore: Callable[[dict[str, Any]], None]) -> Path | None:
        """Hand the newest state that can be read to `restore`; the file, or None where there is none.

        Args:
            restore: takes it up; it raises an exception of any kind where the state does not fit.

        Raises:
            InputError: there are some, and none can be read; or what `restore` refuses as of another training.
        """
        if ranks.rank() == 0:
            remove_partial(self.folder)
        files: list[Path] = ranks.share(self.files())
        for path in files:
            # Rank 0 reads for all, whose disks may be others.
            state, problem = ranks.share(_read(path) if ranks.rank() == 0 else None)
            if state is not None:
                problem = _restored(restore, state, path)
            problem = next(filter(None, ranks.collect(problem)), None)
            if problem is None:
                return path
            if ranks.rank() == 0:
                print(f"graphcl: {problem}; going back to the checkpoint before it.", file=sys.stderr)
        if files:
            raise InputError(
                f"none of the {len(files)} checkpoints in {self.folder} can be read; delete that folder to train anew."
            )
        return None

    def stopped(self, saved: bool) -> Stopped:
        """What to raise when a stop was wanted."""
        where = "everything is saved" if saved else f"the last checkpoint in {self.folder} is kept"
        return Stopped(where)

    def clear(self) -> None:
        """Remove all, as of a training whose outcome is kept elsewhere."""
        remove_partial(self.folder)
        for path in self.files():
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


class OtherTrainingError(InputError):
    """A checkpoint of another training: the message says which settings differ."""


def _read(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """What a checkpoint holds, or why it cannot be read."""
    try:
        return read_checkpoint(path), None
    except InputError as error:
        return None, str(error).rstrip(".")


def _restored(restore: Callable[[dict[str, Any]], None], state: dict[str, Any], path: Path) -> str | None:
    """Why a state cannot be taken up; None where it was."""
    try:
        restore(state)
    except OtherTrainingError:
        raise
    except Exception as error:  # of whatever kind: the file is damaged, and the one before may be whole
        return (
            str(error).rstrip(".") if isinstance(error, InputError) else f"{path} is damaged ({type(error).__name__})"
        )
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, its bytes checked against their checksums.

    Raises:
        InputError: damaged, code in it, or no checkpoint of this library.
    """
    # First the look at what the file claims: the checksums are of records that it has found to be as large as they say.
    content = read_plain(path, "a checkpoint holds plain tensors; this is not one of this library's")
    with zipfile.ZipFile(path) as file:
        damaged = file.testzip()  # PyTorch itself does not look at the checksums
    if damaged is not None:
        raise InputError(f"{path} is damaged: {one_line(damaged, 100)} does not fit its checksum.")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is no checkpoint of a training: it does not say `format`: {FORMAT!r}.")
    if content.get("version") != VERSION:
        raise InputError(f"{path} has version {shown(content.get('version'))}, this library reads {VERSION}.")
    return content


_NAME = re.compile(r"step-\d{9,}\.pt")
