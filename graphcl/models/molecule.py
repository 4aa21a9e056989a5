"""An encoder of molecules as OGB describes them: whole numbers for each atom and bond, through embedding tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from graphcl.arguments import Count
from graphcl.errors import InputError
from graphcl.models.aggregate import Groups, group_sum, spread
from graphcl.models.gin import Readout, graph_groups
from graphcl.registry import encoders

ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Values of an atom's columns: element, chirality, degree, charge, hydrogens, radical electrons, hybridisation,
whether aromatic, whether in a ring."""
BOND_SIZES = (5, 6, 2)
"""Values of a bond's columns: type, stereo configuration, whether conjugated."""
MASK = -1
"""The value that stands for a masked one; `attribute_mask` writes it."""


class Categories(nn.Module):
    r"""The sum of a row's embeddings, each column from a table of its own, in which the last row is that of `MASK`.

    $$e_i = \sum_c T_c[x_{ic}]$$

    Args:
        sizes: how many values each column has.
        hidden: H, width of the embeddings, Xavier-initialised.
        what: what the rows are, for messages.

    Example:
        >>> bonds = Categories(BOND_SIZES, hidden=16, what="edge_attr")
        >>> bonds(torch.tensor([[3, 0, 1], [MASK, MASK, MASK]])).shape
        torch.Size([2, 16])
    """

    sizes: Tensor
    start: Tensor

    def __init__(self, sizes: Sequence[int], hidden: int, what: str) -> None:
        super().__init__()
        self.what = what
        self.tables = nn.Parameter(torch.empty(sum(sizes) + len(sizes), hidden))
        rows = torch.tensor(sizes) + 1
        self.register_buffer("sizes", rows - 1, persistent=False)
        self.register_buffer("start", rows.cumsum(0) - rows, persistent=False)
        with torch.no_grad():
            for table in self.split():
                nn.init.xavier_uniform_(table)

    def split(self) -> tuple[Tensor, ...]:
        """The tables `[size + 1, H]`, column by column."""
        return self.tables.split([size + 1 for size in self.sizes.tolist()])

    def forward(self, values: Tensor) -> Tensor:
        """Embeddings `[N, H]` of `values [N, columns]`, whole numbers.

        Raises:
            InputError: other columns, other numbers than whole ones, or (on the CPU) values that a table does not have.
        """
        if values.dim() != 2 or values.size(1) != len(self.sizes) or values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise InputError(
                f"encoder `molecule_gine` takes `{self.what}` [*, {len(self.sizes)}] of whole numbers, as OGB's "
                f"molecules have it, got {list(values.shape)} of {kind}; use gin or gine."
            )
        there = (values >= MASK) & (values < self.sizes)
        # A look would wait for the device. There, the row that is picked instead does not exist, which CUDA reports.
        if not values.is_cuda and not bool(there.all()):
            row, column = (~there).nonzero()[0].tolist()
            raise InputError(
                f"column {column} of `{self.what}` must be in 0 .. {int(self.sizes[column]) - 1} ({MASK}: masked), got "
                f"{int(values[row, column])} in row {row}."
            )
        rows = self.start + torch.where(values == MASK, self.sizes, values)
        rows = torch.where(there, rows, self.tables.size(0))
        if not rows.numel():  # no bond in the whole batch
            return self.tables.new_zeros(0, self.tables.size(1))
        total: Tensor = embedding_bag(rows, self.tables, mode="sum")
        return total


