"""Write registers of circuits as graphs, synthesised by three flows: python benchmarks/studies/circuits.py FOLDER

`gates.pt` holds the queries, `nand.pt` and `mixed.pt` the targets, `pairs.csv` the pairs: the same register by another
flow. `mixed.pt` holds the third flow in the test part only, so that no training sees it.

A graph is the logic that computes the next value of a register: from its input back to registers, memories and inputs
of the design. A node is a gate or one of these ends, labelled by its kind. Needs `pip install logikbench==1.0.0
pyosys==0.70`; each design is synthesised in a process of its own, as Yosys ends the process on an error.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

import torch
from study import write_pairs
from torch.nn.functional import one_hot
from torch_geometric.data import Data, InMemoryDataset

from graphcl.graphs.wl import first_colours, mix, refine

FLOWS = {
    "gates": "abc -g AND,OR,XOR,MUX",
    "nand": "abc -g NAND -script +strash;dc2;map",
    "mixed": "abc -g NAND,XOR,MUX -script +strash;ifraig;dch;map",
}
"""Flow -> command of Yosys that maps the logic to gates."""
COMMON = (
    "proc", "flatten", "opt -fast -nodffe -nosdff", "memory -nomap", "dffunmap", "opt_clean", "techmap",
    "opt -fast -nodffe -nosdff", "simplemap", "opt_clean",
)  # fmt: skip
"""Commands before the flows; enables and synchronous resets become logic, memories stay."""
ISCAS = (
    "1196 1238 13207 1423 1488 15850 298 344 349 382 38417 38584 386 400 420 444 510 526 5378 641 713 820 832 838 9234 "
    "953"
)
PARTS = {
    "test": {"blocks": "Openpiton Picorv32 Serv Sha256 Viterbi", "large": "Aes", "memory": "Cam Fifoasync Fifosync"},
    "valid": {"blocks": "Chiplink Dma Fpu64 Gearbox66 Lpddr5"},
    "train": {
        "arithmetic": "Counter Div Divs Mac Macc Macs Mod Mulreg Recip Rsqrt Sqrt",
        "blocks": "Axiram Beamformer Codec8b10b Conv2d Ddc Dds Ethmac Fft Hamming Hft Huffman I2c Jesd204b "
        "Median3x3 Sobel3x3 Spi Uart Umidev Umiregs",
        "iscas89": " ".join(f"S{number}" for number in ISCAS.split()),
    },
}
"""Part -> group of LogikBench -> designs; equal graphs stay in the first part."""
KINDS = ("root", "not", "and", "or", "xor", "mux", "nand", "self", "register", "input", "constant", "other")
"""Kinds of nodes: the register, gates, and ends; `self` is the register's own value."""
FEWEST, LARGEST, MOST = 6, 150, 400
"""Fewest and most nodes of a graph, and registers that are read of a design."""


class Netlist:
    """The gates, registers and ends of the largest module in the JSON of Yosys."""

    def __init__(self, file):
        modules = json.loads(file.read_text())["modules"].values()
        module = max(modules, key=lambda each: 0 if "blackbox" in each["attributes"] else len(each["cells"]))
        self.ports, cells = module["ports"], module["cells"]
        self.gates, self.ends, self.registers = {}, {}, {}
        for port in self.ports.values():
            if port["direction"] == "input":
                self.ends.update(dict.fromkeys(port["bits"], "input"))
        for name, cell in cells.items():
            pins = cell["connections"]
            if "Y" in pins and cell["type"].startswith("$_") and len(pins["Y"]) == 1:
                self.gates[pins["Y"][0]] = cell
            elif {"D", "Q"} <= pins.keys() and len(pins["Q"]) == 1:
                self.registers[name] = pins["D"][0], pins["Q"][0]
                self.ends[pins["Q"][0]] = "register"
            else:
                outputs = [pin for pin in pins if cell["port_directions"].get(pin) == "output"]
                self.ends.update((bit, "other") for pin in outputs for bit in pins[pin])

    def inputs(self, bit):
        """Return the bits that the gate of a bit reads."""
        return [each for pin, bits in sorted(self.gates[bit]["connections"].items()) if pin != "Y" for each in bits]

    def cone(self, root, own=None, ends=None):
        """Return kinds and edges of the logic of a bit, and its bits; None if it is too large."""
        kinds, edges, number, waiting = ["root"], [], {}, [(root, 0)]
        while waiting:
            bit, reader = waiting.pop()
            if bit not in number:
                number[bit] = len(kinds)
                kinds.append(self.kind(bit, own, self.ends if ends is None else ends))
                waiting += [(each, number[bit]) for each in (self.inputs(bit) if bit in self.gates else ())]
                if len(kinds) > LARGEST:
                    return None
            edges.append((number[bit], reader))
        return kinds, edges, number

    def kind(self, bit, own, ends):
        """Return the kind of the node of a bit."""
        if bit in self.gates:
            return self.gates[bit]["type"].strip("$_").lower()
        return "constant" if isinstance(bit, str) else "self" if bit == own else ends.get(bit, "other")

    def code(self, bit, known):
        """Return a number that is equal for equal trees of gates above a bit; `known` holds those of other bits."""
        if bit not in known:
            known[bit] = 0  # in a loop
            below = sorted(self.code(each, known) for each in self.inputs(bit)) if bit in self.gates else ()
            known[bit] = hash((self.kind(bit, None, self.ends), *below))
        return known[bit]

    def chosen(self):
        """Return registers of the right size whose logic differs, in random order."""
        names, found, known = sorted(self.registers), {}, {}
        random.Random(0).shuffle(names)
        for name in names:
            cone = self.cone(self.registers[name][0])
            if cone and len(cone[0]) >= FEWEST:
                found.setdefault(self.code(self.registers[name][0], known), name)
        return [*found.values()][:MOST]


