"""AD-GCL: contrastive learning with an adversary that learns which edges to drop (Suresh et al. 2021)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Channels, NonNegative
from graphcl.distributed import ranks
from graphcl.graphs.segment import connected_pairs
from graphcl.losses.rows import at_least_float32
from graphcl.methods.method import LossOfViews, Method, Outcome, weight_of
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.perceptron import initialise
from graphcl.registry import methods


@methods.register("ad_gcl", views="identity", repels="yes", pairs="weight", loss="dcl")
class ADGCL(Method):
    r"""AD-GCL: contrast a graph with a copy whose edges are weighted by an adversary, trained to increase the loss.

    $$\min_\theta \max_\phi\; L(z, z(w)) - \lambda\, \frac1B \sum_G \frac{1}{|E_G|} \sum_{e \in E_G} (1 - w_e), \qquad
    w_e = \mathrm{sigmoid}(a_\phi(h_u, h_v) + \log \tfrac{u_e}{1 - u_e})$$

    Here theta are the parameters of the model and phi those of the adversary, B is the number of graphs G in the batch,
    E_G the edges of G, h_u the adversary's representation of node u, and u_e uniform on (0, 1).

    The weight w_e multiplies the messages along edge e. It is a relaxed Bernoulli draw (binary concrete, temperature
    1). The adversary is a second encoder of the model's architecture, followed by a perceptron a on the two ends of an
    edge. Both directions of an edge, and parallel edges, share one weight, computed from the mean of their logits. The
    gradient with respect to w is negated, so that one optimiser trains both model and adversary. In a configuration
    both views are `identity`; the second view gets the weights.

    Differs: the released code alternates between a step of the model and one of the adversary, with separate optimisers
    and draws; here both take one step on the same draw. It draws each direction of an edge separately, which makes the
    graph directed. It uses node representations of the last layer; here all layers are used. Its loss is `dcl`.

    Args:
        model: encoder and projector; the encoder takes `edge_weight` and has `with_nodes`, as `gin` does.
        loss: loss of the projections of the graph and the weighted graph.
        drop_penalty: weight lambda of the adversary's penalty on the fraction of dropped edges, >= 0.
        hidden_channels: width of the perceptron's hidden layer.

    Raises:
        InputError: the encoder takes no edge weights or has no `with_nodes`; the loss has no negatives.

    References:
        Suresh et al., "Adversarial Graph Augmentation to Improve Graph Contrastive Learning", NeurIPS 2021 (arXiv
        2106.05819).
    """

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        *,
        drop_penalty: NonNegative = 5.0,
        hidden_channels: Channels = 64,
    ) -> None:
        super().__init__(model, loss)
        model.require("edge_weight")
        model.node_encoder()
        self.drop_penalty = drop_penalty
        self.adversary = initialise(copy.deepcopy(model).cpu())  # draw the weights as on the CPU, from its generator
        self.adversary.projector = nn.Identity()
        self.edge_scorer = initialise(_EdgeScorer(model.width, hidden_channels))

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        weight = self.edge_weights(view2, generator)
        if weight.requires_grad:
            weight.register_hook(torch.neg)
        h, other = self.model.encode(view1), self.model.encode(view2, weight)
        z1, z2 = self.model.project(h, other)
        contrast = self.loss(z1, z2, **weight_of(view1), **self.draws(generator))
        return Outcome(contrast - self.drop_penalty * drop_ratio(view2, weight), h, z1, z2)

    def edge_weights(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """Return the weights w `[E]`, in (0, 1), that the adversary gives to the edges of `batch`."""
        _, nodes = self.adversary.encode_nodes(batch)
        logit = at_least_float32(self.edge_scorer(nodes, batch.edge_index))
        pair = connected_pairs(batch.edge_index, nodes.size(0))
        total = torch.zeros_like(logit).index_add(0, pair, logit)
        count = torch.zeros_like(logit).index_add(0, pair, torch.ones_like(logit)).clamp(min=1)
        draw = torch.rand(logit.shape, generator=generator, dtype=logit.dtype, device=logit.device)
        noise = (1e-4 + (1 - 2e-4) * draw).logit()  # not at 0 or 1, where the logit is infinite
        return (total / count + noise).sigmoid().index_select(0, pair)


class _EdgeScorer(nn.Module):
    """Perceptron on the two ends of each edge. The first layer is applied to nodes, which are fewer than edges."""

    def __init__(self, width: int, hidden_channels: int) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(width, hidden_channels), nn.Linear(width, hidden_channels, bias=False)
        self.last = nn.Linear(hidden_channels, 1)

    def forward(self, nodes: Tensor, edge_index: Tensor) -> Tensor:
        """Return the logits `[E]` of the edges, given node representations `nodes [N, H]`."""
        source, target = edge_index
        first = self.source(nodes).index_select(0, source) + self.target(nodes).index_select(0, target)
        return self.last(first.relu()).squeeze(1)


def drop_ratio(batch: Batch, weight: Tensor) -> Tensor:
    """Return the fraction of dropped edges: the mean of 1 - `weight [E]` per graph, averaged over graphs with edges."""
    graph = batch.batch.index_select(0, batch.edge_index[0])
    zeros = weight.new_zeros(batch.num_graphs)
    dropped, edges = zeros.index_add(0, graph, 1 - weight), zeros.index_add(0, graph, torch.ones_like(weight))
    count = (edges > 0).sum()
    return ranks.part_of_mean((dropped / edges.clamp(min=1)).sum() / count.clamp(min=1), count)
