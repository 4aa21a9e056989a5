"""`graphcl show --dataset`: output file, printed lines, error messages."""

import xml.etree.ElementTree as ElementTree

import pytest

from graphcl.commands.show import main


@pytest.fixture
def go(few, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def show(*words):
        code = main(["--dataset", few("MUTAG"), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return show


def test_the_file_and_what_is_printed(go, tmp_path):
    code, printed, err = go("--graph", "0", "3", "--augmentations", "node_drop", "random4", "--ratio", "0.3")
    assert (code, err) == (0, "")
    lines = printed.split("\n")
    assert [line.split(":")[0] for line in lines[:4]] == [
        f"MUTAG {number}, {name}" for number in (0, 3) for name in ("node_drop", "random4")
    ]
    assert lines[4] == "MUTAG-augmentations.svg"
    root = ElementTree.parse(tmp_path / "MUTAG-augmentations.svg").getroot()
    drawn = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    size, difference = lines[0].split(": ")[1].split("; ")
    assert {size, difference, "MUTAG 0", "MUTAG 3", "random4"} <= set(drawn)
    again = go("--augmentations", "node_drop")
    assert (again[0], again[1]) == (2, "")
    assert again[2].endswith("exists already; pass --force to replace it, or another file with --out.\n")
    assert go("--augmentations", "node_drop", "--force")[1].count("MUTAG 0") == 1
    assert "MUTAG 3" not in (tmp_path / "MUTAG-augmentations.svg").read_text()


def test_the_seed_repeats_a_picture_and_another_gives_another(go, tmp_path):
    words = ["{name: node_drop, ratio: 0.1}", "{name: node_drop, ratio: 0.9}", "subgraph"]
    texts = []
    for number, seed in enumerate((0, 0, 1)):
        code, printed, _ = go("--seed", str(seed), "--augmentations", *words, "--out", f"{number}.svg")
        texts.append((tmp_path / f"{number}.svg").read_text())
    assert texts[0] == texts[1] != texts[2]
    lines = printed.split("\n")  # an augmentation named twice is drawn twice
    names = ["MUTAG 0, node_drop", "MUTAG 0, node_drop (2)", "MUTAG 0, subgraph"]
    assert (code, [line.split(":")[0] for line in lines[:3]]) == (0, names)
    first, second = (int(line.split(": ")[1].split()[0]) for line in lines[:2])
    assert first > second


def test_png_and_members(go, tmp_path):
    word = "{name: compose, members: [node_drop, {name: attribute_mask, ratio: 0.9}]}"
    code, printed, _ = go("--augmentations", word, "--ratio", "0.5", "--out", "a.png")
    assert code == 0
    assert printed.startswith("MUTAG 0, compose: node_drop, attribute_mask: ")
    nodes = int(printed.split("attribute_mask: ")[1].split()[0])
    assert f"{int(0.9 * nodes)} nodes masked" in printed  # 0.9 of the nodes that node_drop keeps
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
