"""`graphcl show --dataset`: output file and printed lines."""

import xml.etree.ElementTree as ElementTree

import pytest

from graphcl.commands.show import main


@pytest.fixture
def go(few, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: (main(["--dataset", few("MUTAG"), *words]), capsys.readouterr())


def test_the_file_and_what_is_printed(go, tmp_path):
    code, (out, err) = go("--graph", "0", "3", "--augmentations", "node_drop", "random4", "--ratio", "0.3")
    assert (code, err) == (0, "")
    *lines, last = out.strip().split("\n")
    views = [f"MUTAG {number}, {name}" for number in (0, 3) for name in ("node_drop", "random4")]
    assert ([line.split(":")[0] for line in lines], last) == (views, "MUTAG-augmentations.svg")
    root = ElementTree.parse(tmp_path / last).getroot()
    drawn = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {*lines[0].split(": ")[1].split("; "), "MUTAG 0", "MUTAG 3", "random4"} <= set(drawn)
    code, (_, err) = go("--augmentations", "node_drop")
    assert (code, "exists already; pass --force to replace it, or" in err) == (2, True)
    assert go("--augmentations", "node_drop", "--force")[0] == 0
    assert "MUTAG 3" not in (tmp_path / last).read_text()


def test_seeds_repetitions_and_members(go, tmp_path):
    words = ["{name: node_drop, ratio: 0.1}", "{name: node_drop, ratio: 0.9}"]
    words.append("{name: compose, members: [node_drop, {name: attribute_mask, ratio: 0.9}]}")
    texts = []
    for number, seed in enumerate("001"):
        code, (out, _) = go("--seed", seed, "--ratio", "0.5", "--augmentations", *words, "--out", f"{number}.svg")
        texts.append((tmp_path / f"{number}.svg").read_text())
    assert texts[0] == texts[1] != texts[2]
    labels, found = zip(*(line.split(", ", 1)[1].rsplit(": ", 1) for line in out.split("\n")[:3]), strict=True)
    assert (code, labels) == (0, ("node_drop", "node_drop (2)", "compose: node_drop, attribute_mask"))
    first, second, both = (int(each.split()[0]) for each in found)
    assert first > second
    assert f"{int(0.9 * both)} nodes masked" in found[2]  # 0.9 of the nodes that node_drop keeps
    assert go("--augmentations", "node_drop", "--out", "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
