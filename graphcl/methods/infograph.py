"""Nodes against graphs: every node is to be told from the nodes of other graphs (InfoGraph, Sun et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.methods.method import LossOfViews, Method, Outcome, need
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("infograph", views="identity", loss="jsd")
class InfoGraph(Method):
    r"""InfoGraph: every node's representation against every graph's embedding; its own graph is its positive.

    $$\frac1N \sum_{v} \mathrm{sp}(-T_{v, G(v)}) + \frac{1}{N (B - 1)} \sum_{v} \sum_{G \ne G(v)} \mathrm{sp}(T_{v, G}),
    \qquad T_{v, G} = \phi(h_v) \cdot \psi(h_G)$$

    with sp = softplus, h_v all layers of node v side by side, h_G their sum over G: the loss `jsd`. Any other loss that
    takes external negatives fits, such as `infonce`: the anchors are the nodes, their negatives the graphs that they
    are not of. phi and psi, the local and the global head, have the form of the model's projector, which is psi. Both
    sides are of the first view; the second is not looked at. The paper augments nothing: in a configuration both views
    are `identity`.

    Across ranks, G goes over the graphs of all, and v over this rank's nodes; the mean is weighted by how many of all
    ranks' nodes those are.

    Many nodes against many graphs are never held at once, see `losses.engine.tiled`. The encoder runs by torch's
    operations, as the compiled layers give no gradient to single nodes.

    Differs: the released code's heads are `--head residual`; its loss is smaller by 2 log 2, a constant; its option to
    match embeddings to a uniform prior (off by default) is left out. As in that code the mean is over all nodes, so a
    graph counts by its size.

    Args:
        model: encoder and projector; the encoder gives nodes too, as `gin` and `gine` do.
        loss: of nodes, their graphs, and the others; `jsd` is the paper's.

    Raises:
        InputError: an encoder without `with_nodes`, a loss without external negatives or with `negatives="all"`; when
            called: fewer than two graphs.

    References:
        Sun et al., "InfoGraph: Unsupervised and Semi-supervised Graph-Level Representation Learning via Mutual
        Information Maximization", ICLR 2020, Eq. 4 (arXiv 1908.01000).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews) -> None:
        super().__init__(model, loss)
        need(self.loss, ("queue", "symmetric"), "infograph")
        if self.setting("negatives") == "all":
            raise InputError("`negatives` all means nothing to method `infograph`: a node's are the other graphs.")
        model.node_encoder()
        self.local = model.new_head()

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """See `Method`; of the nodes that were compared, `Outcome` shows the first of each graph."""
        if view1.num_graphs < 2:
            raise InputError(f"method `infograph` needs at least two graphs in a batch, got {view1.num_graphs}.")
        h, nodes = self.model.encode_nodes(view1)
        anchors, graphs = self.local(nodes), self.model.projector(h)
        number = torch.arange(nodes.size(0), device=h.device)
        # Own graphs first: they have the numbers of their places; those of other ranks have greater ones.
        queue = torch.cat([graphs, ranks.others(graphs)]) if ranks.size() > 1 else graphs
        others = {"queue": queue, "ids": view1.batch, "queue_ids": torch.arange(queue.size(0), device=h.device)}
        own = graphs.index_select(0, view1.batch)
        value = self.loss(anchors, own, negatives="queue", symmetric=False, **others)
        value = ranks.part_of_mean(value, nodes.size(0))
        first = number.new_full((view1.num_graphs,), nodes.size(0) - 1).scatter_reduce_(0, view1.batch, number, "amin")
        return Outcome(value, h, anchors.index_select(0, first), graphs)
