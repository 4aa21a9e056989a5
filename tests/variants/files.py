"""Variants of files: TU folders, tables, lists of pairs, invalid.csv, imported Python files."""

import csv
import gzip
import os

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_tu_data

from graphcl.datasets import load_dataset, open_on_disk, write_on_disk
from graphcl.datasets.pair_file import read_pairs
from graphcl.datasets.tables import InvalidGraph, write_invalid
from graphcl.extensions.molecules.parse import InvalidRow
from graphcl.loaders.loader import make_loader
from graphcl.registry import import_files, losses
from tests.variants import Refused, kind, number, text


def cell(rng, value):
    """Return a number in another form of the same value."""
    forms = [repr(value), f"{value:e}", f" {value} ", f"\t{float(value)}", f"{value:+}", f"{value:.3f}"]
    return rng.choice(forms)


def tu_lines(rng):
    """Return part -> rows of numbers of a random TU set, and the number of graphs."""
    sizes = [rng.randint(2, 4) for _ in range(rng.randint(3, 4))]
    first = np.cumsum([1, *sizes])
    edges = [pair for start, size in zip(first, sizes, strict=False) for node in range(start, start + size - 1)
             for pair in ([int(node), int(node) + 1], [int(node) + 1, int(node)])]  # fmt: skip
    parts = {
        "A": edges,
        "graph_indicator": [[graph + 1] for graph, size in enumerate(sizes) for _ in range(size)],
        "graph_labels": [[rng.choice([-1, 1, 7])] for _ in sizes],
        "node_labels": [[rng.randint(0, 3)] for _ in range(sum(sizes))],
        "node_attributes": [[number(rng), number(rng)] for _ in range(sum(sizes))],
        "edge_labels": [[rng.randint(1, 2)] for _ in edges],
        "edge_attributes": [[number(rng)] for _ in edges],
    }
    for part in rng.sample(["node_labels", "node_attributes", "edge_labels", "edge_attributes"], rng.randint(0, 2)):
        del parts[part]
    return parts


def write_tu(folder, name, parts):
    folder.mkdir(parents=True)
    for part, content in parts.items():
        (folder / f"{name}_{part}.txt").write_text(content, encoding="utf-8", newline="")


@kind
def tu_folder(rng, folder):
    """Numbers in odd forms, string labels, byte order marks and line ends: the tensors of PyG's reader."""
    parts, name = tu_lines(rng), rng.choice(["MINE", "my graphs", "größe", "a[1]", "x_A", "NAME_A_A"])
    plain = {part: "".join(",".join(map(str, row)) + "\n" for row in rows) for part, rows in parts.items()}
    write_tu(folder / "pyg", "N", plain)
    data, *_ = read_tu_data(str(folder / "pyg"), "N")
    odd = {}
    for part, rows in parts.items():
        strings = part == "graph_labels" and rng.random() < 0.5
        words = {row[0]: f"{'é' * (row[0] > 1)}w{row[0]}" for row in rows} if strings else {}
        lines = [words[row[0]] if strings else ",".join(cell(rng, value) for value in row) for row in rows]
        if strings:  # classes are in alphabetical order
            classes = sorted(words.values())
            data.y = torch.tensor([classes.index(line) for line in lines])
        end = rng.choice(["\n", "\r\n", "\r"])
        odd[part] = rng.choice(["", "\ufeff"]) + end.join(lines) + rng.choice(["", end, end + end, f"{end} {end}"])
    write_tu(folder / "own", name, odd)
    (folder / "own" / f"._{name}_A.txt").write_bytes(b"\0\5\x16\7")
    which = [part for part in ("attributes", "labels") if f"node_{part}" in parts or f"edge_{part}" in parts]
    features = "both" if len(which) == 2 else (which or ["labels"])[0]

    def call():
        found = load_dataset(folder / "own", folder / "root", tu_features=features)
        x = found._data.x.tolist() if data.x is not None else None
        attr = found._data.get("edge_attr")
        return x, None if attr is None else attr.tolist(), found.y.tolist(), found._data.edge_index.tolist()

    attr = data.edge_attr if data.edge_attr is not None and data.edge_attr.numel() else None
    attr = None if attr is None else attr.reshape(len(attr), -1).tolist()
    return call, (None if data.x is None else data.x.tolist(), attr, data.y.tolist(), data.edge_index.tolist())


