"""Lightning's training loop instead of `train`: python examples/lightning_module.py

Needs the extra `lightning`. Trains on the embedded data set for ten epochs and prints the accuracy of a k-nearest
neighbour classifier before and after. Expect a gain of at least 10 points. All options of the trainer apply:
`precision="bf16-mixed"`, `gradient_clip_val=1.0`, `callbacks=[...]`, `logger=...`.
"""

import torch
from torch_geometric.loader import DataLoader

from graphcl import GIN, ContrastiveModel, Loss, NodeDrop, Subgraph, TwoViews, knn, load_dataset
from graphcl.lightning import ContrastiveModule, pl

pl.seed_everything(0)
dataset = load_dataset("synthetic")
loader = DataLoader(dataset, batch_size=128, shuffle=True)
whole = DataLoader(dataset, batch_size=200)
method = TwoViews(ContrastiveModel(GIN(dataset.num_features)), Loss("adnce"))
module = ContrastiveModule(method, NodeDrop(0.2), Subgraph(0.2), lr=0.01)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=10, accelerator="cpu", **quiet)

untrained = torch.cat(trainer.predict(module, whole))
trainer.fit(module, loader)
print("last epoch:", ", ".join(f"{name} {value:.3f}" for name, value in trainer.callback_metrics.items()))
trained = torch.cat(trainer.predict(module, whole))
y = torch.tensor([int(graph.y) for graph in dataset])
print(f"k-NN accuracy: untrained {knn(untrained, y).mean:.1f} %, trained {knn(trained, y).mean:.1f} %")
