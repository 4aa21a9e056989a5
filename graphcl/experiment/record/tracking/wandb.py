"""Log to Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcl.experiment.record.tracking.tracker import Tracker


class WandB(Tracker):
    """A `Tracker` that logs each seed as the W&B run `FOLDER-seed-SEED` in the group `FOLDER`.

    Local files are written to `FOLDER/wandb`. W&B's environment variables apply. With `WANDB_MODE=offline`, W&B writes
    local files only, and `wandb sync` uploads them later. `WANDB_PROJECT` names the project (default `graphcl`).
    """

    name = "wandb"
    module = "wandb"

    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Start a W&B run with the settings as its configuration."""
        folder.mkdir(parents=True, exist_ok=True)
        self._run = self.library().init(
            project=os.environ.get("WANDB_PROJECT", "graphcl"),
            group=folder.name,
            name=f"{folder.name}-seed-{seed}",
            config={**settings, "seed": seed},
            dir=str(folder),
            reinit="create_new",  # else W&B would reuse or finish the caller's run
        )

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Log the metrics of an epoch, with `epoch` as the step."""
        self._run.log(dict(metrics), step=epoch)

    def summarise(self, scores: Mapping[str, float], epoch: int) -> None:
        """Write the scores into the W&B run's summary, so that W&B's tables can be sorted by them."""
        self._run.summary.update(dict(scores))

    def close(self, failed: bool = False) -> None:
        """End the W&B run, with exit code 1 if it failed, else 0."""
        self._run.finish(exit_code=int(failed))
