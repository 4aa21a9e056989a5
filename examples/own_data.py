"""Train on your own graphs: python examples/own_data.py

A list of PyG's `Data` or of networkx graphs is a data set, with or without features and labels. Here: networkx graphs
of two families without features, so `features="degree"` adds some. A few seconds; expect 97 to 100 % after training.
"""

import networkx
import torch

from graphcl import (
    GIN,
    ContrastiveModel,
    EdgePerturb,
    Loss,
    NodeDrop,
    ResidentLoader,
    TwoViews,
    embed,
    load_dataset,
    logreg,
    train,
)

graphs = []
for seed in range(200):
    if seed % 2:
        graph = networkx.barabasi_albert_graph(20 + seed % 10, 2, seed=seed)
    else:
        graph = networkx.watts_strogatz_graph(20 + seed % 10, 4, 0.3, seed=seed)
    graph.graph["y"] = seed % 2  # optional: training does not use labels
    graphs.append(graph)

dataset = load_dataset(graphs, features="degree", max_degree=10)
print(dataset)

torch.manual_seed(0)
model = ContrastiveModel(GIN(dataset.num_features))
loader = ResidentLoader(dataset, batch_size=50, shuffle=True)
train(TwoViews(model, Loss("infonce")), loader, NodeDrop(0.1), EdgePerturb(0.1), epochs=5)
h, y = embed(model, ResidentLoader(dataset, batch_size=1024))
print(f"{tuple(h.shape)} embeddings; accuracy of a linear probe {logreg(h, y).mean:.1f} %")
