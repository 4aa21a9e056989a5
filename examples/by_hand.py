"""The whole method by hand, without graphcl's training loop: python examples/by_hand.py

Trains on the embedded data set for ten epochs (a few seconds) and prints the SVM accuracy before and after.
Expect about 10 points more after training; see graphcl/datasets/synthetic.py for the measured range.
"""

import torch

from graphcl import (
    GIN,
    ContrastiveModel,
    NodeDrop,
    ResidentLoader,
    Subgraph,
    embed,
    load_dataset,
    svm,
    two_views,
)
from graphcl.losses import adnce

torch.manual_seed(0)
dataset = load_dataset("synthetic")
loader = ResidentLoader(dataset, batch_size=128, shuffle=True, generator=torch.Generator().manual_seed(0))
whole = ResidentLoader(dataset, batch_size=1024)
model = ContrastiveModel(GIN(dataset.num_features, hidden_channels=32, num_layers=3))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)

untrained, y = embed(model, whole)
for epoch in range(10):
    for batch in loader:
        view1, view2 = two_views(batch, NodeDrop(0.2), Subgraph(0.2), generator)
        loss = adnce(model(view1), model(view2), temperature=0.2, mu=0.7, sigma=1.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")
trained, y = embed(model, whole)
print(f"SVM accuracy: untrained {svm(untrained, y).mean:.1f} %, trained {svm(trained, y).mean:.1f} %")
