"""Measure the index of sparse rows beside FAISS: python benchmarks/sparse_index.py

Builds random labelled trees of 60 nodes with frequent and rare labels, embeds them as sparse rows and by GIN, and
prints build time, size on disk and milliseconds per query, on one core. Needs faiss-cpu.
"""

import argparse
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
import torch
from torch_geometric.data import Batch

from graphcl import GIN
from graphcl.extensions.sparse.encoder import WLSparse
from graphcl.extensions.sparse.index import SparseIndex, SparseRows

NODES, LABELS, K = 60, 64, 10


def trees(count: int, generator: torch.Generator) -> Batch:
    """Return `count` random trees as a batch; a label is drawn by Zipf's law, and one of four by the parent's label."""
    parent = (torch.rand(count, NODES - 1, generator=generator) * torch.arange(1, NODES)).long()
    parent = torch.maximum(parent, torch.arange(NODES - 1) - 8)  # as deep as syntax trees
    weights = 1 / torch.arange(1, LABELS + 1).double()
    table = torch.multinomial(weights.expand(LABELS, -1), 4, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(count, NODES, dtype=torch.long)
    for node in range(1, NODES):
        above = labels.gather(1, parent[:, node - 1 : node])[:, 0]
        labels[:, node] = table[above, torch.randint(4, (count,), generator=generator)]
    first = torch.arange(count)[:, None] * NODES
    ends = torch.stack([(parent + first).flatten(), (torch.arange(1, NODES) + first).flatten()])
    x = torch.nn.functional.one_hot(labels.flatten(), LABELS).float()
    edge_index = torch.cat([ends, ends.flip(0)], 1)
    return Batch(x=x, edge_index=edge_index, batch=torch.arange(count).repeat_interleave(NODES))


def timed(function, *arguments, **keywords):
    """Return the result of a function and its seconds of CPU time, which other processes do not lengthen."""
    started = time.process_time()
    return function(*arguments, **keywords), time.process_time() - started


def measure_sparse(count: int, chunk: int, queries: SparseRows, encoder: WLSparse, generator) -> None:
    """Print the figures of the index of sparse rows."""
    index, embedding, building = SparseIndex(), 0.0, 0.0
    for _ in range(count // chunk):
        found = []
        for _ in range(chunk // 1000):
            batch = trees(1000, generator)
            rows, seconds = timed(encoder.rows, batch.x, batch.edge_index, batch.batch, size=1000)
            found.append(rows)
            embedding += seconds
        rows = SparseRows.cat(found)
        building += timed(index.add, rows)[1]
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "index.npz"
        index.save(file)
        size, loaded = file.stat().st_size, SparseIndex.load(file)
        loaded.search(queries[:2], K)
        _, seconds = timed(loaded.search, queries, K)
    print(f"embed: {1e3 * embedding / count:.3f} ms a graph")
    print(f"SparseIndex: build {building:.0f} s, {size / 2**20:.0f} MiB, {1e3 * seconds / len(queries):.1f} ms a query")


def unit_rows(encoder: GIN, batch: Batch) -> np.ndarray:
    """Return the embeddings of a batch, of norm 1."""
    return torch.nn.functional.normalize(encoder(batch.x, batch.edge_index, batch.batch)).numpy()


def measure_dense(count: int, chunk: int, asked: Batch, generator) -> None:
    """Print the figures of FAISS's flat and HNSW index on rows of GIN."""
    encoder = GIN(LABELS, 64).eval()
    flat = faiss.IndexFlatIP(encoder.out_channels)
    hnsw = faiss.IndexHNSWFlat(encoder.out_channels, 32, faiss.METRIC_INNER_PRODUCT)
    with torch.no_grad():
        queries, building = unit_rows(encoder, asked), 0.0
        for _ in range(count // 1000):
            some = unit_rows(encoder, trees(1000, generator))
            flat.add(some)
            building += timed(hnsw.add, some)[1]
    for name, index in (("flat", flat), ("HNSW", hnsw)):
        size = len(faiss.serialize_index(index)) / 2**20
        (_, found), seconds = timed(index.search, queries, K)
        exact = flat.search(queries, K)[1]
        recall = np.mean([len(np.intersect1d(*each)) / K for each in zip(found, exact, strict=True)])
        built = f"build {building:.0f} s, " if name == "HNSW" else ""
        print(
            f"FAISS {name}: {built}{size:.0f} MiB, {1e3 * seconds / len(queries):.1f} ms a query, recall {recall:.2f}"
        )


def main() -> None:
    """Measure both for the same graphs."""
    parser = argparse.ArgumentParser(prog="python benchmarks/sparse_index.py")
    parser.add_argument("--graphs", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    chunk = min(given.graphs, 100_000)
    with torch.no_grad():
        encoder = WLSparse(LABELS)
        some = trees(given.queries, torch.Generator().manual_seed(0))
        queries = encoder.rows(some.x, some.edge_index, some.batch, size=given.queries)
        # the queries' graphs are the first of the index
        measure_sparse(given.graphs, chunk, queries, encoder, torch.Generator().manual_seed(0))
        measure_dense(given.graphs, chunk, some, torch.Generator().manual_seed(0))


if __name__ == "__main__":
    main()
