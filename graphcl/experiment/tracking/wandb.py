"""Weights & Biases: a run for each seed, those of one folder in one group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcl.experiment.tracking.tracker import Tracker


class WandB(Tracker):
    """Keeps a seed as a W&B run `FOLDER-seed-SEED` of the group `FOLDER`; local files lie in `FOLDER/wandb`.

    The library's own environment variables hold: `WANDB_MODE=offline` writes local files only, for `wandb sync`;
    `WANDB_PROJECT` names the project (by default `graphcl`).

    Example::

        with WandB("runs/mine", seed=0) as log:
            train(method, loader, first, second, callbacks=[log])
    """

    name = "wandb"
    module = "wandb"

    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Start the run; the settings are its configuration."""
        folder.mkdir(parents=True, exist_ok=True)
        self._run = self.library().init(
            project=os.environ.get("WANDB_PROJECT", "graphcl"),
            group=folder.name,
            name=f"{folder.name}-seed-{seed}",
            config={**settings, "seed": seed},
            dir=str(folder),
            reinit="create_new",  # a run that the caller has open is left alone
        )

    def log(self, figures: Mapping[str, float], epoch: int) -> None:
        """A point on each curve."""
        self._run.log(dict(figures), step=epoch)

    def summarise(self, scores: Mapping[str, float], epoch: int) -> None:
        """Scores in the run's summary, by which W&B's tables sort and compare."""
        self._run.summary.update(dict(scores))

    def close(self, failed: bool = False) -> None:
        """Finish the run, marked as failed where it has."""
        self._run.finish(exit_code=int(failed))
