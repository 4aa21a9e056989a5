"""Methods that contrast the nodes of one graph: GRACE (Zhu et al. 2020) and DGI (Velickovic et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch_geometric.data import Batch

from graphcl.arguments import Count
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.engine.rows import at_least_float32
from graphcl.methods.method import LossOfViews, Method, Outcome, require_repulsion
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("grace", rows="nodes", usual_views="drop_and_mask", loss="nt_xent", projector="elu")
class GRACE(Method):
    r"""GRACE: contrast every node with the same node of the other view; negatives are the other nodes of both views.

    $$\frac{1}{2N} \sum_i \ell(u_i, v_i) + \ell(v_i, u_i), \qquad \ell(u_i, v_i) = -\log
    \frac{e^{\theta(u_i, v_i) / \tau}}{e^{\theta(u_i, v_i) / \tau} + \sum_{k \ne i} e^{\theta(u_i, v_k) / \tau}
    + \sum_{k \ne i} e^{\theta(u_i, u_k) / \tau}}$$

    Here u_i and v_i are the projections of node i in the two views, theta the cosine and tau the temperature. This is
    the loss `nt_xent`; any other loss of two views fits. The model is a `graphcl.models.nodes.NodeModel`, and both
    views keep all nodes.

    With `nodes_per_step` K, every step draws K nodes and contrasts them with each other only. The encoder still
    processes the whole graph, but the loss compares K^2 instead of N^2 pairs. The projector of the released code is
    `--projector elu`, the default in a configuration.

    Across R ranks (`graphcl.distributed`), every rank encodes the whole graph and contrasts its part of the nodes with
    the nodes of all ranks. All ranks must draw the same views and nodes, from generators in the same state. If R does
    not divide the number of nodes, every step omits random nodes.

    Args:
        model: encoder and projector.
        loss: loss of the two views' projections; the paper uses `nt_xent`.
        nodes_per_step: K, number of nodes that a step contrasts; all by default.

    Raises:
        InputError: the loss has no negatives.

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Eq. 1 and 2 (arXiv 2006.04131).
    """

    divides_nodes = True

    def __init__(self, model: ContrastiveModel, loss: LossOfViews, *, nodes_per_step: Count | None = None) -> None:
        super().__init__(model, loss)
        require_repulsion(self.loss, "grace")
        self.nodes_per_step = nodes_per_step

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of the nodes, see `Method`."""
        h, other = self.model.encode_views(view1, view2)
        n = h.size(0)
        count = min(self.nodes_per_step or n, n) // ranks.size()
        own = slice(ranks.rank() * count, (ranks.rank() + 1) * count)
        rows = torch.randperm(n, generator=generator, device=h.device)[own] if count * ranks.size() < n else own
        h, other = h[rows], other[rows]
        z1, z2 = self.model.project(h, other)
        return Outcome(self.loss(z1, z2), h, z1, z2)


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
