"""Hostile inputs by the thousand: what is refused, what is read, what it costs; the table of docs/security.md.

    python benchmarks/hostile.py                       # all of it, about half an hour of one core
    python benchmarks/hostile.py --kinds names zips    # some kinds
    python benchmarks/hostile.py --share 0.01          # every hundredth input of each kind
    python benchmarks/hostile.py --mirror ~/tu         # MUTAG too, every line of it
    python benchmarks/hostile.py --ways 12             # every line of a text in every way, not in one after the other

Each input goes through the library's own way in, in a process forked for some hundred of a kind, in an empty folder,
under an audit hook that sees files, programs and connections. Counted are: refused, by one line; read; tracebacks, that
is anything else that was raised, more lines than one (settings: a line a mistake), or a process that died; and what was
written outside of the folder. `memory` is by how much the process grew at most, beside its growth for the honest inputs
that the hostile ones were made of; growth below 32 MiB is called small.

The exit code is 1 if there was a traceback or something written outside.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import itertools
import json
import os
import pickle
import random
import re
import runpy
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from graphcl.datasets import load_dataset  # noqa: E402
from graphcl.datasets.text import PARTS  # noqa: E402
from graphcl.errors import InputError  # noqa: E402
from graphcl.models.saved import load_encoder  # noqa: E402
from tests.fuzz import targets  # noqa: E402
from tests.fuzz.watch import peak  # noqa: E402

SMALL = 32 * 2**20
Input = tuple[str, Any]
"""A target of `tests/fuzz/targets.py` or one of `MORE`, and what it is given."""


@dataclass
class Kind:
    """A kind of input: honest ones for comparison, hostile ones, and how many of these one process takes."""

    tried: str
    honest: Callable[[], list[Input]]
    hostile: Callable[[], Iterator[Input]]
    at_once: int = 100


@dataclass
class Count:
    """What became of a kind's inputs."""

    refused: int = 0
    read: int = 0
    tracebacks: int = 0
    outside: int = 0
    memory: int = 0
    said: list[str] = field(default_factory=list)


def attempt(target: str, content: Any) -> tuple[str, str]:
    """`refused`, `read`, `tracebacks` or `outside`, and the message."""
    try:
        message = targets.run(target, content)
    except AssertionError as error:
        outside = re.search(r"\['?(open|os\.|subprocess|socket)", str(error))
        return ("outside" if outside else "tracebacks"), f"{target}: {error!r:.300}"
    except BaseException as error:
        return "tracebacks", f"{target}: {error!r:.300}"
    return ("read", "") if message is None else ("refused", message)


def in_a_process(inputs: list[Input]) -> Count:
    """Try some inputs in a forked process; one that dies is a traceback."""
    receives, sends = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receives)
            count = Count()
            for target, content in inputs:
                with peak() as grown:
                    what, message = attempt(target, content)
                setattr(count, what, getattr(count, what) + 1)
                count.memory = max(count.memory, grown[0])
                count.said += [message] if what in ("tracebacks", "outside") else []
            with os.fdopen(sends, "w") as out:
                json.dump(vars(count), out)
        finally:
            os._exit(0)
    os.close(sends)
    with os.fdopen(receives) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return Count(**json.loads(text)) if text else Count(tracebacks=1, said=[f"a process died on {inputs[0][0]}"])


def tally(inputs: Iterator[Input], at_once: int) -> Count:
    """All inputs, so many in a process."""
    total, waiting = Count(), []
    for each in inputs:
        waiting.append(each)
        if len(waiting) == at_once:
            add(total, in_a_process(waiting))
            waiting = []
    if waiting:
        add(total, in_a_process(waiting))
    return total


def add(total: Count, more: Count) -> None:
    """Put counts together."""
    for key in ("refused", "read", "tracebacks", "outside"):
        setattr(total, key, getattr(total, key) + getattr(more, key))
    total.memory = max(total.memory, more.memory)
    total.said += more.said


# -- zips --------------------------------------------------------------------------------------------------------------


def tiny_zip(extra: Sequence[tuple[Any, bytes]] = (), packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An honest archive, with further entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for part, text in targets.HONEST.items():
            archive.writestr(f"T/T_{part}.txt", text)
        for entry, content in extra:
            archive.writestr(entry, content)
    return file.getvalue()


def entry(name: str, kind: int = 0) -> zipfile.ZipInfo:
    """An entry of a kind of file."""
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o777) << 16
    return info


