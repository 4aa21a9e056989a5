"""Embed molecules: by an encoder of OGB's categories of atoms and bonds, or by fingerprints and descriptors."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from graphcl.arguments import Channels, Layers
from graphcl.errors import InputError
from graphcl.extensions.molecules import import_rdkit
from graphcl.graphs.batching import MASK
from graphcl.models.aggregate import tracing
from graphcl.models.batchnorm import Parts, normalise
from graphcl.models.encoder import Aggregate, GraphEncoder, Readout
from graphcl.models.perceptron import initialise
from graphcl.references.rows import Inputs
from graphcl.registry import encoders, references

ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Number of values of each atom column: element, chirality, degree, charge, hydrogens, radical electrons,
hybridisation, aromatic, in a ring."""
BOND_SIZES = (5, 6, 2)
"""Number of values of each bond column: type, stereo configuration, conjugated."""
JumpingKnowledge = Literal["last", "cat"]
"""Layers whose readout is the embedding: the last one, or all, concatenated."""


class Categories(nn.Module):
    r"""Embedding of rows of categories: the sum of one learnt vector per column.

    $$e_i = \sum_c T_c[x_{ic}]$$

    where $x_{ic}$ is the category in row i and column c, and $T_c$ the table of column c. The last row of each table is
    the vector of `MASK`.

    Args:
        sizes: number of values of each column.
        hidden_channels: H, width of the embeddings, Xavier-initialised.
        name: name of the input in error messages.
    """

    sizes: Tensor
    start: Tensor

    def __init__(self, sizes: Sequence[int], hidden_channels: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.tables = nn.Parameter(torch.empty(sum(sizes) + len(sizes), hidden_channels))
        rows = torch.tensor(sizes) + 1
        self.register_buffer("sizes", rows - 1, persistent=False)
        self.register_buffer("start", rows.cumsum(0) - rows, persistent=False)
        with torch.no_grad():
            for table in self.split():
                nn.init.xavier_uniform_(table)

    def split(self) -> tuple[Tensor, ...]:
        """Return one table `[size + 1, H]` per column."""
        return self.tables.split([size + 1 for size in self.sizes.tolist()])

    def forward(self, values: Tensor) -> Tensor:
        """Return the embeddings `[N, H]` of the categories `values [N, columns]`; unknown ones raise on the CPU."""
        if values.dim() != 2 or values.size(1) != len(self.sizes) or values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise InputError(
                f"MoleculeGINE takes integer `{self.name}` of shape [*, {len(self.sizes)}], as in OGB's molecules, "
                f"got {list(values.shape)} of {kind}; use gin or gine."
            )
        rows = self.start + torch.where(values == MASK, self.sizes, values)
        if tracing():  # values cannot be checked here, and not every export format supports embedding_bag
            return self.tables[rows].sum(dim=1)
        valid = (values >= MASK) & (values < self.sizes)
        # On CUDA the check would synchronise. There, unknown categories get an invalid row, so CUDA raises an error.
        if not values.is_cuda and not bool(valid.all()):
            row, column = (~valid).nonzero()[0].tolist()
            raise InputError(
                f"column {column} of `{self.name}` must be in 0 .. {int(self.sizes[column]) - 1} ({MASK}: masked), got "
                f"{int(values[row, column])} in row {row}."
            )
        rows = torch.where(valid, rows, self.tables.size(0))
        if not rows.numel():  # return early, as embedding_bag raises an error for empty input
            return self.tables.new_zeros(0, self.tables.size(1))
        return embedding_bag(rows, self.tables, mode="sum")


class _Layer(nn.Module):
    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        self.bonds = Categories(BOND_SIZES, hidden_channels, "edge_attr")
        self.nn = nn.Sequential(
            nn.Linear(hidden_channels, 2 * hidden_channels), nn.ReLU(), nn.Linear(2 * hidden_channels, hidden_channels)
        )
        self.norm = nn.BatchNorm1d(hidden_channels)
        initialise(self.nn)


@encoders.register("molecule_gine", x="categories")
class MoleculeGINE(GraphEncoder):
    r"""GINE for OGB's molecule data sets, with categorical atoms `x [N, 9]` and bonds `edge_attr [E, 3]`.

    $$x_v^{(0)} = \sum_c A_c[a_{vc}], \qquad x_v^{(l)} = \rho(\mathrm{BN}(\mathrm{MLP}^{(l)}(x_v^{(l-1)} +
    \sum_{u \to v} \mathrm{ReLU}(x_u^{(l-1)} + \sum_c B_c^{(l)}[b_{uvc}])))), \qquad
    h_G = \operatorname{mean}_{v \in G} x_v^{(L)}$$

    where $a_{vc}$ and $b_{uvc}$ are the categories of atom v and of the bond from u to v in column c, and $A_c$ and
    $B_c^{(l)}$ their embedding tables. $\rho$ is ReLU, and the identity after the last layer. Perceptrons have widths
    H, 2H, H and are Xavier-initialised. Every table has a learnt row for the value `MASK`. With `jk="cat"`, $h_G$
    concatenates the readouts of $x^{(0)}, \dots, x^{(L)}$ ("jumping knowledge").

    Args:
        in_channels: number of atom columns, always 9.
        edge_dim: number of bond columns, always 3.
        hidden_channels: H, width of each layer. Embeddings have H columns, or (L + 1) * H with `jk="cat"`.
        num_layers: L, number of layers.
        readout: `mean`, `sum` or `max` over a graph's atoms.
        jk: `last`, the readout of the last layer, or `cat`, that of all layers and of the atoms' embeddings.

    Raises:
        InputError: `in_channels` is not 9 or `edge_dim` is not 3. When called: `edge_attr` is missing, or `x` or
            `edge_attr` has a wrong shape or dtype or an unknown category.

    Example:
        >>> encoder = MoleculeGINE(9, 3, hidden_channels=16, num_layers=2)
        >>> x, bonds = torch.zeros(2, 9, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long)
        >>> encoder(x, torch.tensor([[0], [1]]), edge_attr=bonds).shape
        torch.Size([1, 16])

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265): width, depth and
        readout. Xu et al., "Representation Learning on Graphs with Jumping Knowledge Networks", ICML 2018 (arXiv
        1806.03536): `jk`. Hu et al., "Open Graph Benchmark", NeurIPS 2020 (arXiv 2005.00687).

    Differs: Hu et al. (ICLR 2020) add self-loops with their own bond type, use no ReLU on messages, and use dropout.
    """

    supports_edge_attr = True

    def __init__(
        self,
        in_channels: int,
        edge_dim: int,
        hidden_channels: Channels = 300,
        num_layers: Layers = 5,
        readout: Readout = "mean",
        jk: JumpingKnowledge = "last",
    ) -> None:
        super().__init__(in_channels, readout)
        if (in_channels, edge_dim) != (len(ATOM_SIZES), len(BOND_SIZES)):
            raise InputError(
                f"encoder `molecule_gine` takes {len(ATOM_SIZES)} columns of `x` and {len(BOND_SIZES)} of `edge_attr`, "
                f"as in OGB's molecules, got {in_channels} and {edge_dim}; use gin or gine."
            )
        self.jk = jk
        self.out_channels = (num_layers + 1) * hidden_channels if jk == "cat" else hidden_channels
        self.atoms = Categories(ATOM_SIZES, hidden_channels, "x")
        self.layers = nn.ModuleList(_Layer(hidden_channels) for _ in range(num_layers))

    def levels(self, x: Tensor, aggregate: Aggregate, parts: Parts) -> Iterator[Tensor]:
        """Yield the node representations `[N, H]` of the last layer, or of all with `jk="cat"`."""
        nodes = self.atoms(x)
        layer: Any
        for number, layer in enumerate(self.layers, start=1):
            if self.jk == "cat":
                yield nodes
            nodes = normalise(layer.norm, layer.nn(aggregate(layer, nodes)), parts)
            if number < len(self.layers):
                nodes = nodes.relu()
        yield nodes

    def message(self, layer: Any, rows: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Return the messages ReLU(x_u + bond embedding) `[E, H]`; `rows` holds x_u."""
        return (rows + layer.bonds(edge_attr)).relu()


NEEDS = "graph.smiles module.rdkit"


@references.register("ecfp4", label="ECFP4 fingerprints", needs=NEEDS, after="calibrated")
def ecfp4_row(inputs: Inputs) -> Tensor:
    """Return `ecfp4` of the molecules."""
    return ecfp4(_smiles(inputs))


@references.register("ecfp4_counts", label="ECFP4 counts", needs=NEEDS, after="ecfp4")
def ecfp4_counts_row(inputs: Inputs) -> Tensor:
    """Return `ecfp4_counts` of the molecules."""
    return ecfp4_counts(_smiles(inputs))


@references.register("descriptors", label="RDKit descriptors", needs=NEEDS, after="ecfp4_counts")
def descriptors_row(inputs: Inputs) -> Tensor:
    """Return `descriptors` of the molecules."""
    return descriptors(_smiles(inputs))


@references.register(
    "descriptors+trained", label="descriptors + trained", needs=f"{NEEDS} dense trained", after="bag_trained"
)
def descriptors_and_trained(inputs: Inputs) -> Tensor:
    """Return descriptors and embeddings by the trained encoder side by side."""
    assert inputs.trained is not None
    return side_by_side(descriptors(_smiles(inputs)), inputs.trained[: len(inputs.dataset)])


def _smiles(inputs: Inputs) -> tuple[str, ...]:
    return tuple(side._data.smiles[index] for side in inputs.dataset.sides for index in side.indices())


def side_by_side(*embeddings: Tensor) -> Tensor:
    """Return embeddings `[n, columns]` side by side, each column standardised over the graphs, in float64."""
    h = torch.cat(embeddings, dim=1).double()
    deviation = h.std(0, correction=0)
    return (h - h.mean(0)) / deviation.where(deviation > 0, 1)


@functools.lru_cache(maxsize=1)
def ecfp4(smiles: tuple[str, ...]) -> Tensor:
    """Return the extended-connectivity fingerprints of radius 2 with 2048 bits, `[n, 2048]` of 0 and 1.

    Args:
        smiles: n valid SMILES.

    Reference: Rogers and Hahn, "Extended-Connectivity Fingerprints", J. Chem. Inf. Model. 50, 2010.
    """
    return _morgan(smiles, "GetFingerprintAsNumPy")


@functools.lru_cache(maxsize=1)
def ecfp4_counts(smiles: tuple[str, ...]) -> Tensor:
    r"""Return the extended-connectivity count fingerprints of radius 2, `[n, 2048]`.

    $$\log(1 + c)$$

    where c is the number of times that an environment of the column occurs in the molecule. The logarithm keeps
    frequent environments from dominating a linear probe; a forest depends on the order of the counts only.

    Args:
        smiles: n valid SMILES.
    """
    return _morgan(smiles, "GetCountFingerprintAsNumPy").log1p()


def _morgan(smiles: tuple[str, ...], kind: str) -> Tensor:
    chem = import_rdkit("Chem")
    generator = import_rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(radius=2, fpSize=2048)
    with import_rdkit("rdBase").BlockLogs():
        rows = [getattr(generator, kind)(chem.MolFromSmiles(text)) for text in smiles]
    return torch.from_numpy(np.stack(rows)).float()


@functools.lru_cache(maxsize=1)
def descriptors(smiles: tuple[str, ...]) -> Tensor:
    r"""Return all of RDKit's descriptors, about 200 columns: masses, counts, surfaces, charges, lipophilicity.

    $$\operatorname{sign}(d) \log(1 + |d|)$$

    where d is the value of a descriptor; the logarithm is needed because some values span many orders of magnitude. A
    descriptor that RDKit cannot compute is 0. The computation takes a few milliseconds per molecule.

    Args:
        smiles: n valid SMILES.
    """
    chem, calculator = import_rdkit("Chem"), import_rdkit("Chem.Descriptors")
    with import_rdkit("rdBase").BlockLogs():
        rows = [list(calculator.CalcMolDescriptors(chem.MolFromSmiles(text)).values()) for text in smiles]
    values = np.nan_to_num(np.array(rows, dtype=np.float64), posinf=0, neginf=0)
    return torch.from_numpy(np.sign(values) * np.log1p(np.abs(values))).float()
