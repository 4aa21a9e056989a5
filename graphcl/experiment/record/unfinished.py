"""Continue a command in the folder where an earlier process left it unfinished."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from graphcl.config import RUNTIME_SETTINGS
from graphcl.config.nested import differences
from graphcl.errors import InputError
from graphcl.experiment.record.run_folder import new_folder
from graphcl.system.files import claimed, read_json, write_text

MARK = "unfinished"
"""Folder within the folder of a command, until the command is finished; `settings.json` in it holds its settings."""


class Unfinished:
    """The folder of a command, which is new or continues; no other process writes it.

    Attributes:
        path: path of the folder; None before `start` in a new one.
    """

    def __init__(self, out: str | None, name: str, held: ExitStack) -> None:
        self._out, self._name, self._held = out, name, held
        self.path = Path(out) if out is not None and _continues(Path(out)) else None
        if self.path is None:
            new_folder(out, name, create=False)
        else:
            held.enter_context(claimed(self.path))

    def start(self, settings: Mapping[str, Any]) -> Path:
        """Create the folder, or compare the settings of an unfinished command with `settings`, and return its path."""
        if self.path is None:
            self.path = new_folder(self._out, self._name)
            self._held.enter_context(claimed(self.path))
        file = self.path / MARK / "settings.json"
        settings = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        if file.exists() and (changed := differences(read_json(file), settings, RUNTIME_SETTINGS)):
            what = f"{self.path} holds unfinished results of other settings: {'; '.join(changed)}"
            raise InputError(f"{what}. Continue it with its own settings, or pass another folder with --out.")
        file.parent.mkdir(exist_ok=True)
        write_text(file, json.dumps(settings))
        return self.path

    def finish(self) -> None:
        """Mark the command as finished."""
        assert self.path is not None
        shutil.rmtree(self.path / MARK)


@contextmanager
def unfinished(out: str | None, name: str) -> Iterator[Unfinished]:
    """Yield the folder `out`, by default a new `runs/NAME-N`, of a command that can be continued.

    Raises:
        InputError: the folder is in use, or holds something else than an unfinished command.
    """
    with ExitStack() as held:
        place = Unfinished(out, name, held)
        try:
            yield place
        except KeyboardInterrupt as interrupt:
            if place.path is None:
                raise
            line = f"finished results are kept; the same command with --out {place.path} continues"
            raise type(interrupt)(line) from None


def _continues(folder: Path) -> bool:
    """Return whether `folder` is that of an unfinished command, or is empty, as one that was killed at once leaves."""
    names = {file.name for file in folder.iterdir() if not file.name.startswith(".")} if folder.is_dir() else {""}
    return not names or MARK in names
