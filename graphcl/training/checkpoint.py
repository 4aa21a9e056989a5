"""Write training checkpoints, and resume training from them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphcl.arguments import Count, Positive, checked, shown
from graphcl.distributed import ranks
from graphcl.errors import InputError, Stopped, reason
from graphcl.system.arrays import read_torch_file, write_torch_file
from graphcl.system.files import remove_partial
from graphcl.system.signals import Stop
from graphcl.training.state import OtherTrainingError, Training

FORMAT, VERSION = "graphcl training", 3
KEPT = 2
"""Number of checkpoints to keep: the newest, and the previous one in case the newest is damaged."""
AGREE = 8
"""Number of steps between two collective decisions of the ranks on saving and stopping."""
GRACE = 5.0
"""Seconds that a stop request waits for the end of the epoch, from which training resumes bit-identically."""


class Checkpoints:
    """The checkpoints of one training run in a folder. Each is written atomically; the newest two are kept.

    A checkpoint holds the complete training state: weights, BatchNorm statistics, queue or bank, Adam's moments and the
    states of all generators. `train` resumes from the newest readable checkpoint in the folder. A run resumed at the
    end of an epoch is bit-identical to an uninterrupted run on the same machine. A run resumed within an epoch uses a
    new order and new views for the rest of that epoch. Reading a checkpoint never runs code.

    Checkpoints are written at the end of an epoch if `epochs` or `minutes` requires it, and at the end of training.
    Within an epoch, a checkpoint is written only if the epoch alone takes longer than `minutes`, and then also at the
    end of this epoch; or on a stop request, which first waits up to five seconds for the epoch to end. If the disk is
    full or missing, training prints a warning and continues; it tries again when the next checkpoint is due.

    Args:
        folder: folder for these checkpoints only; created with the first checkpoint.
        epochs: number of epochs between checkpoints; None disables this rule.
        minutes: minutes between checkpoints; None disables this rule.
        stop: handler of stop requests, checked after each step; training then writes a checkpoint and raises `Stopped`.

    Example::

        train(method, loader, first, second, epochs=1000, checkpoints=Checkpoints("mine/checkpoints", minutes=10))
    """

    @checked
    def __init__(
        self,
        folder: str | Path,
        epochs: Count | None = None,
        minutes: Positive | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.folder, self.epochs, self.minutes, self.stop = Path(folder), epochs, minutes, stop or Stop()
        self._saved = self._epoch_ended = time.monotonic()
        self._within_epoch = False  # whether the newest checkpoint lies within the current epoch
        self._stop_seen: float | None = None

    def after_step(self, training: Training) -> None:
        """Save within an epoch if `minutes` require it; save and raise `Stopped` on a stop request that cannot wait."""
        if ranks.size() > 1 and training.steps % AGREE:
            return
        if self.stop.requested and self._stop_seen is None:
            self._stop_seen = time.monotonic()
        stop = self._stop_seen is not None and time.monotonic() - self._stop_seen >= GRACE
        due = self._minutes_passed_since(max(self._saved, self._epoch_ended))
        self._within_epoch |= due
        self._save_if(training, stop, due)

    def after_epoch(self, training: Training) -> None:
        """Save if a checkpoint is due or training is finished; raise `Stopped` on a stop request."""
        due = self._within_epoch or bool(self.epochs and training.epoch % self.epochs == 0)
        self._epoch_ended, self._within_epoch = time.monotonic(), False
        due = due or self._minutes_passed_since(self._saved) or training.finished
        self._save_if(training, self.stop.requested, due)

    def _save_if(self, training: Training, stop: bool, due: bool) -> None:
        """Save a checkpoint if `due` or `stop` is true on any rank; raise `Stopped` if `stop` is true on any rank."""
        stop, due = ranks.any_rank(stop, due)
        if stop or due:
            saved = self.save(training.state_dict(), training.steps)
            if stop:
                raise Stopped("everything is saved" if saved else f"the last checkpoint in {self.folder} is kept")

    def _minutes_passed_since(self, then: float) -> bool:
        return self.minutes is not None and time.monotonic() - then >= 60 * self.minutes

    def save(self, state: dict[str, Any], steps: int) -> bool:
        """Write `state` as a checkpoint and remove all but the newest two; return False if it cannot be written.

        Args:
            state: training state, made of plain values and tensors.
            steps: number of steps so far; orders the checkpoints.
        """
        self._saved = time.monotonic()
        if ranks.rank():  # rank 0's checkpoint holds the state of all ranks
            return True
        path = self.folder / f"step-{steps:09d}.pt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_torch_file(path, {"format": FORMAT, "version": VERSION, **state})
        except OSError as error:
            print(f"graphcl: no checkpoint at step {steps}: {error.strerror}: {self.folder}; "
                  f"training continues, earlier checkpoints are kept.", file=sys.stderr)  # fmt: skip
            return False
        # Also remove checkpoints with more steps: they are unreadable, else training would have resumed from them.
        files = self.files()
        for old in {*files} - {*files[files.index(path) :][:KEPT]}:
            old.unlink(missing_ok=True)
        return True

    def files(self) -> list[Path]:
        """Return the paths of the checkpoints in the folder, newest first."""
        files = (file for file in self.folder.glob("step-*.pt") if re.fullmatch(r"step-\d{9,}\.pt", file.name))
        return sorted(files, key=lambda path: int(path.stem.removeprefix("step-")), reverse=True)

    def resume(self, restore: Callable[[dict[str, Any]], None]) -> None:
        """Restore the newest readable checkpoint, if the folder has checkpoints.

        Args:
            restore: called with the checkpoint's state; raises an exception if the state does not fit.

        Raises:
            InputError: checkpoints exist but none can be read, or `restore` raised `OtherTrainingError`.
        """
        if ranks.rank() == 0:
            remove_partial(self.folder)
        files: list[Path] = ranks.broadcast_object(self.files())
        for path in files:
            # rank 0 reads and broadcasts, as other ranks may not see its disk
            state = ranks.broadcast_object(_read(path) if ranks.rank() == 0 else None)
            problem = next(filter(None, ranks.all_gather_object(_problem(restore, state, path))), None)
            if problem is None:
                return
            if ranks.rank() == 0:
                print(f"graphcl: {problem}; trying the checkpoint before it.", file=sys.stderr)
        if files:
            raise InputError(
                f"none of the {len(files)} checkpoints in {self.folder} can be read; delete that folder to start again."
            )

    def keep_last(self) -> None:
        """Remove all checkpoints but the newest, from which training can go on; call this once the model is saved."""
        remove_partial(self.folder)
        for path in self.files()[1:]:
            path.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of the checkpoint `path`.

    Raises:
        InputError: the file is damaged, contains code, or is not a checkpoint of this library.
    """
    content = read_torch_file(path, "a checkpoint holds plain tensors; this is not one of this library's")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a training checkpoint: its `format` is not {FORMAT!r}.")
    if content.get("version") != VERSION:
        raise InputError(f"{path} has version {shown(content.get('version'))}, this library reads {VERSION}.")
    return content


def _read(path: Path) -> dict[str, Any] | InputError:
    """Return the checkpoint's content, or the error if it cannot be read."""
    try:
        return read_checkpoint(path)
    except InputError as error:
        return error


def _problem(restore: Callable[[dict[str, Any]], None], state: dict[str, Any] | InputError, path: Path) -> str | None:
    """Restore `state`, the result of `_read(path)`; return None, or the reason why it cannot be restored."""
    try:
        if isinstance(state, InputError):
            raise state
        restore(state)
    except OtherTrainingError:
        raise
    except Exception as error:  # a damaged file can raise anything; the previous checkpoint may be intact
        return str(error).rstrip(".") if isinstance(error, InputError) else f"{path} is damaged ({reason(error)})"
    return None
