"""GIN of Hu et al. (ICLR 2020) for molecules, and a reader of published weights of that form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphcl.arguments import Channels, Layers
from graphcl.errors import InputError
from graphcl.models.batchnorm import Parts, normalise
from graphcl.models.encoder import Aggregate, GraphEncoder, Readout
from graphcl.models.saved import EncoderDescription, EncoderName, Weights
from graphcl.registry import encoders

MASKED_ATOM, SELF_LOOP, MASKED_BOND = 119, 4, 5
"""Rows of the tables of elements and bond types that no atom and no bond has."""
ATOMS, BONDS = (120, 3), (6, 3)
"""Rows of the tables: element, chirality; bond type, bond direction."""


class _Conv(nn.Module):
    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        wide = 2 * hidden_channels
        self.mlp = nn.Sequential(nn.Linear(hidden_channels, wide), nn.ReLU(), nn.Linear(wide, hidden_channels))
        self.edge_embedding1, self.edge_embedding2 = (_table(size, hidden_channels) for size in BONDS)


def _table(size: int, hidden_channels: int) -> nn.Embedding:
    table = nn.Embedding(size, hidden_channels)
    nn.init.xavier_uniform_(table.weight)
    return table


def _rows(values: Tensor, sizes: tuple[int, int], masked: int, name: str) -> tuple[Tensor, Tensor]:
    """Return the rows in the two tables: of a masked node or bond, `masked` and 0; unknown ones raise on the CPU."""
    if values.dim() != 2 or values.size(1) != 2 or values.is_floating_point():
        kind = f"{list(values.shape)} of {str(values.dtype).removeprefix('torch.')}"
        raise InputError(f"MoleculeGIN takes integer `{name}` of shape [*, 2], got {kind}; pass --coding hu.")
    fills = (masked, 0)
    rows = tuple(column.masked_fill(column == -1, fill) for column, fill in zip(values.T, fills, strict=True))
    valid = [((row >= 0) & (row < size)).all() for row, size in zip(rows, sizes, strict=True)]
    if not values.is_cuda and not all(valid):
        raise InputError(f"`{name}` must be in 0 .. {sizes[0] - 1} and 0 .. {sizes[1] - 1} (-1: masked).")
    return rows[0], rows[1]


@encoders.register("molecule_gin", x="categories")
class MoleculeGIN(GraphEncoder):
    r"""GIN for molecules with two columns of atoms and two of bonds, as Hu et al. pretrain it.

    $$x_v^{(0)} = A_1[a_{v1}] + A_2[a_{v2}], \qquad x_v^{(l)} = \rho(\mathrm{BN}(\mathrm{MLP}^{(l)}(
    \sum_{u \in N(v) \cup \{v\}} x_u^{(l-1)} + B_1^{(l)}[b_{uv1}] + B_2^{(l)}[b_{uv2}]))), \qquad
    h_G = \operatorname{mean}_{v \in G} x_v^{(L)}$$

    where $a_v$ are element and chirality of atom v, $b_{uv}$ type and direction of a bond; a self-loop has type 4.
    $\rho$ is ReLU, and the identity after the last layer. Perceptrons have widths H, 2H, H. Weights have the names of
    the released code, so that `load_encoder` reads its `.pth` files; `--coding hu` makes graphs with these columns.

    Args:
        in_channels: number of atom columns, always 2.
        edge_dim: number of bond columns, always 2.
        hidden_channels: H, width of each layer and of the embeddings.
        num_layers: L, number of layers.
        readout: `mean`, `sum` or `max` over a graph's atoms.

    Attributes:
        drop: function of the nodes' rows that follows each layer in training, such as dropout in fine-tuning.

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265). You et al., "Graph
        Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902).
    """

    supports_edge_attr = True

    def __init__(
        self,
        in_channels: int,
        edge_dim: int,
        hidden_channels: Channels = 300,
        num_layers: Layers = 5,
        readout: Readout = "mean",
    ) -> None:
        super().__init__(in_channels, readout)
        if (in_channels, edge_dim) != (2, 2):
            raise InputError(
                f"encoder `molecule_gin` takes 2 columns of `x` and 2 of `edge_attr`, got {in_channels} and {edge_dim};"
                " pass --coding hu with a table of molecules, or use molecule_gine."
            )
        self.out_channels = hidden_channels
        self.drop: Callable[[Tensor], Tensor] | None = None
        self.x_embedding1, self.x_embedding2 = (_table(size, hidden_channels) for size in ATOMS)
        self.gnns = nn.ModuleList(_Conv(hidden_channels) for _ in range(num_layers))
        self.batch_norms = nn.ModuleList(nn.BatchNorm1d(hidden_channels) for _ in range(num_layers))

    def levels(self, x: Tensor, aggregate: Aggregate, parts: Parts) -> Iterator[Tensor]:
        """Yield the node representations `[N, H]` of the last layer."""
        element, chirality = _rows(x, ATOMS, MASKED_ATOM, "x")
        nodes = self.x_embedding1(element) + self.x_embedding2(chirality)
        conv: Any
        for number, (conv, norm) in enumerate(zip(self.gnns, self.batch_norms, strict=True), start=1):
            loop = conv.edge_embedding1.weight[SELF_LOOP] + conv.edge_embedding2.weight[0]
            nodes = normalise(norm, conv.mlp(aggregate(conv, nodes) + loop), parts)
            nodes = nodes.relu() if number < len(self.gnns) else nodes
            nodes = self.drop(nodes) if self.training and self.drop is not None else nodes
        yield nodes

    def message(self, layer: Any, rows: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Return the messages x_u + bond embedding `[E, H]`; `rows` holds x_u."""
        assert edge_attr is not None
        kind, direction = _rows(edge_attr, BONDS, MASKED_BOND, "edge_attr")
        return rows + layer.edge_embedding1(kind) + layer.edge_embedding2(direction)

    @staticmethod
    def read_published(file: Path) -> tuple[EncoderDescription, Weights] | None:
        """Return the encoder in a `.pth` file of the released code of Hu et al. or of GraphCL; None for another form.

        Such a file holds a state dict, also in PyTorch's form before 1.6. It is read without running code.
        """
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # a corrupted file can raise any exception; the caller reports it
            return None
        if not isinstance(state, dict) or not all(isinstance(weight, Tensor) for weight in state.values()):
            return None
        layers = {int(found[1]) for key in state if (found := re.match(r"gnns\.(\d{1,3})\.", str(key)))}
        table = state.get("x_embedding1.weight")
        if table is None or table.dim() != 2 or not layers:
            what = "a state dict without `x_embedding1.weight` and `gnns.0`"
            raise InputError(f"{file} holds {what}; of published weights, those of Hu et al.'s GIN are read.")
        arguments = {"hidden_channels": table.size(1), "num_layers": max(layers) + 1}
        description = EncoderDescription(
            encoder=EncoderName(name="molecule_gin", arguments=arguments), in_channels=2, out_channels=table.size(1),
            edge_dim=2, dataset=file.stem, features="labels", max_degree=1, label_columns=2, settings={"coding": "hu"},
        )  # fmt: skip
        return description, {0: dict(state)}
