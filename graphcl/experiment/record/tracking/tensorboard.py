"""Log to TensorBoard event files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from graphcl.experiment.record.tracking.tracker import Tracker


class TensorBoard(Tracker):
    """A `Tracker` that writes `FOLDER/tensorboard/seed-SEED`; `tensorboard --logdir FOLDER` shows all seeds."""

    name = "tensorboard"
    module = "torch.utils.tensorboard"

    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Open the event file and log the settings as text."""
        self._writer = self.library().SummaryWriter(str(folder / "tensorboard" / f"seed-{seed}"))
        if settings:
            text = yaml.safe_dump(dict(settings), sort_keys=False)
            self._writer.add_text("settings", f"```yaml\n{text}```")

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Log the metrics of an epoch, with `epoch` as the step, and flush the file."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self, failed: bool = False) -> None:
        """Close the event file; `failed` is ignored, as the format cannot store it."""
        self._writer.close()
