"""The run folder: log of epochs, names of new folders, lock."""

import json
from pathlib import Path

import pytest

from graphcl.config import make_config
from graphcl.errors import InputError
from graphcl.experiment.record.run_folder import RunFolder, new_folder
from graphcl.training.epoch import Epoch


def test_the_table_has_the_columns_of_the_first_epoch(tmp_path):
    folder = RunFolder(make_config({"out": str(tmp_path / "run")}))
    for number, more in enumerate(({"rank": 3.0, "p_identity": 0.5}, {"p_identity": 0.25, "new": 1.0}), start=1):
        folder.epochs.add(7, Epoch(number, 0.5, 0.25, -1.0, 2.0, 1.0, more))
    assert (folder.path / "metrics.csv").read_bytes().decode().splitlines() == [
        "seed,epoch,loss,alignment,uniformity,seconds,data_seconds,rank,p_identity",
        "7,1,0.5,0.25,-1.0,2.0,1.0,3.0,0.5",
        "7,2,0.5,0.25,-1.0,2.0,1.0,,0.25",
    ]
    assert "new" in (folder.path / "metrics.jsonl").read_text()


def test_repeated_epochs_stay_and_other_ones_replace_a_lost_attempt(tmp_path):
    out = str(tmp_path / "run")

    def epochs(*losses, seed=7, seconds=2.0):
        with RunFolder(make_config({"out": out, "resume": True})) as folder:
            for number, loss in losses:
                folder.epochs.add(seed, Epoch(number, loss, 0.25, -1.0, seconds, 1.0))
        rows = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
        table = (folder.path / "metrics.csv").read_text().splitlines()[1:]
        assert [tuple(map(float, line.split(",")[:3])) for line in table] == [
            (row["seed"], row["epoch"], row["loss"]) for row in rows
        ]
        return [(row["seed"], row["epoch"], row["loss"], row["seconds"]) for row in rows]

    epochs((1, 0.25), seed=3)
    first = epochs((1, 0.5), (2, 0.25), (3, 0.125))
    assert epochs((2, 0.25), seconds=5.0) == first
    assert epochs((2, 0.75), seconds=5.0) == [(3, 1, 0.25, 2.0), (7, 1, 0.5, 2.0), (7, 2, 0.75, 5.0)]
    assert epochs((1, 1.0)) == [(3, 1, 0.25, 2.0), (7, 1, 1.0, 2.0)]


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


def test_a_refused_folder_is_unlocked(tmp_path):
    """A notebook keeps the exception and the objects in its traceback; a second attempt must still work."""
    out = str(tmp_path / "run")
    with RunFolder(make_config({"out": out})):
        pass
    with pytest.raises(InputError, match=r"`lr` was 0\.01") as kept:
        RunFolder(make_config({"out": out, "resume": True, "lr": 0.5}))
    with RunFolder(make_config({"out": out, "resume": True})):
        assert kept.value.__traceback__ is not None


def test_a_broken_link_is_not_a_free_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, out, says in (
        ("link", "link", "link exists already"),
        ("runs", None, "cannot create the folder runs/a-1"),
    ):
        Path(name).symlink_to("nowhere")
        with pytest.raises(InputError, match=f"^{says}"):
            new_folder(out, "a")
