"""The method of CLIP: contrast every graph with a vector that describes it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Count, Fraction
from graphcl.errors import InputError
from graphcl.graphs.columns import Vectors, read_vectors, standardised_vectors
from graphcl.methods.method import LossOfViews, Method, Outcome, require_ids
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("clip", views="identity", repels="yes", pairs="no")
class CLIP(Method):
    r"""CLIP: contrast every graph with a vector that describes it, such as measured properties.

    $$(1 - w) L(g(f(G_i)), q(d_i)) + w \operatorname{mean}_{j \in P_i} (r(g(f(G_i)))_j - d_{ij})^2$$

    where f is the encoder, g the projector and L the loss. d_i is the vector of graph i; each column is standardised
    over the data set and clamped to -5 .. 5. q is an MLP with one hidden layer. The second term regresses the vector:
    r is a linear layer, P_i the columns with a number for graph i, and w the argument `regression`. Only f and g are
    kept.

    NaN in a vector is a missing cell. If the file has any, q receives d_i with 0 (the mean) in the missing cells, and
    behind it a mask that is 1 where d_i has a number.

    The graph is the first view; the second view is ignored. In a configuration both views are `identity`.

    Args:
        model: encoder and projector.
        loss: loss of the projections of graphs and vectors.
        num_graphs: number of graphs in the data set.
        vectors: numbers `[num_graphs, d]`, one row per graph of the data set, in its order: an array, or a .npy file.
            For a run or `GraphCL`, they may have a row for each row of a table, of which invalid ones are left
            out; then these have no effect.
        hidden_channels: width of the hidden layer of q.
        regression: w, weight of the regression; 1 for regression alone, as a control without contrast.

    Raises:
        InputError: the vectors cannot be read, or do not hold one row per graph with finite numbers, or NaN in some of
            its cells; the loss has no negatives; when called: `ids` are missing.

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021
        (arXiv 2103.00020), section 2.3.

    Differs: the paper learns the temperature, here it is constant unless `--loss.temperature learn`; the paper augments
    by random crops, has no missing cells and no regression.
    """

    vectors: Tensor

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        num_graphs: int,
        *,
        vectors: Vectors = "",
        hidden_channels: Count = 512,
        regression: Fraction = 0.0,
    ) -> None:
        super().__init__(model, loss)
        if isinstance(vectors, str) and not vectors:
            raise InputError("method `clip` needs `vectors`, an array or a .npy file with a row of numbers per graph.")
        rows = standardised_vectors(read_vectors(vectors))
        if len(rows) != num_graphs:
            source = vectors if isinstance(vectors, str) else "the array"
            lengths = f"{source} has {len(rows)}, the data set {num_graphs}"
            raise InputError(f"`vectors` must have one row per graph: {lengths}.")
        self.register_buffer("vectors", torch.from_numpy(rows).float(), persistent=False)
        self.regression, self.masked, width = regression, bool(np.isnan(rows).any()), rows.shape[1]
        self.projector = nn.Sequential(
            nn.Linear((1 + self.masked) * width, hidden_channels),
            nn.ReLU(),
            nn.Linear(hidden_channels, model.projection),
        )
        if regression:
            self.head = nn.Linear(model.projection, width)

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        rows = self.vectors[require_ids(ids, "clip")]
        present, rows = (~rows.isnan()).to(rows.dtype), rows.nan_to_num()
        h = self.model.encode(view1)
        z1, z2 = self.model.projector(h), self.projector(torch.cat([rows, present], dim=1) if self.masked else rows)
        loss = self.loss(z1, z2, **self.draws(generator))
        if self.regression:
            errors = ((self.head(z1) - rows).square() * present).sum(dim=1) / present.sum(dim=1)
            loss = (1 - self.regression) * loss + self.regression * errors.mean()
        return Outcome(loss, h, z1, z2)
