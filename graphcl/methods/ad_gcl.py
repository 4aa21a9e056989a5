"""An adversary that learns which edges to drop (AD-GCL, Suresh et al. 2021)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Count, NonNegative
from graphcl.distributed import ranks
from graphcl.graphs.segment import connected_pairs
from graphcl.losses.engine.pairs import at_least_float32
from graphcl.methods.method import LossOfViews, Method, Outcome, need_repulsion
from graphcl.models.contrastive import ContrastiveModel, initialise
from graphcl.registry import methods

MARGIN = 1e-4
"""How far the uniform draws stay away from 0 and 1, where their logit is infinite."""


@methods.register("ad_gcl", views="identity", loss="dcl")
class ADGCL(Method):
    r"""AD-GCL: a graph against itself with edges dropped by an adversary, which is trained to make that hard.

    $$\min_\theta \max_\phi\; L(z, z(w)) - \lambda\, \frac1B \sum_G \frac{1}{|E_G|} \sum_{e \in E_G} (1 - w_e), \qquad
    w_e = \mathrm{sigmoid}(a_\phi(h_u, h_v) + \log \tfrac{u_e}{1 - u_e})$$

    with u_e uniform: a relaxed choice of edges (binary concrete at temperature 1), by which messages are multiplied.
    The adversary phi is another encoder of the model's form, and a perceptron of both ends of an edge. Both directions
    of an edge, and parallel edges, have one weight, of the mean of their logits. One optimiser moves both players: the
    gradient that reaches w is turned round. In a configuration both views are `identity`; the second is the one that is
    weighted.

    Differs: the released code moves the players by turns, each with an Adam and a draw of its own, the encoder in
    evaluation mode in the adversary's turn; here both move in one step on one draw, in training mode. It also draws
    each direction of an edge by itself, which makes the graph directed, and takes the last layer's nodes, here all
    layers'. Its loss has no positive in the denominator, both ways at temperature 0.2, which is `dcl`.

    Args:
        model: encoder and projector; the encoder takes `edge_weight` and gives nodes, as `gin` does.
        loss: of the projections of the graph and of the weighted graph.
        drop_penalty: lambda, what the adversary pays for the share of edges that it drops, >= 0.
        hidden: width of the perceptron's hidden layer.

    Raises:
        InputError: an encoder that does not take edge weights or gives no nodes, a loss that only pulls together.

    References:
        Suresh et al., "Adversarial Graph Augmentation to Improve Graph Contrastive Learning", NeurIPS 2021 (arXiv
        2106.05819).
    """

    def __init__(
        self, model: ContrastiveModel, loss: LossOfViews, *, drop_penalty: NonNegative = 5.0, hidden: Count = 64
    ) -> None:
        super().__init__(model, loss)
        need_repulsion(self.loss, "ad_gcl")
        model.need("edge_weight")
        model.node_encoder()
        self.drop_penalty = drop_penalty
        self.adversary = initialise(copy.deepcopy(model))
        self.adversary.projector = nn.Identity()
        self.judge = initialise(_Judge(model.width, hidden))

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`."""
        weight = self.keep(view2, generator)
        if weight.requires_grad:
            weight.register_hook(torch.neg)
        h, other = self.model.encode(view1), self.model.encode(view2, weight)
        z1, z2 = self.model.projector(h), self.model.projector(other)
        return Outcome(self.loss(z1, z2) - self.drop_penalty * drop_ratio(view2, weight), h, z1, z2)

    def keep(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """How much of each edge the adversary keeps, w `[E]` in (0, 1)."""
        _, nodes = self.adversary.encode_nodes(batch)
        logit = at_least_float32(self.judge(nodes, batch.edge_index))
        pair = connected_pairs(batch.edge_index, nodes.size(0))
        total = torch.zeros_like(logit).index_add(0, pair, logit)
        count = torch.zeros_like(logit).index_add(0, pair, torch.ones_like(logit)).clamp(min=1)
        draw = torch.rand(logit.shape, generator=generator, dtype=logit.dtype, device=logit.device)
        noise = (MARGIN + (1 - 2 * MARGIN) * draw).logit()
        return (total / count + noise).sigmoid().index_select(0, pair)


class _Judge(nn.Module):
    """A perceptron of both ends of each edge; its first layer is applied before edges look their ends up."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.last = nn.Linear(hidden, 1)

    def forward(self, nodes: Tensor, edge_index: Tensor) -> Tensor:
        """The logit of each edge `[E]`, of the nodes' representations `[N, H]`."""
        source, target = edge_index
        first = self.source(nodes).index_select(0, source) + self.target(nodes).index_select(0, target)
        logit: Tensor = self.last(first.relu()).squeeze(1)
        return logit


def drop_ratio(batch: Batch, weight: Tensor) -> Tensor:
    """Mean over graphs of the mean of 1 - `weight [E]` over their edges; graphs without edges do not count.

    Across ranks, a rank's part in the mean over the graphs of all.
    """
    graph = batch.batch.index_select(0, batch.edge_index[0])
    zeros = weight.new_zeros(batch.num_graphs)
    dropped, edges = zeros.index_add(0, graph, 1 - weight), zeros.index_add(0, graph, torch.ones_like(weight))
    count = (edges > 0).sum()
    return ranks.part_of_mean((dropped / edges.clamp(min=1)).sum() / count.clamp(min=1), count)
