"""InfoGraph: contrast nodes with graphs (Sun et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.methods.method import LossOfViews, Method, Outcome
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register(
    "infograph",
    views="identity",
    pairs="no",
    loss="jsd",
    anchors="nodes",
    queue="yes",
    sets="negatives=queue symmetric=one-sided",
)
class InfoGraph(Method):
    r"""InfoGraph: contrast node representations with graph embeddings; a node's own graph is its positive.

    $$\frac1N \sum_{v} \mathrm{sp}(-T_{v, G(v)}) + \frac{1}{N (B - 1)} \sum_{v} \sum_{G \ne G(v)} \mathrm{sp}(T_{v, G}),
    \qquad T_{v, G} = \phi(h_v) \cdot \psi(h_G)$$

    Here v is one of N nodes, G one of B graphs, G(v) the graph of v and sp the softplus. h_v are the concatenated layer
    outputs of node v, and h_G is the sum of h_v over the nodes of G. The global projector psi is the model's projector.
    The local projector phi has the same architecture.

    The formula is the loss `jsd`. Any other loss that takes a `queue` fits, such as `infonce`: nodes are anchors, and
    the negatives of a node are the graphs that it does not belong to. Nodes and graphs come from the first view; the
    second view is ignored. The paper uses no augmentation, so in a configuration both views are `identity`.

    Across ranks, G is a graph of any rank and v a node of this rank. The mean over ranks is weighted by the numbers of
    nodes.

    Differs: the released loss is smaller by 2 log 2, and its projectors are `--projector residual`. The option to match
    embeddings to a uniform prior is missing. As in the released code, larger graphs have a larger weight.

    Args:
        model: encoder and projector; the encoder has `with_nodes`, as `gin` and `gine` do.
        loss: loss of nodes, their own graphs and the other graphs; the paper uses `jsd`.

    Raises:
        InputError: the encoder has no `with_nodes`; the loss takes no `queue`, or has `negatives="all"`; when called:
            fewer than two graphs.

    References:
        Sun et al., "InfoGraph: Unsupervised and Semi-supervised Graph-Level Representation Learning via Mutual
        Information Maximization", ICLR 2020, Eq. 4 (arXiv 1908.01000).
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews) -> None:
        super().__init__(model, loss)
        if self.setting("negatives") == "all":
            raise InputError("`negatives` must not be all with method `infograph`; its negatives are the other graphs.")
        model.node_encoder()
        self.local = model.new_projector()
        self._one_sided = self.loss_with(negatives="queue", symmetric=False)

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`; `z1` contains the first node of each graph."""
        if view1.num_graphs < 2:
            raise InputError(f"method `infograph` needs at least two graphs in a batch, got {view1.num_graphs}.")
        h, nodes = self.model.encode_nodes(view1)
        anchors, graphs = self.local(nodes), self.model.projector(h)
        number = torch.arange(nodes.size(0), device=h.device)
        # Put this rank's graphs first, so that a graph's index in the batch is also its index in the queue.
        queue = torch.cat([graphs, ranks.others(graphs)]) if ranks.size() > 1 else graphs
        others = {"queue": queue, "ids": view1.batch, "queue_ids": torch.arange(queue.size(0), device=h.device)}
        value = self._one_sided(anchors, graphs.index_select(0, view1.batch), **others)
        value = ranks.part_of_mean(value, nodes.size(0))
        first = number.new_full((view1.num_graphs,), nodes.size(0) - 1).scatter_reduce_(0, view1.batch, number, "amin")
        return Outcome(value, h, anchors.index_select(0, first), graphs)
