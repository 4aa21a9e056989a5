"""Test tables of pairs: each reader, each column, and each fault, which is one line with its place."""

import numpy as np
import pandas as pd
import pytest

from graphcl import errors, load_dataset
from graphcl.datasets.pair_file import make_relation, with_pairs
from graphcl.errors import InputWarning
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line


@pytest.fixture(scope="module")
def graphs():
    found = small_graphs(8)
    for graph, key in zip(found, ["a", "b", "c", "d", "e", "f", "g", "g"], strict=True):
        graph.id = key
    return load_dataset(found)


def read(graphs, folder, text, name="pairs.csv", targets=None):
    (folder / name).write_text(text)
    errors._SHOWN.clear()
    return with_pairs(graphs, folder / name, targets).relation


def listed(relation):
    """Return the pairs, the weights, and the query and the target of each known negative, all by name."""
    names = "abcdefgh"
    pairs = ["".join(names[node] for node in pair) for pair in relation.nodes.T.tolist()]
    negatives = [] if relation.negatives is None else relation.negatives.T.tolist()
    known = sorted(names[relation.query[pair]] + names[target] for pair, target in negatives)
    return pairs, None if relation.weight is None else relation.weight.tolist(), known


SAME = [
    ("pairs.csv", "query,target,negative,weight\na,b,e,1\n\nc,d,,2.5\n"),
    ("pairs.CSV", "weight;negative;target;query\n1;e;b;a\n2.5;;d;c\n"),
    ("pairs.txt", '\ufeffquery, target, negative, weight\r\na, b, e, 1\r\n"c", d, , 2.5\r\n'),
    ("pairs.tsv", "query\ttarget\tnegative\tweight\na\tb\te\t1\nc\td\t\t2.5\n"),
    ("pairs.jsonl", '{"query": "a", "target": "b", "negative": "e"}\n\n{"query": "c", "target": "d", "weight": 2.5}\n'),
    ("pairs.json", '[{"query":"a","target":"b","negative":"e","weight":1},{"query":"c","target":"d","weight":2.5}]'),
    ("pairs.csv", "query,target,label,weight\na,b,1,\na,e,0,\nc,d,1,2.5\n"),
    ("pairs.jsonl", '{"query":"a","target":"b","label":1}\n{"query":"a","target":"e","label":0}\n'
                    '{"query":"c","target":"d","weight":2.5,"label":true}'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), SAME)
def test_every_reader_gives_the_same_pairs(name, text, graphs, tmp_path):
    assert listed(read(graphs, tmp_path, text, name)) == (["ab", "cd"], [1, 2.5], ["ae"])


def test_frames_are_read_from_memory_and_files(graphs, tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"query": ["a", "c"], "target": ["b", "d"], "negative": ["e", None], "weight": [None, 2.5]})
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_excel(tmp_path / "p.xlsx", index=False)
    for source in (frame, tmp_path / "p.parquet", tmp_path / "p.xlsx"):
        assert listed(with_pairs(graphs, source).relation) == (["ab", "cd"], [1, 2.5], ["ae"])
    numbered = load_dataset(small_graphs(6))
    gaps = pd.DataFrame({"query": [0, 2], "target": [1, 3], "negative": [4.0, None]})
    gaps.to_parquet(tmp_path / "p.parquet")
    for source in (gaps, tmp_path / "p.parquet"):
        assert listed(with_pairs(numbered, source).relation) == (["ab", "cd"], None, ["ae"])


def test_the_zeros_of_a_label_are_known_negatives_of_all_pairs_of_their_query(graphs, tmp_path):
    text = "query,target,label\na,b,1\na,c,1\na,e,0\nd,e,1\nd,a,0.0\nf,a,0\n"
    with pytest.warns(InputWarning, match="1 rows with label 0 are left out, as their query has no row with label 1"):
        relation = read(graphs, tmp_path, text)
    assert listed(relation) == (["ab", "ac", "de"], None, ["ae", "ae", "da"])
    assert sorted(relation.negatives.T.tolist()) == [[0, 4], [1, 4], [2, 0]]
    found = read(graphs, tmp_path, "query,target,label,weight\na,b,1,2\na,c,0,9\nd,e,1,3\n")
    assert listed(found) == (["ab", "de"], [2, 3], ["ac"])


def test_empty_weights_are_ones_or_none_at_all(graphs, tmp_path):
    assert listed(read(graphs, tmp_path, "query,target,weight\na,b,\nc,d,3\n")) == (["ab", "cd"], [1, 3], [])
    assert listed(read(graphs, tmp_path, "query,target,weight\na,b,\nc,d,\n")) == (["ab", "cd"], None, [])


TWO = "query,target,{0}\na,b,{1}\nc,d,{2}\n".format
UNKNOWN = [
    *((name, f"did you mean {meant}? ") for name, meant in (
        ("neg", "negative"), ("hard_negative", "negative"), ("negatives", "negative"), ("Weight", "weight"),
        ("weights", "weight"), ("Label", "label"), ("labels", "label"),
    )),
    ("score", "the columns of pairs are query, target, weight, label, negative, negative_2, ..."),
    ("similarity", "the columns of pairs are"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "advice"), UNKNOWN)