class _Layer(nn.Module):
    """A perceptron, the bonds' embedding, and BatchNorm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.bonds = Categories(BOND_SIZES, hidden, "edge_attr")
        self.nn = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))
        self.norm = nn.BatchNorm1d(hidden)
        for layer in self.nn:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)


@encoders.register("molecule_gine", x="categories")
class MoleculeGINE(nn.Module):
    r"""GINE on embedded atoms and bonds; for OGB's molecules, `x [N, 9]` and `edge_attr [E, 3]`.

    $$x_v^{(0)} = \sum_c A_c[a_{vc}], \qquad x_v^{(l)} = \rho(\mathrm{BN}(\mathrm{MLP}^{(l)}(x_v^{(l-1)} +
    \sum_{u \to v} \mathrm{ReLU}(x_u^{(l-1)} + \sum_c B_c^{(l)}[b_{uvc}])))), \qquad
    h_G = \operatorname{mean}_{v \in G} x_v^{(L)}$$

    where rho is ReLU, but none after the last layer; perceptrons of widths H, 2H, H, Xavier-initialised. A value of
    `MASK` has a learnt row of its own in every table.

    Args:
        in_channels: columns of an atom, 9.
        edge_dim: columns of a bond, 3.
        hidden: H, width of each layer and of the embedding.
        layers: L, number of layers.
        readout: `mean` over a graph's atoms, or their `sum`.

    Raises:
        InputError: other numbers of columns; or (when called) see `Categories`, or there is no `edge_attr`.

    Example:
        >>> encoder = MoleculeGINE(9, 3, hidden=16, layers=2)
        >>> x, bonds = torch.zeros(2, 9, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long)
        >>> encoder(x, torch.tensor([[0], [1]]), edge_attr=bonds).shape
        torch.Size([1, 16])

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), whose width, depth
        and readout these are; Hu et al., "Open Graph Benchmark", NeurIPS 2020 (arXiv 2005.00687).

    Differs: the former adds self-loops with a bond type of their own, has no ReLU on messages, and drops units out.
    """

    def __init__(
        self, in_channels: int, edge_dim: int, hidden: Count = 300, layers: Count = 5, readout: Readout = "mean"
    ) -> None:
        super().__init__()
        if (in_channels, edge_dim) != (len(ATOM_SIZES), len(BOND_SIZES)):
            raise InputError(
                f"encoder `molecule_gine` takes {len(ATOM_SIZES)} columns of `x` and {len(BOND_SIZES)} of `edge_attr`, "
                f"as OGB's molecules have them, got {in_channels} and {edge_dim}; use gin or gine."
            )
        self.readout, self.out_channels = readout, hidden
        self.atoms = Categories(ATOM_SIZES, hidden, "x")
        self.layers = nn.ModuleList(_Layer(hidden) for _ in range(layers))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_attr: Tensor | None = None,
        parts: Sequence[int] | None = None,
    ) -> Tensor:
        """Embeddings `[B, H]` of whole graphs; arguments as for `GIN`, and `edge_attr [E, 3]`, which is required."""
        return self._pooled(self._nodes(x, edge_index, edge_attr, parts), batch, size)

    def with_nodes(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeddings `[B, H]` of whole graphs, and the nodes' rows `[N, H]` that they pool."""
        nodes = self._nodes(x, edge_index, edge_attr, None)
        return self._pooled(nodes, batch, size), nodes

    def _nodes(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, parts: Sequence[int] | None) -> Tensor:
        if edge_attr is None:
            raise InputError("encoder `molecule_gine` needs `edge_attr`, and these graphs have none; use gin.")
        by_source, by_target = (Groups.of(ends, x.size(0)) for ends in edge_index)
        nodes = self.atoms(x)
        for number, layer in enumerate(self.layers, start=1):
            assert isinstance(layer, _Layer)
            messages = (spread(nodes, by_source) + layer.bonds(edge_attr)).relu()
            nodes = _by_part(layer.norm, layer.nn(nodes + group_sum(messages, by_target)), parts)
            if number < len(self.layers):
                nodes = nodes.relu()
        return nodes

    def _pooled(self, nodes: Tensor, batch: Tensor | None, size: int | None) -> Tensor:
        graphs = graph_groups(nodes, batch, size)
        sums = group_sum(nodes, graphs)
        return sums if self.readout == "sum" else sums / graphs.ptr.diff().clamp(min=1)[:, None]


def _by_part(norm: Callable[[Tensor], Tensor], nodes: Tensor, parts: Sequence[int] | None) -> Tensor:
    return norm(nodes) if parts is None else torch.cat([norm(part) for part in nodes.split(list(parts))])
