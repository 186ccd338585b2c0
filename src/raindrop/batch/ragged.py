"""Sums over groups of rows in a ragged batch: many rows into one (`sum`), and one row to many (`broadcast`).

`Segments.sum` and `Segments.broadcast` are the gradients of each other. Their cost is linear in the number of rows.
Nothing is padded except in `Blocks`, which pads each segment to a multiple of BLOCK_SIZE rows so that matrix products
can be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

BLOCK_SIZE = 16


def _gather_sum(x: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """out[g] = sum of x[rows[offsets[g]:offsets[g + 1]]], for x (n, ...)."""
    if x.numel() == 0:
        return x.new_zeros(offsets.shape[0], *x.shape[1:])
    flat = x.reshape(x.shape[0], -1)
    summed = torch.embedding_bag(flat.contiguous(), rows, offsets, False, 0, False)[0]
    return summed.reshape(offsets.shape[0], *x.shape[1:])


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return _gather_sum(x, segments.rows, segments.offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(0, ctx.segments.index), None


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return y.index_select(0, segments.index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _gather_sum(grad, ctx.segments.rows, ctx.segments.offsets), None


@dataclass(frozen=True, eq=False)
class Segments:
    """Groups of rows: which of `num_segments` segments each row belongs to."""

    index: Tensor  # (n,) segment of each row
    num_segments: int
    is_sorted: bool = False  # the caller guarantees that `index` never decreases

    @classmethod
    def from_index(cls, index: Tensor, num_segments: int, *, is_sorted: bool = False) -> Segments:
        """Segments from the segment of each row; `is_sorted` guarantees that `index` never decreases."""
        return cls(index, num_segments, is_sorted)

    @cached_property
    def rows(self) -> Tensor:
        """(n,) rows sorted by segment."""
        if self.is_sorted:
            return torch.arange(len(self.index), device=self.index.device)
        return torch.argsort(self.index, stable=True)

    @cached_property
    def counts(self) -> Tensor:
        """(num_segments,) rows per segment."""
        return torch.bincount(self.index, minlength=self.num_segments)

    @cached_property
    def offsets(self) -> Tensor:
        """(num_segments,) where each segment starts in `rows`."""
        return torch.cumsum(self.counts, 0) - self.counts

    def sum(self, x: Tensor) -> Tensor:
        """(n, ...) -> (num_segments, ...): the sum of each segment's rows."""
        if not torch.is_grad_enabled():
            return _gather_sum(x, self.rows, self.offsets)
        out: Tensor = _Sum.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def broadcast(self, y: Tensor) -> Tensor:
        """(num_segments, ...) -> (n, ...): each row gets the entry of its segment."""
        if not torch.is_grad_enabled():
            return y.index_select(0, self.index)
        out: Tensor = _Broadcast.apply(y, self)  # type: ignore[no-untyped-call]
        return out

    def softmax(self, scores: Tensor, present: Tensor | None = None) -> Tensor:
        """Softmax of scores (n, k) over the rows of each segment where present (n, k), by default all; 0 elsewhere."""
        with torch.no_grad():
            top = scores.new_full((self.num_segments, *scores.shape[1:]), -torch.inf)
            masked = scores if present is None else scores.masked_fill(~present, -torch.inf)
            index = self.index.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
            top = top.scatter_reduce(0, index, masked, "amax").clamp_min(torch.finfo(scores.dtype).min)
        # Masked before exp, so that no inf * 0 appears in the gradient.
        weight = scores - self.broadcast(top)
        weight = (weight if present is None else weight.masked_fill(~present, -torch.inf)).exp()
        total = self.sum(weight).clamp_min(1.0)  # the largest score has weight 1, so only an empty segment has less
        return weight / self.broadcast(total)


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: Blocks, padding: float) -> Tensor:
        ctx.blocks = blocks
        return blocks._pad(x, padding)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.flatten(0, 1).index_select(0, ctx.blocks.position), None, None


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, blocks: Blocks) -> Tensor:
        ctx.blocks = blocks
        return y.flatten(0, 1).index_select(0, blocks.position)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.blocks._pad(grad, 0.0), None


@dataclass(frozen=True, eq=False)
class Blocks:
    """The rows of each segment, such as a sample, in blocks of BLOCK_SIZE, the last one padded: matrix products at
    linear cost."""

    position: Tensor  # (n,) where each row lies in the padded layout
    num_blocks: int
    segments: Segments  # blocks by segment

    @classmethod
    def from_segments(cls, segments: Segments) -> Blocks:
        """Blocks of the rows of each segment."""
        num_blocks = (segments.counts + BLOCK_SIZE - 1) // BLOCK_SIZE
        first = torch.cumsum(num_blocks, 0) - num_blocks
        owner = segments.index[segments.rows]  # of the rows sorted by segment
        place = first[owner] * BLOCK_SIZE + torch.arange(len(owner), device=owner.device) - segments.offsets[owner]
        position = torch.empty_like(place).index_copy_(0, segments.rows, place)
        owner = torch.repeat_interleave(torch.arange(segments.num_segments, device=position.device), num_blocks)
        return cls(position, len(owner), Segments.from_index(owner, segments.num_segments, is_sorted=True))

    def _pad(self, x: Tensor, padding: float) -> Tensor:
        padded = x.new_full((self.num_blocks * BLOCK_SIZE, *x.shape[1:]), padding)
        padded.index_copy_(0, self.position, x)
        return padded.view(self.num_blocks, BLOCK_SIZE, *x.shape[1:])

    def pad(self, x: Tensor, padding: float = 0.0) -> Tensor:
        """(n, ...) -> (block, BLOCK_SIZE, ...)."""
        out: Tensor = _Pad.apply(x, self, padding)  # type: ignore[no-untyped-call]
        return out

    def unpad(self, y: Tensor) -> Tensor:
        """(block, BLOCK_SIZE, ...) -> (n, ...): the inverse of `pad`."""
        out: Tensor = _Unpad.apply(y, self)  # type: ignore[no-untyped-call]
        return out

    def weighted_sum(self, weights: Tensor, rows: Tensor) -> Tensor:
        """out[b, v] = sum over the rows t of segment b of weights[t, v] rows[t]: (t, v), (t, k) -> (b, v, k)."""
        return self.segments.sum(torch.bmm(self.pad(weights).transpose(1, 2), self.pad(rows)))

    def dot(self, rows: Tensor, queries: Tensor) -> Tensor:
        """out[t, v] = rows[t] . queries[b, v] for the segment b of row t: (t, k), (b, v, k) -> (t, v)."""
        return self.unpad(torch.bmm(self.pad(rows), self.segments.broadcast(queries).transpose(1, 2)))
