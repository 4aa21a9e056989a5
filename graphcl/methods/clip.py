"""The method of CLIP: contrast every graph with a vector that describes it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Count
from graphcl.datasets.npy import map_npy
from graphcl.errors import InputError
from graphcl.methods.method import LossOfViews, Method, Outcome, require_repulsion
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods

LARGEST = 5.0
"""Bound on the standardised values, so that outliers do not dominate."""


@methods.register("clip", views="identity")
class CLIP(Method):
    r"""CLIP: contrast every graph with a vector that describes it, such as the descriptors of a molecule.

    $$L(g(f(G_i)), q(d_i))$$

    where f is the encoder, g the projector and L the loss. d_i is the vector of graph i; each column is standardised
    over the file and clamped to -5 .. 5. q is a perceptron with one hidden layer; it is not part of the encoder.

    The graph is the first view; the second view is ignored. The paper uses no augmentation but crops, so in a
    configuration both views are `identity`.

    Args:
        model: encoder and projector.
        loss: loss of the projections of graphs and vectors.
        vectors: NumPy file of numbers `[n, d]`, one row per graph of the data set, in its order.
        hidden: width of the hidden layer of q.

    Raises:
        InputError: the file is missing, or holds no matrix of finite numbers; the loss has no negatives; when called:
            `ids` are missing or not in [0, n).

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021
        (arXiv 2103.00020), section 2.3.

    Differs: the paper learns the temperature; here it is the loss's, a constant.
    """

    vectors: Tensor

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, vectors: str = "vectors.npy", hidden: Count = 512
    ) -> None:
        super().__init__(model, loss)
        require_repulsion(self.loss, "clip")
        self.register_buffer("vectors", standardised(Path(vectors)), persistent=False)
        widths = self.vectors.size(1), hidden, model.projection
        self.projector = nn.Sequential(nn.Linear(*widths[:2]), nn.ReLU(), nn.Linear(*widths[1:]))

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        if ids is None:
            raise InputError("method `clip` needs the indices of a batch's graphs; use ResidentLoader or make_loader.")
        if ids.device.type == "cpu" and not 0 <= int(ids.min()) <= int(ids.max()) < len(self.vectors):
            raise InputError(
                f"`vectors` must have one row per graph of the data set; it has {len(self.vectors)}, and a batch holds "
                f"graph {int(ids.max())}."
            )
        h = self.model.encode(view1)
        z1, z2 = self.model.projector(h), self.projector(self.vectors[ids])
        return Outcome(self.loss(z1, z2), h, z1, z2)


def standardised(file: Path) -> Tensor:
    """Return the rows of a NumPy file with standardised columns, clamped; a constant column becomes 0.

    Raises:
        InputError: the file is missing, or holds no matrix of finite numbers.
    """
    rows = map_npy(file)
    if rows.dim() != 2 or rows.is_complex() or not bool(rows.isfinite().all()):
        found = f"an array {list(rows.shape)}" if rows.dim() != 2 else "NaN, infinity or complex numbers"
        raise InputError(f"`vectors` must be a file of finite numbers [n, d], one row per graph; {file} holds {found}.")
    rows = rows.float()
    deviation, mean = torch.std_mean(rows, dim=0, correction=0)
    return ((rows - mean) / deviation.clamp(min=torch.finfo(torch.float32).tiny)).clamp(-LARGEST, LARGEST)
