"""GRACE: contrast the nodes of two views of a graph (Zhu et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Count
from graphcl.distributed import ranks
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
    processes the whole graph, but the loss compares K^2 instead of N^2 pairs.

    Across R ranks (`graphcl.distributed`), every rank encodes the whole graph and contrasts its part of the nodes with
    the nodes of all ranks. All ranks must draw the same views and nodes, from generators in the same state. If R does
    not divide the number of nodes, every step omits random nodes.

    The projector of the released code is `--projector elu`, the default in a configuration.

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
        z1, z2 = self.model.projector(h), self.model.projector(other)
        return Outcome(self.loss(z1, z2), h, z1, z2)
