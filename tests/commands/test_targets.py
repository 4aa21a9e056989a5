"""Which file or folder a command may write: the table of docs/long_runs.md, tried for every command."""

import re
from pathlib import Path

import pytest
from torch_geometric.data import InMemoryDataset

from graphcl.commands import command as find_command
from graphcl.commands import summaries
from tests.commands.files import save_untrained
from tests.conftest import overriding, small_graphs

SMALL = "--dataset own.pt --epochs 1 --encoder.hidden-channels 4 --seeds 0"
EMBED = "embed e.pt --dataset own.pt --batch-size 8"
WRITES = {
    "run": f"run {SMALL} --eval none --report false --out T",
    "run --resume": f"run {SMALL} --eval none --report false --resume T",
    "sweep": f"sweep {SMALL} --eval knn --evaluation.folds 3 --out T",
    "diagnose": "diagnose --dataset own.pt --eval none --out T",
    "transfer": "transfer e.pt --dataset own.pt --mode probe --eval knn --seeds 0 --out T",
    "pack": "pack --dataset own.pt --out T",
    "embed FILE": f"{EMBED} --out T.npz",
    "embed FOLDER": f"{EMBED} --out T --shards npy --shard-size 8",
    "predict": "predict probed --dataset own.pt --out T.csv",
    "export": "export e.pt --format pt2 --out T.pt2",
    "show": "show T",
}
"""Row of the table -> a command that writes T."""
AGAIN = {
    "run": {"": "T exists already and is never overwritten"},
    "run --resume": {"": None, "--lr 0.5": "`lr` was 0.01 and is 0.5", "--seeds 0-1": None},
    "sweep": {"": None, "--lr 0.5": "`lr` was 0.01 and is 0.5", "--seeds 0-1": None},
    "diagnose": {"": "T exists already and is never overwritten"},
    "transfer": {"": "T exists already and is never overwritten"},
    "pack": {"": "T' exists already and is never overwritten"},
    "embed FILE": {"": "T.npz exists already; pass --force to replace it", "--force": None},
    "predict": {"": "T.csv exists already; pass --force to replace it", "--force": None},
    "embed FOLDER": {"": None, "--shard-size 16": "`shard_size` was 8 and is 16", "--force": None},
}
"""Row -> further options of the same command on its own T -> the line that refuses, or None."""
FINISHED = re.compile(r"/(cells|part-\d+)/")
"""Files that no command writes twice without `--force`."""


def call(words, options=""):
    command, *rest = overriding(words.split(), *options.split())
    return find_command(command).main(rest)


def content():
    files = [each for each in [*Path().glob("T*"), *Path("T").rglob("*")] if each.is_file() and each.name != ".lock"]
    return {str(each): each.read_bytes() for each in files}


def refused(words, capfd, part, options=""):
    """Assert that a command ends with one line that holds `part`, and changes nothing."""
    before = content()
    capfd.readouterr()
    assert call(words, options) == 2, words
    line = capfd.readouterr().err
    assert line.startswith("graphcl: "), line
    assert (line.count("\n"), part in line) == (1, True), line
    assert content() == before, words


@pytest.fixture
def here(tmp_path, monkeypatch, inline):
    """Work in a folder with the graphs `own.pt` and the encoder `e.pt`."""
    monkeypatch.chdir(tmp_path)
    InMemoryDataset.save(small_graphs(), "own.pt")
    save_untrained("e.pt", small_graphs())
    call("transfer e.pt --dataset own.pt --mode probe --eval knn --seeds 0 --out probed")


def test_the_page_and_this_table_name_every_command():
    page = (
        (Path(__file__).parents[2] / "docs" / "long_runs.md").read_text().partition("## Files and folders that exist")
    )
    rows = re.findall(r"^\| `(\w+)", page[2].partition("\n## ")[0], re.MULTILINE)
    assert {*rows} == {*summaries()} == {row.split()[0] for row in WRITES}


@pytest.mark.parametrize("row", WRITES)
def test_files_of_others_are_left_alone(row, here, capfd):
    for name in ("T/part-00000/thesis.txt", "T.npz", "T.pt2", "T.csv"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("mine")
    refused(WRITES[row], capfd, "T")
    if row == "embed FOLDER":
        refused(WRITES[row], capfd, "holds no shards", "--force")


@pytest.mark.parametrize("row", AGAIN)
def test_the_same_command_again(row, here, capfd):
    assert call(WRITES[row]) == 0, capfd.readouterr().err
    for options, line in AGAIN[row].items():
        if line is not None:
            refused(WRITES[row], capfd, line, options)
            continue
        before = content()
        assert call(WRITES[row], options) == 0, capfd.readouterr().err
        after = content()
        assert before.keys() <= after.keys()
        kept = [] if options == "--force" else [name for name in before if FINISHED.search(name)]
        assert [name for name in kept if before[name] != after[name]] == []
        assert after.get("T/metrics.jsonl", b"").startswith(before.get("T/metrics.jsonl", b""))


def test_show_writes_the_report_only(here, monkeypatch):
    assert call(WRITES["run"]) == 0
    before = content()
    monkeypatch.setattr("graphcl.report.run_report.report", lambda run: "drawn")
    for _ in range(2):
        assert call("show T") == 0
        assert content() == {**before, "T/report.html": b"drawn"}


def test_a_run_that_trains_on_keeps_its_former_encoder(here):
    assert call(WRITES["run"]) == 0
    before = content()
    assert call(WRITES["run --resume"], "--epochs 2") == 0
    after = content()
    assert after["T/encoder-1-epochs.pt"] == before["T/encoder.pt"] != after["T/encoder.pt"]
