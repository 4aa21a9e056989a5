"""Masking of nodes (You et al. 2020) and of feature columns (Zhu et al. 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.transform import Augmentation, Decision
from graphcl.errors import InputError
from graphcl.graphs.batching import MASK, Layout
from graphcl.graphs.segment import nonzero, pick, random_subset, ratio_count, to_device
from graphcl.registry import augmentations


@augmentations.register("attribute_mask")
class AttributeMask(Augmentation):
    r"""Replace the features of floor(ratio n) uniformly drawn nodes in each graph of n nodes.

    | `fill`     | a masked row of `x` becomes                                      |
    |------------|------------------------------------------------------------------|
    | `gaussian` | independent noise of mean 0.5 and deviation 0.5, as GraphCL does |
    | `zero`     | zeros                                                            |
    | `mean`     | the mean row of `x` over all nodes of the batch                  |

    Integer `x` holds categories, such as the elements of atoms, to which noise cannot be added. There, `gaussian`
    writes -1 (`MASK`); an encoder of categories learns an embedding of this value.

    Args:
        ratio: fraction of the nodes to mask, in [0, 1).
        fill: replacement of a row, see the table; `mean` requires floating-point `x`.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> masked = AttributeMask(ratio=0.5, fill="zero")(graph)
        >>> int((masked.x == 0).all(dim=1).sum()) == graph.num_nodes // 2
        True

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, Section 3.1 (arXiv 2010.13902);
        the noise follows their released code.
    """

    def __init__(self, ratio: Ratio = 0.2, fill: Literal["gaussian", "zero", "mean"] = "gaussian") -> None:
        self.ratio, self.fill = ratio, fill

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the drawn nodes to mask and their new features."""
        x = batch.get("x")
        if x is None:
            raise InputError("attribute_mask needs node features `x`; add them, as PyG's Constant does.")
        whole = not x.is_floating_point()
        if whole and (self.fill == "mean" or (self.fill == "gaussian" and not x.dtype.is_signed)):
            raise InputError(f"attribute_mask with fill={self.fill!r} needs floating-point `x`, got {x.dtype}.")
        layout = Layout.of(batch)
        count = ratio_count(self.ratio, layout.host_nodes)
        k = to_device(count, x.device)
        chosen = random_subset(layout.ptr, k if graphs is None else k * graphs, generator, layout.batch)
        masked = nonzero(chosen, int(count.sum()) if graphs is None and x.is_cuda else None)
        rows = (masked.numel(), *x.shape[1:])
        if self.fill == "gaussian" and whole:
            features = x.new_full(rows, MASK)
        elif self.fill == "gaussian":
            noise = torch.randn(rows, generator=generator, device=x.device, dtype=x.dtype)
            features = noise.mul_(0.5).add_(0.5)
        else:
            features = (x.mean(dim=0, keepdim=True) if self.fill == "mean" else x.new_zeros(())).expand(rows)
        return Decision(masked=masked, features=features)


@augmentations.register("feature_mask")
class FeatureMask(Augmentation):
    r"""Set random columns of each graph's node features to zero, each with probability `ratio`.

    $$\tilde x_v = x_v \circ m_g, \qquad m_{gk} \sim \mathrm{Bernoulli}(1 - p)$$

    where v is a node of graph g, k a column and p is `ratio`. All nodes of a graph lose the same columns.

    Args:
        ratio: probability p of masking a column, in [0, 1).

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1, avg_num_nodes=20)[0]
        >>> masked = FeatureMask(ratio=0.5)(graph)
        >>> bool(((masked.x == graph.x) | (masked.x == 0)).all())
        True

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Section 3.2.2 (arXiv 2006.04131).
    """

    def __init__(self, ratio: Ratio = 0.2) -> None:
        self.ratio = ratio

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision with the features after masking."""
        x = batch.get("x")
        if x is None or not x.is_floating_point():
            kind = "none" if x is None else x.dtype
            raise InputError(f"feature_mask needs floating-point node features `x`, got {kind}; use edge_drop.")
        layout = Layout.of(batch)
        x = x if x.dim() > 1 else x[:, None]
        keep = torch.rand(layout.num_graphs, x.size(1), generator=generator, device=x.device) >= self.ratio
        if graphs is None:
            nodes, graph = torch.arange(layout.num_nodes, device=x.device), layout.batch
        else:
            nodes = nonzero(pick(graphs, layout.batch))
            x, graph = pick(x, nodes), pick(layout.batch, nodes)
        return Decision(masked=nodes, features=(x * pick(keep, graph)).view(-1, *batch.x.shape[1:]))
