"""Contrastive training by Lightning's trainer, in the place of `graphcl.training.loop`; needs the extra `lightning`.

`pl` is the Lightning that is in use, whose trainer fits: `lightning.pytorch` where it is installed, as with PyG, else
`pytorch_lightning`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.augment.views import two_views
from graphcl.graphs.batching import check_batch
from graphcl.methods import Method
from graphcl.training.state import measure
from graphcl.training.stream import graph_ids

try:
    import lightning.pytorch as pl
except ImportError:
    try:
        import pytorch_lightning as pl
    except ImportError:
        raise ImportError('graphcl.lightning needs Lightning: pip install "graphcl[lightning]"') from None


class ContrastiveModule(pl.LightningModule):
    """A method and its two views as a LightningModule: `pl.Trainer(max_epochs=20).fit(module, loader)`.

    The loader gives batches of whole graphs: PyG's `DataLoader` or a `ResidentLoader`. What `train` has as arguments is
    the trainer's: `gradient_clip_val` for `clip_norm`, `precision="bf16-mixed"` for `amp`, `max_steps` for `steps`.
    Loss, alignment and uniformity are logged as means over the steps of an epoch, and with them what the method logs.
    `trainer.predict(module, loader)` gives the embeddings `[B, H]` of each batch.

    The figures are those of `graphcl.train` with the same seeds where that draws its views batch by batch too, as with
    PyG's `DataLoader`; from a `ResidentLoader` it draws those of several batches at once, so they come from other
    numbers.

    Args:
        method: model and loss (`TwoViews(model, Loss("adnce"))`).
        first: augmentation that makes the first view; a method may put its own in its place.
        second: augmentation that makes the second view.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        generator: source of the views' randomness, and of what the method draws, on the device of the training.

    Example:
        >>> from graphcl import GIN, ContrastiveModel, Loss, NodeDrop, Subgraph, TwoViews
        >>> method = TwoViews(ContrastiveModel(GIN(7)), Loss("adnce"))
        >>> ContrastiveModule(method, NodeDrop(0.2), Subgraph(0.2), lr=0.001).lr
        0.001
    """

    def __init__(
        self,
        method: Method,
        first: Augmentation,
        second: Augmentation,
        *,
        lr: float = 0.01,
        weight_decay: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.method = method
        self.first, self.second = method.augmentations(first, second)
        self.lr, self.weight_decay, self.generator = lr, weight_decay, generator

    def forward(self, batch: Batch) -> Tensor:
        """Embeddings h `[B, H]`, without the projector."""
        return self.method.model.encode(batch)

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """The loss of a batch's two views."""
        check_batch(batch)
        views = two_views(batch, self.first, self.second, self.generator)
        ids = graph_ids(self.trainer.train_dataloader, number, self.device)
        outcome = self.method(*views, ids=ids, generator=self.generator)
        # As batches of one: the mean over steps, as `train` has it, not over graphs.
        self.log_dict(measure(outcome, False, self.method), on_step=False, on_epoch=True, batch_size=1)
        loss: Tensor = outcome.loss
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Batch, number: int) -> None:
        """What the method does after the optimiser's step."""
        self.method.after_step()

    def on_train_epoch_end(self) -> None:
        """What the method does after an epoch, and logs of it."""
        self.log_dict(self.method.after_epoch())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, over what is to be trained."""
        parameters = [each for each in self.method.parameters() if each.requires_grad]
        return torch.optim.Adam(parameters, lr=self.lr, weight_decay=self.weight_decay, fused=True)
