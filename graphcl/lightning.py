"""Train contrastively with Lightning's `Trainer` instead of `graphcl.train`; needs the extra `lightning`.

Like PyG, this module imports `lightning.pytorch` if it is installed, else `pytorch_lightning`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation, as_augmentation, two_views
from graphcl.graphs.batching import members_of
from graphcl.methods import Method, Outcome
from graphcl.training.epoch import graph_ids, larger, measure
from graphcl.training.optimiser import parameter_groups

try:
    import lightning.pytorch as pl
except ImportError:
    try:
        import pytorch_lightning as pl
    except ImportError:
        raise ImportError('graphcl.lightning needs Lightning: pip install "graphcl[lightning]"') from None


class ContrastiveModule(pl.LightningModule):
    """LightningModule for a contrastive method: `pl.Trainer(max_epochs=20).fit(module, loader)` trains it.

    The loader is PyG's `DataLoader` or a `ResidentLoader`. Some arguments of `graphcl.train` are arguments of the
    `Trainer` instead: `gradient_clip_val` for `clip_norm`, `precision="bf16-mixed"` for `amp`, `max_steps` for `steps`.
    The module logs the same metrics as `graphcl.train`, see `graphcl.training.epoch.Epoch`.
    `trainer.predict(module, loader)` returns the embeddings `[B, H]` of each batch.

    With PyG's `DataLoader` and the same seeds, results equal those of `graphcl.train`. With a `ResidentLoader` the
    results differ, because `graphcl.train` then augments several batches at once.

    Args:
        method: method to train, such as `TwoViews(model, Loss("adnce"))`.
        first: augmentation for the first views, or its name; the method may replace it.
        second: augmentation for the second views, or its name; the method may replace it.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        generator: generator for the views and the method's random draws, on the training device.

    Example:
        >>> from graphcl import GIN, ContrastiveModel, Loss, NodeDrop, Subgraph, TwoViews
        >>> method = TwoViews(ContrastiveModel(GIN(7)), Loss("adnce"))
        >>> ContrastiveModule(method, NodeDrop(0.2), Subgraph(0.2), lr=0.001).lr
        0.001
    """

    def __init__(
        self,
        method: Method,
        first: Augmentation | str,
        second: Augmentation | str,
        *,
        lr: float = 0.01,
        weight_decay: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.method = method
        views = as_augmentation(first, "first"), as_augmentation(second, "second")
        self.first, self.second = method.augmentations(*views)
        self.lr, self.weight_decay, self.generator = lr, weight_decay, generator
        self._outcome: Outcome | None = None

    def forward(self, batch: Batch) -> Tensor:
        """Return the embeddings `[B, H]` of a batch, without projecting them."""
        return self.method.model.encode(batch)

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """Augment a batch, or a pair of batches, to two views, and return and log their loss."""
        views = two_views(members_of(batch), self.first, self.second, self.generator)
        (ids,) = graph_ids(self.trainer.train_dataloader, number, 1, self.device)
        outcome = self.method(*views, ids=ids, generator=self.generator)
        # batch_size=1 gives all steps equal weight in the epoch's mean, as in `train`; Lightning would weight by graphs
        self.log("loss", outcome.loss.detach(), on_step=False, on_epoch=True, batch_size=1)
        self._outcome = larger(self._outcome, outcome)
        loss: Tensor = outcome.loss
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Batch, number: int) -> None:
        """Update the method's state (momentum encoder, queue or memory bank) after the optimiser step."""
        self.method.after_step()

    def on_train_epoch_end(self) -> None:
        """Update the method's state after an epoch, and log the metrics of one batch and the method's own."""
        if self._outcome is not None:
            self.log_dict(measure(self._outcome, False, self.method))
        self._outcome = None
        self.log_dict(self.method.after_epoch())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an Adam optimiser of the trainable parameters."""
        parameters = [each for each in self.method.parameters() if each.requires_grad]
        return torch.optim.Adam(parameter_groups(parameters), lr=self.lr, weight_decay=self.weight_decay, fused=True)
