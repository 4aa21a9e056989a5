"""Methods that contrast the nodes of one graph.

| method  | positive of each anchor                | negatives           | state                       |
|---------|----------------------------------------|---------------------|-----------------------------|
| `grace` | same node, other view                  | nodes of both views | none                        |
| `bgrl`  | same node, momentum encoder, predicted | none                | momentum encoder, predictor |
| `dgi`   | summary of the graph                   | corrupted nodes     | discriminator               |
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch_geometric.data import Batch

from graphcl.arguments import Channels, Count, Fraction
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.losses.rows import at_least_float32
from graphcl.methods import BYOL
from graphcl.methods.method import LossOfViews, Method, Outcome, ema_update, require_repulsion
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods

_USUAL = "epochs=200 lr=0.001 encoder=node_gcn eval=[random_splits]"


@methods.register("grace", rows="nodes", usual_views="drop_and_mask", loss="nt_xent", usual=f"{_USUAL} projector=elu")
class GRACE(Method):
    r"""GRACE: contrast every node with the same node of the other view; negatives are the other nodes of both views.

    $$\frac{1}{2N} \sum_i \ell(u_i, v_i) + \ell(v_i, u_i), \qquad \ell(u_i, v_i) = -\log
    \frac{e^{\theta(u_i, v_i) / \tau}}{e^{\theta(u_i, v_i) / \tau} + \sum_{k \ne i} e^{\theta(u_i, v_k) / \tau}
    + \sum_{k \ne i} e^{\theta(u_i, u_k) / \tau}}$$

    Here u_i and v_i are the projections of node i in the two views, theta the cosine and tau the temperature. This is
    the loss `nt_xent`; any other loss of two views fits. The model is a
    `graphcl.extensions.nodes.models.NodeModel`, and both views keep all nodes.

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
        return Outcome(self.loss(z1, z2, **self.draws(generator)), h, z1, z2)


@methods.register("dgi", rows="nodes", views="identity", loss="jsd", usual=f"{_USUAL} projector=none")
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


@methods.register(
    "bgrl", rows="nodes", pairs="no", usual_views="drop_and_mask", loss="byol", usual=f"{_USUAL} projector=none"
)
class BGRL(BYOL):
    r"""BGRL: predict the momentum encoder's row of the same node in the other view, without negatives.

    $$-\frac{2}{N} \sum_i \cos(p(h_{1,i}), h'_{2,i}), \qquad m_k = 1 - (1 - m) \frac{\cos(\pi k / K) + 1}{2}$$

    Here h are the encoder's and h' the momentum encoder's rows of node i, p is the predictor (Linear, PReLU, Linear),
    and m_k is the momentum after step k. The formula is averaged over both directions; the loss `byol` adds the
    constant 2, so that it is in [0, 4]. The paper has no projector: `--projector none`, the default in a configuration.

    Differs: the momentum is constant unless `rise` is given; the paper raises it over all steps of training.

    Args:
        model: encoder and projector.
        loss: loss of predictions and targets, such as `byol`.
        momentum: momentum m at the first step, in [0, 1].
        hidden_channels: width of the predictor's hidden layer.
        rise: K, number of steps in which the momentum rises from m to 1 along a cosine; constant by default.

    References:
        Thakoor et al., "Large-Scale Representation Learning on Graphs via Bootstrapping", ICLR 2022 (arXiv
        2102.06514).
    """

    in_pieces = capturable = False

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        *,
        momentum: Fraction = 0.99,
        hidden_channels: Channels = 512,
        rise: Count | None = None,
    ) -> None:
        super().__init__(model, loss, momentum=momentum, hidden_channels=hidden_channels)
        width = model.projection
        self.predictor = nn.Sequential(nn.Linear(width, hidden_channels), nn.PReLU(), nn.Linear(hidden_channels, width))
        self.rise = rise
        self.step = 0

    def after_step(self) -> None:
        """Update the momentum encoder."""
        momentum = self.momentum
        if self.rise is not None:
            part = min(self.step / self.rise, 1.0)
            momentum = 1 - (1 - momentum) * (math.cos(math.pi * part) + 1) / 2
        ema_update(self.momentum_model, self.model, momentum)
        self.step += 1

    def get_extra_state(self) -> int:
        """Return the number of finished steps, which `state_dict` saves."""
        return self.step

    def set_extra_state(self, state: int) -> None:
        """Set the number of finished steps."""
        self.step = state