def zips() -> Iterator[Input]:
    """Escapes, links, bombs, lies; cut off at every percent; every byte of the tables changed in four ways."""
    for name in (
        "../e",
        "../../e",
        "/tmp/e",
        "T/../../e",
        "C:/e",
        "C:e",
        "a\\..\\e",
        "\\\\host\\e",
        "e\0.txt",
        "~/../e",
    ):
        yield "tu_archive", tiny_zip([(name, b"x")])
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
        yield "tu_archive", tiny_zip([(entry("T/T_edge_attributes2.txt", kind), b"/etc/passwd")])
    yield "tu_archive", tiny_zip([("T/README.txt", bytes(2**27))])
    yield "tu_archive", tiny_zip([(f"T/{number}", b"") for number in range(1001)])
    yield "tu_archive", tiny_zip([("T/T_A.txt", b"1, 2\n")])
    honest = tiny_zip()
    yield "tu_archive", honest.replace(struct.pack("<L", len(targets.HONEST["A"])), struct.pack("<L", 2**31 - 1))
    yield "tu_archive", honest + honest
    yield "tu_archive", b"x" * 1000 + honest
    for packing in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield "tu_archive", tiny_zip(packing=packing)
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for number in range(60):
            info = entry(f"R{number}")
            info.comment = bytes(65_000)
            archive.writestr(info, b"")
    yield "tu_archive", many.getvalue()
    for percent in range(100):
        yield "tu_archive", honest[: len(honest) * percent // 100]
    start = honest.index(b"PK\x01\x02")
    for at in range(start, len(honest)):
        for change in (0xFF, 0x01, 0x80, 0x20):
            yield "tu_archive", honest[:at] + bytes([honest[at] ^ change]) + honest[at + 1 :]


# -- TU texts ----------------------------------------------------------------------------------------------------------

LINES: dict[str, Callable[[bytes], bytes]] = {
    "gone": lambda line: b"",
    "twice": lambda line: line + b"\n" + line,
    "zero": lambda line: re.sub(rb"\d+", b"0", line, count=1),
    "negative": lambda line: b"-" + line,
    "beyond": lambda line: re.sub(rb"\d+", b"999999999", line, count=1),
    "huge": lambda line: re.sub(rb"\d+", b"9" * 30, line, count=1),
    "word": lambda line: b"yes",
    "NUL": lambda line: line + b"\0",
    "no UTF-8": lambda line: line + b"\xff\xfe",
    "another column": lambda line: line + b", 1",
    "nan": lambda line: b"nan",
    "carriage return": lambda line: line + b"\r",
}


def line_by_line(files: dict[str, bytes], ways: int) -> Iterator[Input]:
    """Every line of every file, changed in so many ways of `LINES`: those whose turn it is."""
    changes = itertools.cycle(LINES.values())
    for part, text in files.items():
        lines = text.rstrip(b"\n").split(b"\n")
        for number, line in enumerate(lines):
            for change in itertools.islice(changes, ways):
                changed = [*lines[:number], change(line), *lines[number + 1 :]]
                yield "tu_files", {**files, part: b"\n".join(changed) + b"\n"}


def tu_files(content: dict[str, bytes], place: Path) -> None:
    """A folder in TU layout."""
    (place / "own").mkdir()
    for part, text in content.items():
        (place / "own" / f"T_{part}.txt").write_bytes(text)
    load_dataset(place / "own", place / "root")


@functools.cache
def synthetic_files(count: int = 24) -> dict[str, bytes]:
    """So many graphs of the embedded set in TU layout."""
    dataset = load_dataset("synthetic")
    lines: dict[str, list[str]] = {"A": [], "graph_indicator": [], "graph_labels": [], "node_labels": []}
    done = 0
    for number in range(0, len(dataset), len(dataset) // count):
        graph = dataset[number]
        lines["A"] += [f"{a + done + 1}, {b + done + 1}" for a, b in graph.edge_index.t().tolist()]
        lines["graph_labels"].append(str(int(graph.y)))
        lines["graph_indicator"] += [str(len(lines["graph_labels"]))] * graph.num_nodes
        lines["node_labels"] += map(str, graph.x.argmax(1).tolist())
        done += graph.num_nodes
    return {part: ("\n".join(each) + "\n").encode() for part, each in lines.items()}


def archived_files(path: Path) -> dict[str, bytes]:
    """The TU files of an archive."""
    with zipfile.ZipFile(path) as archive:
        found = {name.rpartition(f"{path.stem}_")[2].removesuffix(".txt"): name for name in archive.namelist()}
        return {part: archive.read(name) for part, name in found.items() if part in PARTS}


# -- PyTorch files -----------------------------------------------------------------------------------------------------


class Code:
    """Pickled, it calls a function when it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def torch_code(content: bytes, place: Path) -> None:
    """A file with code, by every way in; the canary would lie in the present folder."""
    (place / "f.pt").write_bytes(content)
    try:
        load_encoder(place / "f.pt")
    except InputError:
        load_dataset(place / "f.pt", place / "root")
    finally:
        assert not list(place.rglob("canary*")), "['open canary'"


def codes() -> Iterator[Input]:
    """Calls of thirty functions, in eleven places of a file that is honest besides, in the forms of all protocols."""
    calls = [
        (os.system, "touch canary"), (os.mkdir, "canary"), (os.popen, "touch canary"), (open, "canary", "w"),
        (eval, "open('canary', 'w')"), (exec, "open('canary', 'w')"), (os.open, "canary", os.O_CREAT | os.O_WRONLY),
        (getattr, os, "mkdir"), (torch.save, [1], "canary"), (np.save, "canary", 1), (os.rename, "f.pt", "canary"),
        (os.symlink, "/etc/passwd", "canary"), (__import__, "antigravity"), (pickle.loads, pickle.dumps(os.getcwd)),
        (torch.hub.load, "x/y", "z"), (Path.touch, Path("canary")), (os.unlink, "f.pt"), (type, "X", (), {}),
        (subprocess.Popen, ["touch", "canary"]), (shutil.copy, "f.pt", "canary"),
        (importlib.import_module, "this"), (runpy.run_path, "f.pt"),
    ]  # fmt: skip
    for function, *arguments in calls:
        code = Code(function, *arguments)
        for value in (code, [code], {"format": code}, {"format": "graphcl encoder", "version": 1, "weights": code},
                      {"format": "graphcl encoder", "version": 1, "weights": {0: {"a": code}}},
                      {"settings": code}, (torch.ones(1), code), ({"x": code}, None)):  # fmt: skip
            for options in ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}):
                file = io.BytesIO()
                try:
                    torch.save(value, file, **options)
                except Exception:  # not everything can be pickled
                    continue
                yield "torch_code", file.getvalue()
        for protocol in range(6):
            try:
                yield "torch_code", pickle.dumps(code, protocol)
            except Exception:
                continue


def torch_files() -> Iterator[Input]:
    """Every byte of small honest pickles changed in five ways; every percent of the files cut off; claims."""
    for target in ("encoder", "own_set", "plain", "checkpoint"):
        pickled, whole = targets.seeds(target)[:2]
        for at in range(len(pickled)):
            for change in (0xFF, 0x01, 0x80, 0x04):
                yield target, pickled[:at] + bytes([pickled[at] ^ change]) + pickled[at + 1 :]
            yield target, pickled[:at] + pickled[at + 1 :]
        for percent in range(100):
            yield target, whole[: len(whole) * percent // 100]
        for at in range(0, len(whole), 3):
            yield target, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        laughs: Any = [0]
        for _ in range(40):
            laughs = [laughs] * 10
        for value in (laughs, torch.ones(1).expand(10**11), [torch.ones(1).expand(10**7)] * 1000):
            file = io.BytesIO()
            torch.save(value, file)
            yield target, file.getvalue()


# -- settings ----------------------------------------------------------------------------------------------------------

TOKENS = (
    b"[",
    b"{",
    b"}",
    b"]",
    b"&a ",
    b"*a ",
    b"<<: ",
    b"!!",
    b"? ",
    b": ",
    b"- ",
    b"'",
    b'"',
    b"|\n",
    b"1e999",
    b".nan",
)
TOKENS += (
    b"9" * 5000,
    b"2020-99-99",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\t",
    b"\r",
    b"null",
    b"!!python/name:os.system ",
)


def settings() -> Iterator[Input]:
    """Random bytes; honest files with one to four changes; brackets, aliases, merges, numbers."""
    draw = random.Random(0)
    for number in range(6000):
        target = ("config", "sweep", "command_line")[number % 3]
        if number < 1500:
            yield target, draw.randbytes(draw.randrange(80))
            continue
        content = bytearray(draw.choice(targets.seeds(target)))
        for _ in range(draw.randrange(1, 5)):
            at, many = draw.randrange(len(content) + 1), draw.choice((0, 0, 1, 4, 20))
            content[at : at + many] = draw.choice(TOKENS)
        yield target, bytes(content)
    for depth in (10, 49, 60, 1000, 10**5):
        yield "config", b"a: " + b"[" * depth
        yield "config", b"a: " + b"[" * depth + b"]" * depth
        yield "config", b"".join(b" " * i + b"a:\n" for i in range(min(depth, 2000)))
    for width in (2, 10, 100):
        for shape in (b"[%s]", b"{<<: [%s]}"):
            lines = [b"a0: &a0 " + (b"[1]" if shape[:1] == b"[" else b"{x: 1}")]
            lines += [b"a%d: &a%d " % (i, i) + shape % b",".join([b"*a%d" % (i - 1)] * width) for i in range(1, 40)]
            yield "config", b"\n".join(lines)
            yield "sweep", b"\n".join(lines)
    yield "config", b"".join(b"k%d: 1\n" % i for i in range(50_000))
    yield (
        "sweep",
        b"axes:\n" + b"".join(b"  loss.a%d: [%s]\n" % (i, b",".join(b"%d" % n for n in range(99))) for i in range(20)),
    )


# -- names, folders ----------------------------------------------------------------------------------------------------

PIECES = (
    "..",
    ".",
    "/",
    "\\",
    "C:",
    "~",
    "\0",
    "\n",
    "\x1b[2J",
    "T",
    "tmp",
    " ",
    "-rf",
    "*",
    "?",
    "$(id)",
    "`id`",
    ";",
    "|",
)
PIECES += ("Ｔ", "Т", "․․", "‥", "／", "∕", "\u202e", "\ud800", "%2e%2e%2f", "x" * 200, "%s", "{}", "CON", "NUL.zip")


def names() -> Iterator[Input]:
    """One, two and three pieces of what leads out of folders, as name of a set, folder of sets, and mirror."""
    draw = random.Random(1)
    for first in PIECES:
        yield "named", (first, "root", "mirror")
        for second in PIECES:
            yield "named", (first + second, "root", "mirror")
    for _ in range(1500):
        name = "".join(draw.choice(PIECES) for _ in range(3))
        yield "named", (name, "root", "mirror")
        if not name.startswith(("/", "~")) and ".." not in name:
            yield "named", ("T", f"root/{name}", "mirror")
        yield "named", ("T", "root", name if "/" in name else f"mirror/{name}")


def named(content: tuple[str, str, str], place: Path) -> None:
    """A set by name, from an honest mirror."""
    (place / "mirror").mkdir()
    (place / "mirror" / "T.zip").write_bytes(tiny_zip())
    load_dataset(content[0], content[1], content[2])


def folders() -> Iterator[Input]:
    """Every byte at the head of every file of a data set on disk and of a run's folder changed in four ways."""
    for target in ("on_disk", "run_folder"):
        for content in targets.seeds(target):
            for at in range(1, min(len(content), 400)):
                for change in (0xFF, 0x01, 0x80, 0x10):
                    yield target, content[:at] + bytes([content[at] ^ change]) + content[at + 1 :]
                yield target, content[:at]
    for at in range(5):
        for text in (b"[" * 10**6, b"9" * 10**6, b'{"a": ' * 10**5, b"", b"\xff\xfe", b"[]", b"null"):
            yield "run_folder", bytes([at]) + text
            yield "on_disk", bytes([at]) + text


def packed_bombs() -> Iterator[Input]:
    """Archives of arrays that unpack to gigabytes, or say that they do."""
    for name in (3, 4):
        for rows in (10**6, 10**8, 3 * 10**8):
            file = io.BytesIO()
            np.savez_compressed(file, h=np.zeros(rows, np.uint8))
            yield "run_folder", bytes([name]) + file.getvalue()
        for shape in ((10**12,), (10**6, 10**6), (-1,), (2**63,), ()):
            text = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("h.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64))
            yield "run_folder", bytes([name]) + file.getvalue()
    for labels in (10**6, 10**8, 2**31, 2**62):
        files = {part: targets.HONEST[part].encode() for part in ("A", "graph_indicator", "graph_labels")}
        yield "tu_files", {**files, "node_labels": b"0\n" * 7 + b"%d\n" % labels}
    dense = {"A": b"1, 2\n2, 1\n", "graph_indicator": b"1\n" * 30_000 + b"2\n", "graph_labels": b"1\n2\n"}
    yield "tu_files", {**dense, "node_labels": b"".join(b"%d\n" % number for number in range(30_001))}


MORE = {"tu_files": tu_files, "torch_code": torch_code, "named": named}


def honest_of(*names: str) -> Callable[[], list[Input]]:
    """The honest inputs of targets."""
    return lambda: [(name, content) for name in names for content in targets.seeds(name)]


def kinds(mirror: Path | None, ways: int = 1) -> dict[str, Kind]:
    """What is tried."""
    found = {
        "names": Kind(
            "names of sets, folders and mirrors that lead elsewhere",
            lambda: [("named", ("T", "root", "mirror"))],
            names,
        ),
        "zips": Kind(
            "archives: escapes, links, bombs, lies; cut off at every percent; every byte of the tables",
            honest_of("tu_archive"),
            zips,
        ),
        "tu": Kind(
            f"TU text: every line of 24 graphs of the embedded set, {ways * 3} of {len(LINES)} ways each in turn",
            lambda: [("tu_files", synthetic_files())],
            lambda: line_by_line(synthetic_files(), ways * 3),
        ),
        "code": Kind(
            "PyTorch files and pickles that would run code when read",
            honest_of("encoder", "own_set"),
            codes,
        ),
        "torch": Kind(
            "encoders, graphs, checkpoints saved by torch: every byte of the pickle; cut off; claims of 10^11 numbers",
            honest_of("encoder", "own_set", "plain", "checkpoint"),
            torch_files,
        ),
        "settings": Kind(
            "configurations, sweeps, command lines: random bytes, changed files, aliases, brackets, numbers",
            honest_of("config", "sweep", "command_line"),
            settings,
        ),
        "folders": Kind(
            "data sets on disk and folders of runs: every byte at the head of every file",
            honest_of("on_disk", "run_folder"),
            folders,
        ),
        "bombs": Kind(
            "arrays and labels that would fill gigabytes",
            lambda: [("run_folder", targets.seeds("run_folder")[3]), ("tu_files", synthetic_files())],
            packed_bombs,
            at_once=1,
        ),
    }
    if mirror is not None and (mirror / "MUTAG.zip").is_file():
        mutag = archived_files(mirror / "MUTAG.zip")
        found["mutag"] = Kind(
            f"TU text: every line of MUTAG, {ways} of {len(LINES)} ways each in turn",
            lambda: [("tu_files", mutag)],
            lambda: line_by_line(mutag, ways),
        )
    return found


def shared(inputs: Iterator[Input], share: float) -> Iterator[Input]:
    """That share of the inputs, evenly."""
    for number, each in enumerate(inputs):
        if int(number * share) != int((number + 1) * share):
            yield each


def table(rows: list[tuple[str, Count, int, float]]) -> str:
    """The table in Markdown."""
    lines = ["| kind | tried | refused with a line | read | tracebacks | written outside | memory, honest | most |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for told, count, honest, _ in rows:
        number = count.refused + count.read + count.tracebacks + count.outside
        most = "small" if count.memory < SMALL else f"{count.memory / 2**20:.0f} MiB"
        before = "small" if honest < SMALL else f"{honest / 2**20:.0f} MiB"
        figures = (number, count.refused, count.read, count.tracebacks, count.outside)
        lines.append(f"| {told} | {' | '.join(f'{figure:,}' for figure in figures)} | {before} | {most} |")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Try everything, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--share", type=float, default=1.0, help="of the inputs of each kind [1]")
    parser.add_argument(
        "--ways", type=int, default=1, help="in which every line of MUTAG is changed; others: 3 times that [1]"
    )
    parser.add_argument("--mirror", type=Path, help="folder with MUTAG.zip")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    targets.TARGETS.update(MORE)
    rows, failed = [], False
    for name, kind in kinds(given.mirror, given.ways).items():
        if given.kinds and name not in given.kinds:
            continue
        start = time.perf_counter()
        honest = tally(iter(kind.honest()), 1)
        assert not honest.tracebacks + honest.outside + honest.refused, honest.said
        count = tally(shared(kind.hostile(), given.share), kind.at_once)
        rows.append((kind.tried, count, honest.memory, time.perf_counter() - start))
        print(f"{name}: {count}, {rows[-1][3]:.0f} s", file=sys.stderr, flush=True)
        failed = failed or bool(count.tracebacks + count.outside)
    print(table(rows))
    return int(failed)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        sys.exit(main())