def read_command(group, design):
    """Return the command of Yosys that reads a design of LogikBench."""
    from logikbench.benchmarks import arithmetic, blocks, iscas89, large, memory

    modules = {"arithmetic": arithmetic, "blocks": blocks, "iscas89": iscas89, "large": large, "memory": memory}
    found = getattr(modules[group], design)()
    words = ["--ignore-timing --ignore-initial --ignore-assertions --single-unit --top", found.get_topmodule("rtl")]
    words += [
        f"-G {key}={found.get('fileset', 'rtl', 'param', key)}" for key in found.getkeys("fileset", "rtl", "param")
    ]
    for owner, files in found.get_fileset("rtl"):
        words += [f"-I {each}" for each in owner.get_idir(fileset=files)]
        words += [f"-D {each}" for each in owner.get("fileset", files, "define")]
        for kind in ("verilog", "systemverilog"):
            words += [str(each) for each in owner.get_file(fileset=files, filetype=kind)]
    return " ".join(["read_slang", *words])


def synthesise(group, design, file):
    """Write kinds and edges of the registers of a design, by each flow, to a JSON file."""
    from pyosys import libyosys

    def netlist(*commands):
        circuit = libyosys.Design()
        for command in (*commands, f"write_json {file}.netlist"):
            libyosys.run_pass(command, circuit)
        return Netlist(Path(f"{file}.netlist"))

    whole = netlist(read_command(group, design), *COMMON)
    names = whole.chosen()
    bits = [bit for name in names for bit in whole.cone(whole.registers[name][0])[2]]
    ends = {f"i{bit}": bit for bit in bits if bit not in whole.gates and not isinstance(bit, str)}
    ports = {name: {"direction": "input", "bits": [bit]} for name, bit in ends.items()}
    for number, name in enumerate(names):
        ports[f"r{number}"] = {"direction": "output", "bits": [whole.registers[name][0]]}
    cells = {f"c{bit}": whole.gates[bit] for bit in bits if bit in whole.gates}
    top = {"attributes": {"top": 1}, "ports": ports, "cells": cells, "netnames": {}}
    Path(f"{file}.json").write_text(json.dumps({"modules": {"top": top}}))
    found = {name: [] for name in names}
    for command in FLOWS.values() if names else ():
        flow = netlist(f"read_json {file}.json", command, "opt_clean")
        bit = {name: port["bits"][0] for name, port in flow.ports.items()}
        kinds = {bit[name]: whole.ends.get(each, "other") for name, each in ends.items()}
        for number, name in enumerate(names):
            own = bit.get(f"i{whole.registers[name][1]}")
            cone = flow.cone(bit[f"r{number}"], own, kinds)
            found[name].append(cone and cone[:2])
    for scratch in (Path(f"{file}.json"), Path(f"{file}.netlist")):
        scratch.unlink()
    file.write_text(json.dumps(found))


def graph(kinds, edges):
    """Return a graph with one-hot kinds; each edge in both directions, which `edge_attr` tells apart."""
    x = one_hot(torch.tensor([KINDS.index(kind) for kind in kinds]), len(KINDS)).to(torch.uint8)
    edges = torch.tensor(edges).T
    direction = one_hot(torch.arange(2).repeat_interleave(edges.size(1)), 2).float()
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), edge_attr=direction)


def fingerprint(kinds, edges):
    """Return a number that is equal for isomorphic graphs, by the colours of their nodes."""
    labels = one_hot(torch.tensor([KINDS.index(kind) for kind in kinds]), len(KINDS))
    return int(mix(refine(first_colours(labels), torch.tensor(edges).T, 10, both=True)[-1]).sum())


def registers(cache):
    """Yield id, design, part and the graph by each flow of all registers, without those that occurred before."""
    seen = [set() for _ in FLOWS]
    for part, groups in PARTS.items():
        for group, design in ((group, each) for group, names in groups.items() for each in names.split()):
            file = cache / f"{group}.{design}.json"
            if not file.exists():
                print(f"{group}.{design} ...", flush=True)
                command = [sys.executable, __file__, cache, "--design", group, design]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for name, cones in sorted(json.loads(file.read_text()).items()):
                if all(cone and len(cone[0]) >= FEWEST for cone in cones):
                    prints = [fingerprint(*cone) for cone in cones]
                    if all(each not in known for each, known in zip(prints, seen, strict=True)):
                        yield f"{group}.{design}/{name}", f"{group}.{design}", part, [graph(*cone) for cone in cones]
                    for each, known in zip(prints, seen, strict=True):
                        known.add(each)


def main():
    """Write the data sets and the table of pairs into a folder, or synthesise one design."""
    parser = argparse.ArgumentParser(prog="python benchmarks/studies/circuits.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/graphcl/circuits")
    parser.add_argument("--design", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.design:
        group, design = given.design
        synthesise(group, design, given.folder / f"{group}.{design}.json")
        return
    for folder in (given.folder, given.cache):
        folder.mkdir(parents=True, exist_ok=True)
    rows = [*registers(given.cache)]
    for number, flow in enumerate(FLOWS):
        found = []
        for name, design, part, graphs in rows:
            each = graphs[1 if flow == "mixed" and part != "test" else number].clone()
            each.id, each.project, each.part = name, design, part
            found.append(each)
        InMemoryDataset.save(found, given.folder / f"{flow}.pt")
    ids = [name for name, *_ in rows]
    write_pairs(given.folder / "pairs.csv", zip(ids, ids, strict=True))


if __name__ == "__main__":
    main()
