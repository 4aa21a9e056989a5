"""Cut the logic of registers out of a small netlist, and compare graphs."""

import json
import sys
from pathlib import Path

import pytest
import torch


@pytest.fixture
def circuits(monkeypatch):
    """Return the module `circuits`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "studies"))
    import circuits

    yield circuits
    del sys.modules["circuits"]


def cell(kind, **pins):
    ends = {pin: "output" if pin in "YQ" else "input" for pin in pins}
    return {"type": kind, "connections": {pin: [bit] for pin, bit in pins.items()}, "port_directions": ends}


@pytest.fixture
def netlist(circuits, tmp_path):
    """Return a netlist: register r reads (input 2 and r) xor (input 2 and 2), register s reads r and a memory."""
    cells = {
        "a": cell("$_AND_", A=2, B=10, Y=20), "b": cell("$_AND_", A=2, B=2, Y=21),
        "c": cell("$_XOR_", A=20, B=21, Y=22),
        "d": cell("$_NAND_", A=10, B=30, Y=23), "r": cell("$_DFF_P_", D=22, C=3, Q=10),
        "s": cell("$_DFF_P_", D=23, C=3, Q=11), "m": cell("$mem_v2", Y=30),
    }  # fmt: skip
    ports = {"in": {"direction": "input", "bits": [2]}, "clk": {"direction": "input", "bits": [3]}}
    top = {"attributes": {}, "ports": ports, "cells": cells}
    (tmp_path / "n").write_text(
        json.dumps({"modules": {"box": {"attributes": {"blackbox": 1}, "cells": {}}, "t": top}})
    )
    return circuits.Netlist(tmp_path / "n")


def test_a_cone_reaches_back_to_registers_memories_and_inputs(netlist):
    kinds, edges, bits = netlist.cone(22, own=10)
    assert sorted(kinds) == ["and", "and", "input", "root", "self", "xor"]
    named = sorted((kinds[one], kinds[two]) for one, two in edges)
    assert named == [("and", "xor"), ("and", "xor"), *[("input", "and")] * 3, ("self", "and"), ("xor", "root")]
    assert bits.keys() == {22, 20, 21, 2, 10}
    assert sorted(netlist.cone(23)[0]) == ["nand", "other", "register", "root"]


def test_small_and_repeated_logic_is_not_chosen(circuits, netlist):
    assert netlist.chosen() == ["r"]  # the logic of s has four nodes
    netlist.registers["copy"] = netlist.registers["r"]
    assert len(netlist.chosen()) == 1


def test_equal_fingerprints_are_those_of_isomorphic_graphs(circuits):
    kinds, edges = ["root", "and", "input", "register"], [(1, 0), (2, 1), (3, 1)]
    other = ["root", "register", "and", "input"], [(2, 0), (1, 2), (3, 2)]
    assert circuits.fingerprint(kinds, edges) == circuits.fingerprint(*other)
    assert circuits.fingerprint(kinds, edges) != circuits.fingerprint(kinds, [(1, 0), (2, 1), (1, 3)])
    graph = circuits.graph(kinds, edges)
    assert graph.edge_index.tolist() == [[1, 2, 3, 0, 1, 1], [0, 1, 1, 1, 2, 3]]
    assert torch.equal(graph.edge_attr.argmax(1), torch.tensor([0, 0, 0, 1, 1, 1]))
