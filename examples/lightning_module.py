"""Lightning's training loop instead of `train`: python examples/lightning_module.py

Needs `pip install pytorch-lightning`. Trains on the embedded data set for ten epochs and prints the accuracy of a
k-nearest neighbour classifier before and after. Expect a gain of at least 10 points. All options of the trainer apply:
`precision="bf16-mixed"`, `gradient_clip_val=1.0`, `callbacks=[...]`, `logger=...`.
"""

import pytorch_lightning as pl
import torch
from torch_geometric.loader import DataLoader

from graphcl import GIN, ContrastiveModel, Loss, NodeDrop, Subgraph, TwoViews, knn, load_dataset, two_views


class ContrastiveModule(pl.LightningModule):
    """Trains a method on two views of each batch; its loss equals that of `train` for the same batches and views."""

    def __init__(self, method, first, second, lr=0.01):
        super().__init__()
        self.method, self.lr = method, lr
        self.views = method.augmentations(first, second)  # a method may replace them

    def forward(self, batch):
        return self.method.model.encode(batch)  # h [B, H], without the projector

    def training_step(self, batch, number):
        # MoCo, memory banks and JOAO also need `ids`, the indices of the batch's graphs in the data set
        loss = self.method(*two_views(batch, *self.views)).loss
        self.log("loss", loss.detach(), on_step=False, on_epoch=True, batch_size=1)
        return loss

    def on_train_batch_end(self, outputs, batch, number):
        self.method.after_step()  # momentum encoder, queue or memory bank

    def on_train_epoch_end(self):
        self.log_dict(self.method.after_epoch())

    def configure_optimizers(self):
        return torch.optim.Adam((each for each in self.method.parameters() if each.requires_grad), lr=self.lr)


pl.seed_everything(0)
dataset = load_dataset("synthetic")
loader = DataLoader(dataset, batch_size=128, shuffle=True)
whole = DataLoader(dataset, batch_size=200)
method = TwoViews(ContrastiveModel(GIN(dataset.num_features)), Loss("adnce"))
module = ContrastiveModule(method, NodeDrop(0.2), Subgraph(0.2))
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=10, accelerator="cpu", **quiet)

untrained = torch.cat(trainer.predict(module, whole))
trainer.fit(module, loader)
print("last epoch:", ", ".join(f"{name} {value:.3f}" for name, value in trainer.callback_metrics.items()))
trained = torch.cat(trainer.predict(module, whole))
y = torch.tensor([int(graph.y) for graph in dataset])
print(f"k-NN accuracy: untrained {knn(untrained, y).mean:.1f} %, trained {knn(trained, y).mean:.1f} %")
