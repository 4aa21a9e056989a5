"""The method of CLIP: contrast every graph with a vector that describes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.arguments import Count
from graphcl.errors import InputError, reason
from graphcl.methods.method import LossOfViews, Method, Outcome, require_ids, require_repulsion
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import methods


@methods.register("clip", views="identity", pairs="no")
class CLIP(Method):
    r"""CLIP: contrast every graph with a vector that describes it, such as the descriptors of a molecule.

    $$L(g(f(G_i)), q(d_i))$$

    where f is the encoder, g the projector and L the loss. d_i is the vector of graph i; each column is standardised
    over the data set and clamped to -5 .. 5. q is an MLP with one hidden layer; it is not part of the encoder.

    The graph is the first view; the second view is ignored. In a configuration both views are `identity`.

    Args:
        model: encoder and projector.
        loss: loss of the projections of graphs and vectors.
        num_graphs: number of graphs in the data set.
        vectors: .npy file of numbers `[num_graphs, d]`, one row per graph of the data set, in its order. Rows of a
            table that are left out, such as invalid SMILES, have no row here.
        hidden_channels: width of the hidden layer of q.

    Raises:
        InputError: the file cannot be read, or does not hold one row of finite numbers per graph; the loss has no
            negatives; when called: `ids` are missing.

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021
        (arXiv 2103.00020), section 2.3.

    Differs: the paper learns the temperature, here it is constant; the paper augments by random crops.
    """

    vectors: Tensor

    def __init__(
        self,
        model: ContrastiveModel,
        loss: LossOfViews,
        num_graphs: int,
        *,
        vectors: str = "",
        hidden_channels: Count = 512,
    ) -> None:
        super().__init__(model, loss)
        require_repulsion(self.loss, "clip")
        rows = standardise(read_vectors(vectors, num_graphs))
        self.register_buffer("vectors", torch.from_numpy(rows).float(), persistent=False)
        self.projector = nn.Sequential(
            nn.Linear(rows.shape[1], hidden_channels), nn.ReLU(), nn.Linear(hidden_channels, model.projection)
        )

    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch, see `Method`."""
        h = self.model.encode(view1)
        z1, z2 = self.model.projector(h), self.projector(self.vectors[require_ids(ids, "clip")])
        return Outcome(self.loss(z1, z2), h, z1, z2)


def read_vectors(file: str, num_graphs: int) -> np.ndarray:
    """Return the matrix `[num_graphs, d]` in a .npy file, as `float64`; raise InputError if it holds something else."""
    if not file:
        raise InputError("method `clip` needs `vectors`, a .npy file with one row of numbers per graph.")
    try:
        rows = np.load(Path(file).expanduser(), allow_pickle=False)
    except Exception as error:  # a damaged file can raise any exception, so catch all
        why = reason(error).partition(" If you trust")[0].rstrip(".")  # never advise to unpickle
        raise InputError(f"cannot read `vectors` {file!r}: {why}.") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "fiub" or not rows.size:
        found = f"{list(rows.shape)} of {rows.dtype}" if isinstance(rows, np.ndarray) else "several arrays"
        raise InputError(f"`vectors` must be a file of numbers [n, d], one row per graph; {file} holds {found}.")
    if len(rows) != num_graphs:
        raise InputError(f"`vectors` must have one row per graph: {file} has {len(rows)}, the data set {num_graphs}.")
    rows = rows.astype(np.float64)
    if not np.isfinite(rows).all():
        raise InputError(f"`vectors` {file} has NaN, infinity or numbers above 1e308; replace them.")
    return rows


def standardise(rows: np.ndarray) -> np.ndarray:
    """Return `rows [n, d]` with columns of mean 0 and deviation 1, clamped to -5 .. 5; constant columns become 0."""
    # Scale columns to at most 1, by a power of two, which does not round; else squares may over- or underflow.
    _, exponent = np.frexp(np.abs(rows).max(axis=0))
    rows = np.ldexp(rows, -exponent)
    centred = rows - rows.mean(axis=0)
    deviation = centred.std(axis=0)
    return np.clip(centred / np.where(deviation > 0, deviation, 1), -5, 5)  # so that outliers do not dominate
