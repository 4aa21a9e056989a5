"""Log to MLflow, on a server or in a local file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcl.config.nested import flat_values
from graphcl.experiment.record.tracking.tracker import Tracker

_PARAMS = 100  # MLflow rejects requests with more parameters


class MLflow(Tracker):
    """A `Tracker` that logs each seed as an MLflow run named `FOLDER-seed-SEED`.

    The environment variable `MLFLOW_TRACKING_URI` names the server. Without it, the log is
    `FOLDER/mlflow/mlflow.db`, shown by `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow/mlflow.db`.
    `MLFLOW_EXPERIMENT_NAME` names the experiment (default `graphcl`). `MLFLOW_HTTP_REQUEST_MAX_RETRIES` limits how long
    an unreachable server delays training; the delay occurs once, as logging stops after the first failure.
    """

    name = "mlflow"
    module = "mlflow"

    def open(self, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        """Start an MLflow run and log the settings as its parameters, with dotted names such as `loss.temperature`."""
        mlflow = self.library()
        self._entities = mlflow.entities
        uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not uri:
            own = folder.absolute() / "mlflow"
            own.mkdir(parents=True, exist_ok=True)
            uri, artifacts = f"sqlite:///{own / 'mlflow.db'}", (own / "artifacts").as_uri()
        # use a client, as MLflow's global functions would change the caller's active run and tracking URI
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

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Log the metrics of an epoch, with `epoch` as the step."""
        now = int(time.time() * 1000)
        points = [self._entities.Metric(name, value, now, epoch) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=points)

    def close(self, failed: bool = False) -> None:
        """End the MLflow run with the status FAILED or FINISHED."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