def test_an_unknown_column_is_refused_by_name(name, advice, graphs, tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text(TWO(name, 1, 0))
    one_line(lambda: with_pairs(graphs, file), f"{file} has the unknown column {name!r}; ", advice)
    one_line(lambda: with_pairs(graphs, {"query": ["a"], "target": ["b"], name: [1]}), f"the unknown column {name!r}")


FAULTS = [
    (TWO("weight", 1, "abc"), "the weight of line 3 must be a positive number or empty, got 'abc'."),
    (TWO("weight", 0, 1), "the weight of line 2 must be"),
    (TWO("weight", 1, "1e300"), "the weight of line 3 must be"),
    (TWO("weight", "inf", 1), "the weight of line 2 must be"),
    ("query,target\na,b\n\nc,z\n", "no graph has the id 'z' of `target` in line 4."),
    ("query,target\na,b\ng,c\n", "several graphs have the id 'g' of `query` in line 3."),
    ("query,target\na,b\nc,c\n", "line 3 is graph 'c' with itself"),
    (TWO("negative", "a", "e"), "a negative of line 2 is its query itself; remove one of the two."),
    (TWO("negative_2", "e", "d"), "a negative of line 3 is a positive of its query; remove one of the two."),
    (TWO("negative", "e", "z"), "no graph has the id 'z' of `negative` in line 3."),
    (TWO("label", 1, 0.7), "the `label` of line 3 must be 1, for a pair, or 0, for a known negative, got '0.7'."),
    (TWO("label", 1, ""), "the `label` of line 3 must be 1"),
    (TWO("label", 1, 0), "has 1 pairs; contrasting needs at least two."),
    ("query,target,label\na,b,1\nc,d,1\na,b,0\n", "a negative of line 4 is a positive of its query"),
    ("query,target,label\na,b,1\nc,d,1\na,a,0\n", "line 4 is graph 'a' with itself"),
    ("query,target,label,negative\na,b,1,e\nc,d,1,\n", "has the columns 'label' and 'negative'; write known neg"),
    ("query,target\na\n", "line 2 has another number of cells than the header"),
    ("query,target\na,b,c\n", "line 2 has another number of cells than the header"),
    ("query,target,target\na,b,c\n", "has 2 columns 'target'; keep one of them."),
    ("target\na\nb\n", "has no column 'query'; its columns are target."),
    ("", "lists no pair; write a header `query,target`"),
]
OBJECTS = [
    ('{"query": "a", "target": "b"}\n{"query": "c", "target": "z"}', "the id 'z' of `target` in line 2."),
    ('{"query": "a", "target": "b"}\n["c", "d"]', """line 2 must be like {"query": "a", "target": "b","""),
    ('{"query": "a", "target": "b", "negative": ["c", "d"]}', """line 1 must be like"""),
    ('{"query": "a", "target": "b"', "line 1 is not JSON"),
    ("", "lists no pair"),
]


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [(*fault, "pairs.csv") for fault in FAULTS] + [(*fault, "pairs.jsonl") for fault in OBJECTS],
)
def test_a_fault_is_one_line_with_its_place(text, line, name, graphs, tmp_path):
    one_line(lambda: read(graphs, tmp_path, text, name), str(tmp_path / name), line)


def test_pairs_in_memory_are_counted_from_0(graphs):
    for pairs, line in (
        ([("a", "b"), ("c", "z")], "`pairs`: no graph has the id 'z' of `target` in pair 1."),
        ([("a", "b", "a"), ("c", "d")], "`pairs`: a negative of pair 0 is its query itself"),
        (np.array([list("abc"), list("cde")]), "`pairs` of shape [2, 3] has two rows; give a row for each pair"),
    ):
        one_line(lambda pairs=pairs: with_pairs(graphs, pairs), line)


def test_a_negative_of_another_data_set_may_have_the_id_of_the_query(graphs, tmp_path):
    others = load_dataset(small_graphs(4))
    relation = read(graphs, tmp_path, "query,target,negative\na,1,0\nb,2,3\n", targets=others)
    assert relation.negatives.tolist() == [[0, 1], [0, 3]]


def test_a_table_of_pairs_names_the_ids_of_a_table_of_molecules(tmp_path):
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    (tmp_path / "m.csv").write_text("id,smiles\n2,CCO\n3,CCN\n7,CCC\n0,CC\n")
    molecules = load_dataset(tmp_path / "m.csv")
    assert listed(read(molecules, tmp_path, "query,target\n2,3\n7,0\n")) == (["ab", "cd"], None, [])
    row = "query,target\n2,3\n7,1\n"  # 1 is the number of a row
    one_line(lambda: read(molecules, tmp_path, row), "no graph has the id '1' of `target` in line 3")


@pytest.mark.parametrize("column", [{"label": [1, "1", True]}, {"negative": [None, "", None]}])
def test_a_column_that_names_no_negative_changes_nothing(column):
    pairs = {"query": [0, 1, 2], "target": [3, 4, 5], **column}
    assert make_relation(pairs, range(6)).negatives is None
