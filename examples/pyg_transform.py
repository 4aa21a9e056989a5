"""Our augmentations and loss in plain PyG code: python examples/pyg_transform.py

A data set in memory whose `transform` makes two views of each graph, PyG's `DataLoader`, PyG's `GIN`. With a public
set, `TUDataset("data", "PROTEINS", transform=Pair(...))` is all that changes. Trains for five epochs on the embedded
data set and prints the accuracy of a vote of nearest neighbours before and after. Expect about 10 points more.
"""

import torch
from torch_geometric.data import InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN

from graphcl import ContrastiveModel, NodeDrop, Pooled, Subgraph, embed, knn
from graphcl.datasets.synthetic import synthetic
from graphcl.losses import infonce


class Families(InMemoryDataset):
    """Any data set of PyG's: `transform` is applied at each access."""

    def __init__(self, graphs, transform=None):
        super().__init__(transform=transform)
        self.data, self.slices = self.collate(graphs)


class Pair:
    """Two views of a graph; the loader makes a batch of the first ones and one of the second ones."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __call__(self, graph):
        return self.first(graph), self.second(graph)


torch.manual_seed(0)
graphs = synthetic()
loader = DataLoader(Families(graphs, transform=Pair(NodeDrop(0.2), Subgraph(0.2))), batch_size=128, shuffle=True)
whole = DataLoader(Families(graphs), batch_size=600)
encoder = Pooled(GIN(7, hidden_channels=32, num_layers=3, norm="batch_norm", jk="cat"), readout="sum")
model = ContrastiveModel(encoder)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

untrained, y = embed(model, whole)
for epoch in range(5):
    for view1, view2 in loader:
        loss = infonce(model(view1), model(view2), temperature=0.2)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")
trained, y = embed(model, whole)
print(f"k-NN accuracy: untrained {knn(untrained, y).mean:.1f} %, trained {knn(trained, y).mean:.1f} %")
