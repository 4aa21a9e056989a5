"""Search a collection of graphs: embed, index, query: python examples/search.py

Trains an encoder without labels on 400 graphs, puts their embeddings into a vector index, and looks up five of them
after damage: a tenth of the edges moved. Needs faiss: pip install 'graphcl[search]'. Prints the ids of the nearest
graphs of each query, and for how many of 100 damaged graphs the original comes first: expect 90 to 100 %.

The same for embeddings on disk, from `graphcl embed RUN --dataset DATA --out h.npz`: python examples/search.py h.npz
"""

import sys

import faiss
import numpy as np
import torch
from torch_geometric.data import Batch

from graphcl import EdgePerturb, GraphCL, load_dataset


def make_index(h, ids):
    """Return an index of the embeddings `h [n, H]` by cosine; `faiss.IndexHNSWFlat` instead is faster for millions."""
    index = faiss.IndexIDMap(faiss.IndexFlatIP(h.shape[1]))
    index.add_with_ids(unit(h), ids.astype(np.int64))
    return index


def search(index, h, k=5):
    """Return the ids `[q, k]` of the nearest graphs of each query `h [q, H]`."""
    return index.search(unit(h), k)[1]


def unit(h):
    """Return the rows of `h` scaled to norm 1, so that inner products are cosines."""
    h = h.astype(np.float32)
    faiss.normalize_L2(h)
    return h


if len(sys.argv) > 1:
    stored = np.load(sys.argv[1])
    ids = stored["id"] if "id" in stored else np.arange(len(stored["h"]))  # faiss takes whole numbers only
    for query, found in zip(ids[:5], search(make_index(stored["h"], ids), stored["h"][:5]), strict=True):
        print(f"graph {query}: nearest {found.tolist()}")
    sys.exit()

graphs = list(load_dataset("synthetic"))[:400]
for graph in graphs:
    del graph.y
embedder = GraphCL(epochs=5, first="edge_perturb", second="edge_perturb")
index = make_index(embedder.fit_transform(graphs), np.arange(len(graphs)))

damaged = EdgePerturb(0.1)(Batch.from_data_list(graphs[:100]), torch.Generator().manual_seed(0)).to_data_list()
found = search(index, embedder.transform(damaged))
for query, ids in enumerate(found[:5]):
    print(f"graph {query}, damaged: nearest {ids.tolist()}")
print(f"the original is the nearest of {100 * (found[:, 0] == np.arange(100)).mean():.1f} % of 100 queries")
