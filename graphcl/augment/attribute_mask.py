"""Attribute masking (You et al. 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import Ratio
from graphcl.augment.decision import Decision
from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError
from graphcl.graphs.batching import MASK, Layout
from graphcl.graphs.segment import nonzero, random_subset, ratio_count
from graphcl.registry import augmentations


@augmentations.register("attribute_mask")
class AttributeMask(Augmentation):
    r"""Replace the features of floor(ratio n) uniformly drawn nodes in each graph of n nodes.

    | `fill`     | a masked row of `x` becomes                                      |
    |------------|------------------------------------------------------------------|
    | `gaussian` | independent noise of mean 0.5 and deviation 0.5, as GraphCL does |
    | `zero`     | zeros                                                            |
    | `mean`     | the mean row of `x` over all nodes of the batch                  |

    Integer `x` holds categories, such as the elements in OGB's molecules, to which noise cannot be added. There,
    `gaussian` writes -1 (`MASK`); the encoder `molecule_gine` learns an embedding of this value.

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
        k = ratio_count(self.ratio, layout.nodes)
        masked = nonzero(random_subset(layout.ptr, k if graphs is None else k * graphs, generator))
        rows = (masked.numel(), *x.shape[1:])
        if self.fill == "gaussian" and whole:
            features = x.new_full(rows, MASK)
        elif self.fill == "gaussian":
            features = 0.5 + 0.5 * torch.randn(rows, generator=generator, device=x.device, dtype=x.dtype)
        elif self.fill == "mean":
            features = x.mean(dim=0, keepdim=True).expand(rows)
        else:
            features = x.new_zeros(rows)
        return Decision(masked=masked, features=features)
