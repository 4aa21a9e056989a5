"""Write random molecules in the file layout of OGB's archives."""

import csv
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np

ATOMS, BONDS = (119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)


def make_molecules(n: int, tasks: int = 1, metric: str = "rocauc", missing: float = 0.0, seed: int = 0):
    """Return random molecules `(x, edges, edge features, y)`, rings (`y[0] = 1`) and chains (`y[0] = 0`).

    `y` has the length `tasks` and is NaN with probability `missing`; the metric "rmse" adds noise to it.
    """
    generator = np.random.default_rng(seed)
    graphs = []
    for number in range(n):
        size, ring = int(generator.integers(3, 8)), number % 2
        x = np.stack([generator.integers(0, limit, size) for limit in ATOMS], axis=1)
        x[:, 0] = 5 + ring + (generator.random(size) < 0.2)
        ends = [(i, i + 1) for i in range(size - 1)] + ([(size - 1, 0)] if ring else [])
        bonds = np.stack([generator.integers(0, limit, len(ends)) for limit in BONDS], axis=1)
        y = generator.integers(0, 2, tasks).astype(float)
        y[0] = ring
        if metric == "rmse":
            y = y + generator.normal(size=tasks) / 10
        if missing:
            y[generator.random(tasks) < missing] = np.nan
        graphs.append((x, np.array(ends), bonds, y))
    return graphs


def gz(rows) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(["" if v != v else v for v in row] for row in rows)
    return gzip.compress(text.getvalue().encode(), mtime=0)


def files_of(graphs, split_name: str = "scaffold", split=None) -> dict[str, bytes]:
    """Return a dict from the path in an OGB archive's folder to the file's content."""
    cut = [int(0.6 * len(graphs)), int(0.8 * len(graphs))]
    split = split or dict(zip(("train", "valid", "test"), np.split(np.arange(len(graphs)), cut), strict=True))
    whole = all(float(v).is_integer() for *_, y in graphs for v in y if v == v)
    labels = [[v if v != v else int(v) if whole else v for v in y.tolist()] for *_, y in graphs]
    return {
        "RELEASE_v1.txt": b"",
        "raw/num-node-list.csv.gz": gz([[len(x)] for x, *_ in graphs]),
        "raw/num-edge-list.csv.gz": gz([[len(ends)] for _, ends, *_ in graphs]),
        "raw/edge.csv.gz": gz([row for _, ends, *_ in graphs for row in ends.tolist()]),
        "raw/node-feat.csv.gz": gz([row for x, *_ in graphs for row in x.tolist()]),
        "raw/edge-feat.csv.gz": gz([row for _, _, bonds, _ in graphs for row in bonds.tolist()]),
        "raw/graph-label.csv.gz": gz(labels),
        "mapping/README.md": b"made up",
        **{f"split/{split_name}/{part}.csv.gz": gz([[i] for i in rows]) for part, rows in split.items()},
    }


def write_archive(folder: Path, files: dict[str, bytes], name: str = "hiv") -> Path:
    """Write NAME.zip into `folder` in the layout of OGB's server, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(f"{name}/{path}", content)
        archive.writestr(f"{name}/processed/trap.pt", b"never read")
    return folder
