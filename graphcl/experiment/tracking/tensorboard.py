"""TensorBoard: curves and scores of a seed as event files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from graphcl.experiment.tracking.tracker import Tracker


class TensorBoard(Tracker):
    """Writes event files to `FOLDER/tensorboard/seed-SEED`; `tensorboard --logdir FOLDER` shows all seeds together.

    Example::

        with TensorBoard("runs/mine", seed=0) as board:
            train(method, loader, first, second, callbacks=[board])
    """

    name = "tensorboard"
    module = "torch.utils.tensorboard"

    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Open the event file; the settings are shown as text."""
        self._writer = self.library().SummaryWriter(str(folder / "tensorboard" / f"seed-{seed}"))
        if settings:
            text = yaml.safe_dump(dict(settings), sort_keys=False)
            self._writer.add_text("settings", f"```yaml\n{text}```")

    def log(self, figures: Mapping[str, float], epoch: int) -> None:
        """A point on each curve."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def summarise(self, scores: Mapping[str, float], epoch: int) -> None:
        """A curve of one point for each score."""
        self.log(scores, epoch)

    def close(self, failed: bool = False) -> None:
        """Close the files; they do not tell why a run ended."""
        self._writer.close()
