"""Shared patterns against colours, neighbourhoods against PyG's k_hop_subgraph, and the example of functions."""

import ast
import difflib
import re
import runpy
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.utils import k_hop_subgraph

from graphcl.extensions.sparse.encoder import WLSparse
from graphcl.extensions.sparse.explain import (
    ball,
    explain,
    heaviest,
    load_patterns,
    pattern_figure,
    survey,
    weights_figure,
)
from tests.conftest import small_graphs


@pytest.fixture
def batch():
    return Batch.from_data_list(small_graphs(12))


@pytest.fixture
def encoder(batch):
    """Return an encoder with random weights that has seen pairs of graphs of `batch`."""
    found = WLSparse(3, depth=2).fit([batch], torch.arange(12) // 2)
    found.b.data = torch.randn(found.b.shape, generator=torch.Generator().manual_seed(0))
    return found


def test_shares_of_shared_patterns_add_up_to_the_cosine(encoder, batch):
    one, other = batch.get_example(2), batch.get_example(4)
    rows = [encoder.rows(each.x, each.edge_index) for each in (one, other)]
    values = [dict(zip(each.column.tolist(), each.value.tolist(), strict=True)) for each in rows]
    found = explain(encoder, one, other, k=1000)
    assert sum(each.share for each in found) == pytest.approx(1)
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    colours = [encoder.colours(each.x, each.edge_index) for each in (one, other)]
    cosine = sum(value * values[1].get(column, 0) for column, value in values[0].items())
    for pattern in found:
        own = encoder.colours(pattern.x, pattern.edge_index)[pattern.depth, 0]
        assert pattern.nodes == tuple(int((each[pattern.depth] == own).sum()) for each in colours)
        if pattern.nodes[0] == 1:
            part = values[0][int(own)] * values[1][int(own)] / cosine
            assert pattern.share == pytest.approx(part, rel=1e-4)
    deep = explain(encoder, one, other, k=1000, min_depth=1)
    assert [each.share for each in deep] == [each.share for each in found if each.depth]


def test_the_example_of_a_pattern_has_its_colour(encoder, batch):
    """The neighbourhood holds all that a colour sees: alone, its first node has the same colour."""
    colours = encoder.colours(batch.x, batch.edge_index)
    for node, depth in ((0, 0), (3, 1), (17, 2), (40, 2)):
        kept, edges, distance = ball(batch.edge_index, node, depth)
        alone = encoder.colours(batch.x[kept], edges)
        assert alone[depth, 0] == colours[depth, node]
        assert sorted(kept.tolist()) == k_hop_subgraph(node, depth, batch.edge_index)[0].tolist()
        assert int(distance.max()) <= depth


def test_the_heaviest_patterns_are_those_with_the_largest_weights(encoder, batch):
    arrays = survey(encoder, [batch], k=5)
    np.testing.assert_array_equal(np.sort(arrays["frequency"]), encoder.frequency.sort().values)
    top = np.sort(arrays["weight"])[::-1][:5]
    for found in (heaviest(encoder, [batch], k=5), load_patterns(arrays)):
        np.testing.assert_allclose([each.weight for each in found], top, rtol=1e-6)
        for each in found:
            at = encoder.colour == encoder.colours(each.x, each.edge_index)[each.depth, 0]
            assert each.frequency == int(encoder.frequency[at])
    texts = [axis.get_title("center") for axis in pattern_figure(found).axes]
    assert texts[0].startswith(f"weight {top[0]:.2f}\nin {found[0].frequency} groups, depth ")
    figure = weights_figure(arrays["frequency"], arrays["weight"], arrays["depth"])
    assert sum(len(line.get_xdata()) for line in figure.axes[0].lines) == len(arrays["weight"]) + 2


class Edit(ast.NodeTransformer):
    """Replace some comparisons, as in a new release."""

    def visit_Compare(self, node):
        return ast.UnaryOp(ast.Not(), node) if node.lineno % 3 == 0 else node


def test_the_example_finds_a_function_in_a_new_release(tmp_path, monkeypatch, capsys):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        for module in (difflib, textwrap):
            tree = ast.parse(Path(module.__file__).read_text("utf-8"))
            tree = ast.fix_missing_locations(Edit().visit(tree)) if folder == "new" else tree
            (tmp_path / folder / Path(module.__file__).name).write_text(ast.unparse(tree))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["functions.py", "old", "new", "difflib.py:find_longest_match"])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(Path(__file__).parents[3] / "examples" / "functions.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    percent, name = re.fullmatch(r" *([\d.]+) % (\S+)", lines[0]).groups()
    assert name == "difflib.py:find_longest_match"
    assert 60 < float(percent) < 100
    assert (tmp_path / "shared.png").stat().st_size > 10_000