@kind
def broken_tu_folder(rng, folder):
    """One part is broken: the message names the file, and the line if there is one."""
    parts = {part: [",".join(map(str, row)) for row in rows] for part, rows in tu_lines(rng).items()}
    part = rng.choice([*parts])
    lines = parts[part]
    at = rng.randrange(1, len(lines) - 1)
    where = f"N_{part}.txt line {at + 1}"
    damage = rng.choice(["blank", "fraction", "mixed", "short", "long", "binary", "surrogate", "columns"])
    content = None
    if damage == "blank":
        lines[at] = rng.choice(["", "  ", "\t"])
    elif damage in ("fraction", "mixed"):
        lines[at] = {"fraction": "0.5", "mixed": "word"}[damage] + lines[at][lines[at].find(",") :] * ("," in lines[at])
        if (damage, part.partition("_")[2]) == ("fraction", "attributes"):
            lines[at] = lines[at].replace("0.5", "x")
    elif damage == "short":
        where = f"N_{part}.txt" if part not in ("A", "graph_indicator") else ""
        if not where:  # fewer edges or nodes are a matter of the other files
            part = "graph_labels"
            lines, where = parts[part], "N_graph_labels.txt"
        lines.pop()
    elif damage == "long":
        part = "graph_labels"
        parts[part].append("1")
        where = "N_graph_labels.txt"
    elif damage == "columns":
        lines[at] += ",1"
    else:
        content = "\n".join(lines).encode() + {"binary": b"\n\xff\xfe", "surrogate": b"\n\xed\xa0\x80"}[damage]
        where = f"N_{part}.txt line {len(lines) + 1}"
    write_tu(folder / "own", "N", {each: "\n".join(rows) for each, rows in parts.items()})
    if content is not None:
        (folder / "own" / f"N_{part}.txt").write_bytes(content)
    return lambda: load_dataset(folder / "own", folder / "root", tu_features=rng.choice(["labels", "both"])), Refused(
        where
    )


@kind
def packed_values(rng, folder):
    """A number that was changed in a packed set is refused if it is not finite, else read."""
    graphs = [Data(x=torch.randn(2, 2), edge_index=torch.tensor([[0, 1], [1, 0]])) for _ in range(3)]  # not compact
    packed = write_on_disk(graphs, folder / "packed").folder
    x, at = np.load(packed / "x.npy"), rng.randrange(6)
    x[at, 0] = rng.choice([float("nan"), float("inf"), -float("inf"), 1e30, number(rng)])
    np.save(packed / "x.npy", x)
    good = abs(x[at, 0]) < 10
    return lambda: embed(open_on_disk(packed)), x.tolist() if good else Refused("x.npy")


def embed(dataset):
    """Return `x` as an encoder receives it."""
    return torch.cat([batch.x for batch in make_loader(dataset, 2)]).tolist()


@kind
def names_without_unicode(rng, folder):
    """A name in another encoding than UTF-8 is escaped, so that results can be written under it."""
    name = os.fsdecode(rng.choice([b"g\xff", b"\xe9t\xe9", b"a\x80b"]))
    parts = {part: "".join(",".join(map(str, row)) + "\n" for row in rows) for part, rows in tu_lines(rng).items()}
    write_tu(folder / name, name, parts)
    escaped = name.encode(errors="backslashreplace").decode()
    return lambda: load_dataset(folder / name, folder / "root").name, escaped


SMILES = ["CCO", "c1ccccc1", "C[C@H](N)C(=O)O", "[Na+].[Cl-]", "C/C=C/C"]


