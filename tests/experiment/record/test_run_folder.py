"""The run folder: log of epochs, names of new folders, lock."""

import json
from pathlib import Path

import pytest

from graphcl.config import make_config
from graphcl.errors import InputError
from graphcl.experiment.record.run_folder import RunFolder, new_folder
from graphcl.training.epoch import Epoch


@pytest.fixture
def again(tmp_path):
    """Return a function that opens or resumes a run in the same folder."""
    return lambda **settings: RunFolder(make_config({"out": str(tmp_path / "run"), "resume": True, **settings}))


def test_repeated_epochs_stay_and_other_ones_replace_a_lost_attempt(again):
    def epochs(*losses, seed=7, seconds=2.0):
        with again() as folder:
            for number, loss in losses:
                folder.epochs.add(seed, Epoch(number, loss, 0.25, -1.0, seconds, 1.0))
        rows = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
        return [(row["seed"], row["epoch"], row["loss"], row["seconds"]) for row in rows]

    epochs((1, 0.25), seed=3)
    first = epochs((1, 0.5), (2, 0.25), (3, 0.125))
    assert epochs((2, 0.25), seconds=5.0) == first
    assert epochs((2, 0.75), seconds=5.0) == [(3, 1, 0.25, 2.0), (7, 1, 0.5, 2.0), (7, 2, 0.75, 5.0)]


def test_runs_that_start_together_get_different_folders(tmp_path, monkeypatch):
    honest, others = Path.mkdir, [1, 2, 3]

    def mkdir(self, *arguments, **options):
        if self.parent.name == "runs" and others:
            others.pop()
            honest(self)
        honest(self, *arguments, **options)

    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert new_folder(None, "a") == Path("runs/a-4")


def test_a_refused_folder_is_unlocked(again):
    """A notebook keeps the exception and the objects in its traceback; a second attempt must still work."""
    again().__exit__()
    with pytest.raises(InputError, match=r"`lr` was 0\.01") as kept:
        again(lr=0.5)
    with again():
        assert kept.value.__traceback__ is not None
