"""DGI: tell nodes from corrupted nodes by a summary of the graph (Velickovic et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch_geometric.data import Batch

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine.pairs import at_least_float32
from graphcl.methods.method import LossOfViews, Method, Outcome
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("dgi", rows="nodes", views="identity", loss="jsd", projector="none")
class DGI(Method):
    r"""DGI: tell the rows of nodes from those of a corrupted graph, by a summary of the graph.

    $$-\frac{1}{2N} \sum_i \log D(h_i, s) + \log(1 - D(\tilde h_i, s)), \qquad D(h, s) = \sigma(h^\top W s), \quad
    s = \sigma\Big(\frac1N \sum_i h_i\Big)$$

    Here h_i is the row of node i, $\tilde h_i$ its row after the feature rows of the nodes are shuffled, sigma the
    logistic function, and W a learnt matrix. The formula is half of the loss `jsd` with anchor s, positives h_i and
    negatives $\tilde h_i$; it takes O(N) time, and no other loss fits. Untrained, the loss is near log 2. Only the
    first view is used, and the paper uses no augmentation. It has no projector either: `--projector none`,
    the default in a configuration.

    Args:
        model: encoder and projector.
        loss: `jsd`.

    Raises:
        InputError: another registered loss.

    References:
        Velickovic et al., "Deep Graph Infomax", ICLR 2019, Eq. 1 to 4 (arXiv 1809.10341).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews) -> None:
        super().__init__(model, loss)
        if not isinstance(self.loss, Loss) or self.loss.name != "jsd":
            raise InputError(f"method `dgi` has a loss of its own, half of `jsd`, got {self.loss}; use loss jsd.")
        self.discriminator = nn.Parameter(torch.empty(model.projection, model.projection))
        nn.init.xavier_uniform_(self.discriminator)

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of the nodes, see `Method`; `z1` holds the rows of nodes, `z2` the summary in every row."""
        order = torch.randperm(view1.x.size(0), generator=generator, device=view1.x.device)
        corrupted = view1.clone()
        corrupted.x = view1.x[order]
        h, other = self.model.encode_views(view1, corrupted)
        z = at_least_float32(self.model.projector(h))
        summary = z.mean(dim=0).sigmoid()
        direction = self.discriminator @ summary
        positive, negative = (rows @ direction for rows in (z, at_least_float32(self.model.projector(other))))
        value = (softplus(-positive).mean() + softplus(negative).mean()) / 2
        return Outcome(value, h, z, summary.expand_as(z))
