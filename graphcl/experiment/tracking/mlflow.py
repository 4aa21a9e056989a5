"""MLflow: a run for each seed, on a server or in a file beside the run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcl.config.settings import flat_values
from graphcl.experiment.tracking.tracker import Tracker

_PARAMS = 100  # as many as MLflow takes in one request


class MLflow(Tracker):
    """Keeps a seed as an MLflow run `FOLDER-seed-SEED`, on the server `MLFLOW_TRACKING_URI` or in a file.

    Without that variable the file is `FOLDER/mlflow/mlflow.db`; `mlflow ui --backend-store-uri
    sqlite:///FOLDER/mlflow/mlflow.db` shows it. `MLFLOW_EXPERIMENT_NAME` names the experiment (by default `graphcl`).
    A server that is gone is waited for as long as `MLFLOW_HTTP_REQUEST_MAX_RETRIES` says, once.

    Example::

        with MLflow("runs/mine", seed=0) as log:
            train(method, loader, first, second, callbacks=[log])
    """

    name = "mlflow"
    module = "mlflow"

    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Start the run; the settings are its parameters, by dotted names such as `loss.temperature`."""
        mlflow = self.library()
        self._entities = mlflow.entities
        uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not uri:
            own = folder.absolute() / "mlflow"
            own.mkdir(parents=True, exist_ok=True)
            uri, artifacts = f"sqlite:///{own / 'mlflow.db'}", (own / "artifacts").as_uri()
        # A client of our own, so that the caller's active run and address stay as they are.
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "graphcl")
        found = self._client.get_experiment_by_name(title)
        experiment = found.experiment_id if found else self._client.create_experiment(title, artifacts)
        run = self._client.create_run(experiment, run_name=f"{folder.name}-seed-{seed}", tags={"seed": str(seed)})
        self._run = run.info.run_id
        values = {**dict(flat_values(settings)), "seed": seed}
        params = [self._entities.Param(key, str(value)) for key, value in values.items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(self._run, params=params[start : start + _PARAMS])

    def log(self, figures: Mapping[str, float], epoch: int) -> None:
        """A point on each curve."""
        now = int(time.time() * 1000)
        points = [self._entities.Metric(name, value, now, epoch) for name, value in figures.items()]
        self._client.log_batch(self._run, metrics=points)

    def summarise(self, scores: Mapping[str, float], epoch: int) -> None:
        """A metric for each score."""
        self.log(scores, epoch)

    def close(self, failed: bool = False) -> None:
        """Finish the run, marked as failed where it has."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