@kind
def tables(rng, folder):
    """Delimiters, Parquet, Excel, packed files and frames give the same targets and the same invalid rows."""
    import pandas as pd

    smiles = [*rng.choices(SMILES, k=rng.randint(2, 5)), rng.choice(["=HYPERLINK(1)", "not a molecule", "C(C", "@x"])]
    rng.shuffle(smiles)
    y = [number(rng) for _ in smiles]
    key = rng.choice(["smiles", "SMILES", "Smiles", "canonical smiles"])
    frame = pd.DataFrame({"note": ["a,b;c"] * len(y), key: smiles, "target": y})
    form = rng.choice([",", ";", "\t", "tsv", "parquet", "xlsx", "gz", "pandas", "polars", "arrow"])
    if form in ("pandas", "polars", "arrow"):
        import polars
        import pyarrow

        source = {"pandas": lambda: frame, "polars": lambda: polars.from_pandas(frame),
                  "arrow": lambda: pyarrow.Table.from_pandas(frame)}[form]()  # fmt: skip
    elif form in ("parquet", "xlsx"):
        source = folder / f"m.{form}"
        frame[key] = frame[key].str.replace("=HYPER", "HYPER")  # pandas would write a formula
        smiles = frame[key].tolist()
        (frame.to_parquet if form == "parquet" else frame.to_excel)(source)
    else:
        end, bom = rng.choice(["\n", "\r\n"]), rng.choice(["utf-8", "utf-8-sig"])
        source = folder / ("m.tsv" if form == "tsv" else "m.csv.gz" if form == "gz" else "m.csv")
        content = frame.to_csv(index=False, sep="\t" if form == "tsv" else "," if form == "gz" else form,
                               lineterminator=end).encode(bom)  # fmt: skip
        source.write_bytes(gzip.compress(content) if form == "gz" else content)
    chosen = key if key.startswith("canonical") else None
    kept = [i for i, each in enumerate(smiles) if each in SMILES]

    def call():
        found = load_dataset(source, folder / "root", smiles=chosen, target="target")
        return found.y.flatten().tolist(), [each.smiles for each in found.invalid]

    wanted = [y[i] for i in kept]
    if all(each == int(each) for each in wanted):  # classes
        wanted = [sorted({*wanted}).index(each) for each in wanted]
    return call, (wanted, [smiles[i] for i in range(len(y)) if i not in kept])


@kind
def formulas_in_cells(rng, folder):
    """No string cell of invalid.csv begins like a formula; numbers stay, and a reader finds the same strings."""
    words = [rng.choice(["=", "+", "-", "@", "\t", "\r", "", "a", "'", " ="]) + text(rng) for _ in range(3)]
    rows = [
        InvalidRow(i, None, word) if rng.random() < 0.5 else InvalidGraph(i, rng.choice([word, -5]), word)
        for i, word in enumerate(words)
    ]
    rows = [each for each in rows if type(each) is type(rows[0])]

    def call():
        write_invalid(rows, folder / "invalid.csv")
        with open(folder / "invalid.csv", newline="", encoding="utf-8") as file:
            _, *found = csv.reader(file)
        begins = any(each[:1] in tuple("=+-@\t\r") for row in found for each in row if each and not each[1:].isdigit())
        return begins, [[each.removeprefix("'") for each in row] for row in found]

    strings = [["" if each is None else str(each).removeprefix("'") for each in row] for row in rows]
    return call, (False, strings)


@kind
def pipes(rng, folder):
    """A named pipe is refused at once, wherever a file is expected."""
    name = rng.choice(
        ["m.csv", "m.smi", "m.csv.gz", "m.parquet", "m.xlsx", "g.pt", "g.graphml", "g.gml", "g.json", "p"]
    )
    os.mkfifo(folder / name)
    if name == "p":
        suffix = rng.choice([".csv", ".tsv", ".parquet"])
        (folder / name).rename(folder / f"p{suffix}")
        return lambda: read_pairs(folder / f"p{suffix}"), Refused("pipe")
    within = name.startswith("g") and rng.random() < 0.5
    return lambda: load_dataset(folder if within else folder / name, folder / "root"), Refused("")


@kind
def imported_files(rng, folder):
    """A Python file registers a loss of a valid name; any other end, or name, is one line that names the file."""
    name = rng.choice(["mine", "größe", "a.b", "", "auto", "all", "a b/../c", None, "yes", "1e3", "infonce", 7, "a\n"])
    end = rng.choice(["", "import sys; sys.exit(0)", "raise SystemExit", "raise KeyError('a\\nb')", "1 / 0", "def f(:",
                      "import nowhere_at_all", "raise BaseException('odd')", "raise GeneratorExit", "\0",
                      "exit('text')"])  # fmt: skip
    file = folder / rng.choice(["own.py", "with blank.py", "größe.py", "9-a.py"])
    head = "from torch import Tensor\nfrom graphcl.extend import Pairs, losses, pairwise\n"
    body = (
        f"@losses.register({name!r})\n@pairwise\ndef own(pairs: Pairs) -> Tensor:\n"
        '    """Return zeros."""\n    return pairs.positive * 0\n'
    )
    file.write_text(f"{head}{body}{end}\n", encoding="utf-8")
    good = name in ("mine", "größe", "a.b") and not end

    def call():
        try:
            import_files([str(file)])
            return name in losses
        finally:
            for each in ("mine", "größe", "a.b"):
                losses._targets.pop(each, None)

    return call, True if good else Refused(file.name)
