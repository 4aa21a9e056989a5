"""Hold columns of features in few bytes: one-hot blocks and categories as small integers, others in half precision.

`Compact` is a tensor that other operations see as the numbers; they are computed on use. Loaders cut rows of its bytes
and expand them for each batch, on the device of the batch. Expanded values are bit-equal to the original ones: where
fewer bytes would not be exact, a column keeps its dtype.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_NUMBERS = {"float16": 2, "float32": 4, "float64": 8, "uint8": 1, "int16": 2, "int32": 4, "int64": 8}
_SIZES = {"code8": 1, "code16": 2, **_NUMBERS}
"""Kind of a block -> bytes of a code, or of a number."""
_KINDS = {
    torch.float32: ("uint8", "float16", "float32"),
    torch.float64: ("uint8", "float16", "float32", "float64"),
    torch.int64: ("uint8", "int16", "int32", "int64"),
}
"""Dtype of columns -> kinds that may hold their numbers, the smallest first."""
_BITS = {torch.float32: (torch.int32, 0x3F800000), torch.float64: (torch.int64, 0x3FF0000000000000)}
"""Floating dtype -> integer dtype of its bits, and the bits of 1."""
_MANY, _NARROW = 16, 8
"""With more blocks of codes than `_MANY`, as of bags of words, those below this width are numbers: faster to expand."""
ROWS = 2**16
"""Number of rows that are packed or expanded at a time, where all are not needed together."""
Block = tuple[str, int]
"""Kind and number of consecutive columns: `code8` and `code16` are one-hot, or all zero; others are numbers."""


@dataclass(frozen=True)
class Layout:
    """How a row of numbers is stored in bytes: first all codes, in the order of the columns, then the other numbers.

    Args:
        dtype: dtype of the columns: float32, float64 or int64.
        blocks: kinds and widths of the columns.
    """

    dtype: torch.dtype
    blocks: tuple[Block, ...]

    @property
    def width(self) -> int:
        """Number of columns F."""
        return sum(width for _, width in self.blocks)

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row."""
        return sum(_SIZES[kind] * (1 if kind.startswith("code") else width) for kind, width in self.blocks)

    @property
    def is_smaller(self) -> bool:
        """Whether a row takes fewer bytes than its floats."""
        return self.row_bytes < self.width * self.dtype.itemsize

    @cached_property
    def _places(self) -> dict[str, list[tuple[int, int]]]:
        """Kind -> first column and number of columns of each block of this kind."""
        starts = itertools.accumulate((width for _, width in self.blocks), initial=0)
        places: dict[str, list[tuple[int, int]]] = {kind: [] for kind in _SIZES}
        for (kind, width), start in zip(self.blocks, starts, strict=False):
            places[kind].append((start, width))
        return {kind: blocks for kind, blocks in places.items() if blocks}

    def pack(self, x: Tensor) -> Tensor:
        """Return the bytes `[N, row_bytes]` of the rows `x [N, F]`, which must fit this layout."""
        parts = []
        for kind, places in self._places.items():
            if kind.startswith("code"):
                blocks = [x[:, start : start + width] for start, width in places]
                codes = [torch.where(block.any(1), block.argmax(1), block.size(1)) for block in blocks]
                values = torch.stack(codes, 1).to(torch.uint8 if kind == "code8" else torch.uint16)
            else:
                columns = [x[:, start : start + width] for start, width in places]
                values = torch.cat(columns, 1).to(getattr(torch, kind))
            parts.append(values.contiguous().view(torch.uint8))
        return torch.cat(parts, 1) if parts else x.new_empty(len(x), 0, dtype=torch.uint8)

    def expand(self, raw: Tensor) -> Tensor:
        """Return the rows `[N, F]` of bytes `raw [N, row_bytes]`, on their device."""
        out, done = torch.zeros(len(raw), self.width, dtype=self.dtype, device=raw.device), 0
        for kind, places in self._places.items():
            if kind.startswith("code"):
                part = raw[:, done : done + len(places) * _SIZES[kind]]
                done += part.size(1)
                codes = part.long() if kind == "code8" else _viewed(part, torch.int16).long() & 0xFFFF
                starts, last = self._bounds(kind, raw.device)
                # a code beyond the block is a row without a 1
                out.scatter_(1, codes.minimum(last) + starts, (codes <= last).to(self.dtype))
                continue
            count = sum(width for _, width in places)
            part = _viewed(raw[:, done : done + count * _SIZES[kind]], getattr(torch, kind))
            done += count * _SIZES[kind]
            for (start, width), block in zip(places, part.split([width for _, width in places], 1), strict=True):
                out[:, start : start + width] = block
        return out

    def _bounds(self, kind: str, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the first column and the last code of each block of codes, kept on each device."""
        key = kind, device
        if key not in self._kept:
            starts, widths = torch.tensor(self._places[kind]).T
            self._kept[key] = starts.to(device), (widths - 1).to(device)
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[tuple[str, torch.device], tuple[Tensor, Tensor]]:
        return {}


def _viewed(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes as another dtype; a copy, as columns of bytes may lie at any address."""
    return part.clone(memory_format=torch.contiguous_format).view(dtype)


def layout_of(x: Tensor, within: Layout | None = None) -> Layout | None:
    """Return the layout of the fewest bytes for numbers `x [N, F]`; None if they have another form.

    With `within`, rows of that layout fit the result too.
    """
    if x.dim() != 2 or x.dtype not in _KINDS or not x.numel():
        return within
    integers, one = _BITS.get(x.dtype, (x.dtype, -1))
    bits, kinds = x.detach().contiguous().view(integers), _KINDS[x.dtype]
    ones = (bits == one).T.contiguous()
    binary = ((bits == 0).T | ones).all(1).tolist()  # not -0.0
    exact = [(x.to(getattr(torch, kind)).to(x.dtype).view(integers) == bits).all(0) for kind in kinds]
    least = torch.stack(exact).int().argmax(0).tolist()  # the first kind that holds a column
    blocks: list[Block] = []
    column = 0
    former = (("code16", x.size(1)),) if within is None else within.blocks
    for kind, width in former:
        taken: Tensor | None = None  # rows with a 1 in the open block of codes
        for j in range(column, column + width):
            if one > 0 and kind.startswith("code") and binary[j]:
                if taken is None or bool((taken & ones[j]).any()):
                    blocks.append(("code", 0))
                    taken = torch.zeros_like(ones[j])
                blocks[-1] = ("code", blocks[-1][1] + 1)
                taken |= ones[j]
                continue
            before = kinds.index(kind) if kind in kinds else 0
            taken, size = None, kinds[max(before, least[j])]
            blocks.append((size, 1))
        column += width
    return Layout(x.dtype, _merged(blocks)) if x.size(1) < 2**16 else None


def _merged(blocks: list[Block]) -> tuple[Block, ...]:
    """Return the blocks with the size of each code, where neighbours of the same kind of number are one block."""
    many, merged = sum(kind == "code" for kind, _ in blocks) > _MANY, list[Block]()
    for kind, width in blocks:
        if kind == "code":
            kind = "uint8" if many and width < _NARROW else "code8" if width < 256 else "code16"
        if merged and merged[-1][0] == kind and not kind.startswith("code"):
            width += merged.pop()[1]
        merged.append((kind, width))
    return tuple(merged)


class Compact(Tensor):
    """A tensor `[N, F]` that holds bytes of a `Layout`; it cannot be changed in place.

    Rows that are selected are plain tensors; other operations compute all numbers first.
    """

    raw: Tensor
    form: Layout

    @staticmethod
    def __new__(cls, raw: Tensor, layout: Layout) -> Compact:
        """Wrap bytes, which are not copied."""
        shape = raw.size(0), layout.width
        compact: Compact = Tensor._make_wrapper_subclass(cls, shape, dtype=layout.dtype, device=raw.device)
        compact.raw, compact.form = raw, layout
        return compact

    def __init__(self, raw: Tensor, layout: Layout) -> None:
        pass

    @classmethod
    def of(cls, x: Tensor) -> Tensor:
        """Return a tensor with the values of `x`, compact if that takes less memory."""
        layout = layout_of(x)
        if layout is None or not layout.is_smaller:
            return x
        return cls(torch.cat([layout.pack(part) for part in x.split(ROWS)]), layout)

    def parts(self) -> Iterator[Tensor]:
        """Yield the floats of consecutive rows, so that only some are in memory at a time."""
        yield from map(self.form.expand, self.raw.split(ROWS))

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Number of bytes that are held."""
        return self.raw.nbytes

    def pin_memory(self, *_: Any) -> Compact:
        """Return a copy of the bytes in pinned memory."""
        return Compact(self.raw.pin_memory(), self.form)

    def share_memory_(self) -> Compact:
        """Move the bytes to shared memory."""
        self.raw.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Return whether the bytes are in shared memory."""
        return self.raw.is_shared()

    def record_stream(self, stream: Any) -> None:
        """Mark the bytes as used by a stream."""
        self.raw.record_stream(stream)

    def numpy(self, **_: Any) -> Any:
        """Return an array of the numbers."""
        return self.form.expand(self.raw).numpy()

    def tolist(self) -> Any:
        """Return a list of the rows."""
        return self.numpy().tolist()

    def __setitem__(self, *_: Any) -> None:
        raise TypeError("compact columns cannot be changed in place; change a clone.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.form.expand(self.raw).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Compact:
        return Compact(self.raw.clone(), self.form)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Compact({list(self.shape)}, {self.form.row_bytes} bytes a row)"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Run an operation on the rows that it selects, else on all floats."""
        aten, kwargs, arguments = torch.ops.aten, kwargs or {}, func._schema.arguments
        values = {**dict(zip((argument.name for argument in arguments), args, strict=False)), **kwargs}
        changed = [
            values.get(argument.name) for argument in arguments if argument.alias_info and argument.alias_info.is_write
        ]
        if any(isinstance(value, Compact) for value in torch.utils._pytree.tree_leaves(changed)):
            raise TypeError("compact columns cannot be changed in place; change a clone.")
        first = args[0] if args and isinstance(args[0], Compact) else None
        if first is not None:
            if func in (aten.detach.default, aten.alias.default):
                return Compact(first.raw, first.form)
            if func is aten._to_copy.default and kwargs.get("dtype") in (None, first.dtype):
                return Compact(func(first.raw, **{**kwargs, "dtype": torch.uint8}), first.form)
            along_rows = func in (aten.slice.Tensor, aten.index_select.default) and (args[1:2] or (0,))[0] == 0
            if along_rows or (func is aten.index.Tensor and len(args[1]) == 1 and args[1][0].dim() == 1):
                return first.form.expand(func(first.raw, *args[1:], **kwargs))
        dense = torch.utils._pytree.tree_map_only(Compact, lambda value: value.form.expand(value.raw), (args, kwargs))
        return func(*dense[0], **dense[1])
