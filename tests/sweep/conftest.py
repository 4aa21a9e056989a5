from concurrent.futures import ThreadPoolExecutor

import pytest

QUICK = ["--epochs", "1", "--batch-size", "16", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden_channels", "8"]
ROWS = {"majority": -20, "statistics": -2, "untrained": 0, "calibrated": 1}
"""Row without training -> its made-up distance from the untrained encoder, in percentage points."""


@pytest.fixture
def inline(monkeypatch):
    """Run cells in a thread of this process, which is faster than starting a worker process."""
    monkeypatch.setattr("graphcl.sweep.run.make_executor", lambda name, workers: ThreadPoolExecutor(1))


def record(rng, cell, mean, folds=10):
    """Return a made-up record of a finished cell, whose scores have the given mean in expectation."""
    accuracy = rng.normal(mean, 1, folds).tolist()
    scores = {"seed": cell.config.seeds[0], "accuracy": accuracy, "chosen": [1.0] * folds, "folds": folds}
    scores |= {"inner": accuracy, "inner_folds": 5}
    found = {"status": "done", "scores": dict.fromkeys(cell.config.eval, scores), "seconds": {"train": 2.0}}
    rows = {row: {**scores, "accuracy": [x + by for x in accuracy]} for row, by in ROWS.items()}
    references = {} if cell.config.epochs else {"references": dict.fromkeys(cell.config.eval, rows)}
    return {**found, "metrics": {"training_loss": 1.5}, **references}
