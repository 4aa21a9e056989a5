"""Write functions compiled for two architectures as graphs: python benchmarks/studies/binary_graphs.py FOLDER

`x86-64.pt` and `aarch64.pt` hold control-flow graphs of functions in wheels of PyPI, `binaries.csv` their pairs by
symbol. Needs capstone and pyelftools.

A node is a basic block: the instructions from one jump target, or from behind a jump, to the next. Edges are jumps to a
fixed address in the function, and falls through. Jumps through a table have no edges.
"""

import re
import subprocess
import sys
import zipfile
from collections import Counter
from io import BytesIO

import capstone
import numpy as np
import torch
from elftools.elf.elffile import ELFFile
from study import folders, write_pairs
from torch_geometric.data import Data, InMemoryDataset

PROJECTS = {
    "train": {
        "scipy": "1.17.1",
        "numpy": "2.4.6",
        "cryptography": "50.0.2",
        "scikit-learn": "1.9.1",
        "fonttools": "4.68.0",
    },
    "validation": {"matplotlib": "3.11.2", "contourpy": "1.3.3"},
    "test": {
        "pillow": "13.0.0",
        "cffi": "2.1.1",
        "zstandard": "0.25.0",
        "pyyaml": "6.0.3",
        "regex": "2026.11.15",
        "aiohttp": "3.14.5",
        "xxhash": "4.1.0",
    },
}
"""Part -> project -> version."""
MOST, WORDS = 10_000, 200
"""Symbols read of a project, drawn at random, and mnemonics of an architecture that have a column."""
MACHINES = {
    "x86-64": ("x86_64", capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    "aarch64": ("aarch64", capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
}
"""Architecture -> its name in wheels, and capstone's."""
TAGS = ("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_26", "manylinux_2_27", "manylinux_2_28")
FEWEST, LONGEST = 5, 200
"""Basic blocks that a function needs in both architectures, and may have at most."""
KINDS = {
    "call": None,  # this and the next two: capstone's groups
    "jump": None,
    "return": None,
    "memory": r"(?!lea|nop).*\[",
    "constant": r"[^\[]*(, -?\d|#)",
    "float": r".*\b([xyz]mm|[vdsqbh])\d",
    "compare": r"cmp|test|tst|cmn|f?ccm|fcmp|v?u?comis|v?pcmp|cbn?z|tbn?z",
    "add": r"v?p?f?(add|sub|neg|inc|dec|adc|sb[bc]|lea|adr)",
    "multiply": r"v?p?[fsui]*n?(mul|div|madd|msub|mla|mls|sqrt)",
    "logic": r"v?p?(and|or|xor|eor|not|mvn|bic|test|tst)",
    "shift": r"v?p?s[hal][lr]|ls[lr]|asr|ro[lr]|[us]bf|[us]xt|bfi|bfx|extr|mov[sz]x|movsxd|cdqe",
    "move": r"v?mov|fmov|stp|ldp|ldr|str|ldur|stur|push|pop",
    "select": r"cmov|set|cs|cinc|cinv|cneg|fcsel",
}
"""Kind of instruction, of either architecture -> pattern of mnemonic and operands."""
PATTERNS = [(bit, re.compile(pattern)) for bit, pattern in enumerate(KINDS.values()) if pattern]
GROUPS = [(capstone.CS_GRP_CALL, 1), (capstone.CS_GRP_JUMP, 2), (capstone.CS_GRP_RET, 4)]
ALWAYS = ("jmp", "b", "br", "ud2", "hlt", "brk", "udf")
"""Mnemonics, apart from returns, that do not fall through."""


class Disassembler:
    """Disassembles functions of one architecture; `words` maps mnemonics to numbers."""

    def __init__(self, machine, words):
        _, *arguments = MACHINES[machine]
        self.fast, self.full, self.words = capstone.Cs(*arguments), capstone.Cs(*arguments), words
        self.full.detail = True
        self.flow, self.known = {}, {}

    def describe(self, code, mnemonic, operands):
        """Return the number of the mnemonic, the kinds as bits, and whether the instruction jumps and falls through."""
        if mnemonic not in self.flow:
            one = next(self.full.disasm(code, 0))
            bits = next((bit for group, bit in GROUPS if one.group(group)), 0)
            self.flow[mnemonic] = (self.words.setdefault(mnemonic, len(self.words)), bits)
        word, bits = self.flow[mnemonic]
        text = f"{mnemonic} {operands}"
        kinds = bits | sum(1 << bit for bit, pattern in PATTERNS if pattern.match(text))
        return word, kinds, bits == 2, bits != 4 and mnemonic.split()[-1] not in ALWAYS

    def graph(self, code, address):
        """Return words `[i]`, kinds `[i]` and block `[i]` of the instructions, and edges `[2, E]` between blocks."""
        found, at = [], {}
        starts, jumps = {address}, []
        for here, size, mnemonic, operands in self.fast.disasm_lite(code, address):
            key = mnemonic, operands if "0x" not in operands or "[" in operands else "0x0"
            if (known := self.known.get(key)) is None:
                part = code[here - address : here - address + size]
                known = self.known[key] = self.describe(part, mnemonic, operands)
            at[here] = len(found)
            found.append(known)
            _, _, jump, through = known
            if jump and (target := re.search(r"0x([0-9a-f]+)$", operands)) and "[" not in operands:
                jumps.append((here, int(target[1], 16)))
            if jump or not through:
                starts.add(here + size)
        jumps = [(here, target) for here, target in jumps if target in at]
        starts = sorted(at[each] for each in starts.union(target for _, target in jumps) if each in at)
        block = np.repeat(np.arange(len(starts)), np.diff([*starts, len(found)]))
        through = [(i, i + 1) for i, end in enumerate(starts[1:]) if found[end - 1][3]]
        edges = {(block[at[here]], block[at[target]]) for here, target in jumps} | set(through)
        words, kinds = np.array([each[:2] for each in found]).T
        return (
            words.astype(np.int16),
            kinds.astype(np.int16),
            block.astype(np.int16),
            np.array(sorted(edges), np.int16).reshape(-1, 2).T,
        )


def fetch(project, version, machine, cache):
    """Return the wheel of a project for CPython 3.11; fetch it if it is not in the folder `cache`."""
    folder = cache / "wheels" / f"{project}-{version}-{machine}"
    if not list(folder.glob("*.whl")):
        platforms = [word for tag in TAGS for word in ("--platform", f"{tag}_{MACHINES[machine][0]}")]
        command = [sys.executable, "-m", "pip", "download", "-q", f"{project}=={version}", "--only-binary=:all:"]
        subprocess.run([*command, "--no-deps", "--python-version", "3.11", *platforms, "-d", folder], check=True)
    return next(folder.glob("*.whl"))


def symbols(wheel):
    """Return the functions of a wheel whose symbol names one function: name -> (address, code)."""
    found, times = {}, Counter()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".so" not in name or not (data := archive.read(name)).startswith(b"\x7fELF"):
                continue
            elf = ELFFile(BytesIO(data))
            for each in elf.get_section_by_name(".symtab").iter_symbols() if elf.get_section_by_name(".symtab") else ():
                section, size, address = each["st_shndx"], each["st_size"], each["st_value"]
                if each["st_info"]["type"] != "STT_FUNC" or not isinstance(section, int) or size < 32:
                    continue
                times[each.name] += 1
                start = address - elf.get_section(section)["sh_addr"] + elf.get_section(section)["sh_offset"]
                found[each.name] = address, data[start : start + size]
    # a compiler's parts of functions are none
    return {name: each for name, each in found.items() if times[name] == 1 and not re.search(r"\.(cold|part)", name)}


def pairs_of(project, version, words, cache):
    """Return the functions of a project that both architectures have: symbol -> (graph, graph).

    Of functions with the same mnemonics in one architecture, the first is kept.
    """
    both = [symbols(fetch(project, version, machine, cache)) for machine in MACHINES]
    names = sorted(both[0].keys() & both[1].keys())
    names = [names[i] for i in np.random.default_rng(0).permutation(len(names))[:MOST]]
    readers = [Disassembler(machine, words[machine]) for machine in MACHINES]
    found, seen = {}, set()
    for name in names:
        graphs = [reader.graph(of[name][1], of[name][0]) for reader, of in zip(readers, both, strict=True)]
        keys = [each[0].tobytes() for each in graphs]
        if all(FEWEST <= each[2][-1] + 1 <= LONGEST for each in graphs) and seen.isdisjoint(keys):
            found[name] = tuple(graphs)
        seen.update(keys)
    return found


def keys_of(name, graphs):
    """Return what tells that two functions are the same: the symbol and both sequences of mnemonics."""
    return [name, *(words.tobytes() for words, *_ in graphs)]


def as_data(words, kinds, block, edges, columns):
    """Return a function as a graph: log(1 + counts) of kinds and mnemonics per block, edges in both directions.

    `columns` maps mnemonics to columns of `x`.
    """
    x = np.zeros((block[-1] + 1, len(KINDS) + WORDS + 1), np.float32)
    np.add.at(x, (block, columns[words]), 1)
    for bit in range(len(KINDS)):
        np.add.at(x[:, bit], block, kinds >> bit & 1)
    edges = torch.from_numpy(edges.astype(np.int64))
    both = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    return Data(x=torch.from_numpy(x).clamp_(max=255).log1p_(), edge_index=both)


def build(cache):
    """Return the projects of all functions, and the graphs of the functions for each architecture.

    Symbols and sequences of mnemonics that occur in two projects are left out.
    """
    words = {machine: {} for machine in MACHINES}
    versions = {project: version for part in PROJECTS.values() for project, version in part.items()}
    found = [
        (project, name, graphs)
        for project, version in versions.items()
        for name, graphs in pairs_of(project, version, words, cache).items()
    ]
    times = Counter(key for _, name, graphs in found for key in keys_of(name, graphs))  # once a project at most
    kept = [
        (project, graphs) for project, name, graphs in found if all(times[key] == 1 for key in keys_of(name, graphs))
    ]
    sides = []
    for side, machine in enumerate(MACHINES):
        train = np.concatenate([graphs[side][0] for project, graphs in kept if project in PROJECTS["train"]])
        column = np.full(len(words[machine]), WORDS)  # of rare mnemonics, in one column
        column[[word for word, _ in Counter(train.tolist()).most_common(WORDS)]] = range(min(WORDS, len({*train})))
        sides.append([as_data(*graphs[side], len(KINDS) + column) for _, graphs in kept])
    return [project for project, _ in kept], sides


def write(cache, folder):
    """Write the functions as `x86-64.pt` and `aarch64.pt`, each with its own mnemonics, and `binaries.csv` of pairs."""
    projects, sides = build(cache)
    part = {project: part for part, some in PROJECTS.items() for project in some}
    ids = [f"{project}-{number}" for number, project in enumerate(projects)]
    for machine, graphs in zip(MACHINES, sides, strict=True):
        for graph, name, project in zip(graphs, ids, projects, strict=True):
            graph.id, graph.project, graph.part = name, project, part[project]
        InMemoryDataset.save(graphs, folder / f"{machine}.pt")
    write_pairs(folder / "binaries.csv", zip(ids, ids, strict=True))


if __name__ == "__main__":
    write(*folders("binary"))
