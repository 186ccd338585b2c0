"""Sums over runs of rows, the two directions of a ragged batch: many rows into one, one row to many.

`Segments.sum` and `Segments.spread` are each other's gradient. Cost is that of the rows; nothing is padded but
`Blocks`, which pads each sample to a multiple of a few rows so that matrix products can be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

BLOCK = 16


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


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return y.index_select(0, segments.index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _gather_sum(grad, ctx.segments.rows, ctx.segments.offsets), None


@dataclass(frozen=True, eq=False)
class Segments:
    """Which of `num` segments each row belongs to."""

    index: Tensor  # (n,) segment of each row
    num: int
    rows: Tensor  # (n,) rows in order of their segment
    offsets: Tensor  # (num,) where each segment starts in `rows`

    @classmethod
    def of(cls, index: Tensor, num: int, *, ordered: bool = False) -> Segments:
        """From the segment of each row; `ordered` says that it never decreases."""
        rows = torch.arange(len(index), device=index.device) if ordered else torch.argsort(index, stable=True)
        counts = torch.bincount(index, minlength=num)
        return cls(index, num, rows, torch.cumsum(counts, 0) - counts)

    @cached_property
    def counts(self) -> Tensor:
        """(num,) rows per segment."""
        return torch.bincount(self.index, minlength=self.num)

    def sum(self, x: Tensor) -> Tensor:
        """(n, ...) -> (num, ...): the sum of each segment's rows, in the order of the rows."""
        out: Tensor = _Sum.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def spread(self, y: Tensor) -> Tensor:
        """(num, ...) -> (n, ...): to each row what its segment has."""
        out: Tensor = _Spread.apply(y, self)  # type: ignore[no-untyped-call]
        return out

    def softmax(self, scores: Tensor, present: Tensor) -> Tensor:
        """Softmax of scores (n, k) over the rows of each segment where present (n, k); 0 elsewhere."""
        with torch.no_grad():
            top = scores.new_full((self.num, *scores.shape[1:]), -torch.inf)
            held = scores.masked_fill(~present, -torch.inf)
            index = self.index.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
            top = top.scatter_reduce(0, index, held, "amax").clamp_min(torch.finfo(scores.dtype).min)
        weight = (scores - self.spread(top)).masked_fill(~present, -torch.inf).exp()  # masked before exp: no inf * 0
        total = self.sum(weight).clamp_min(1.0)  # the top row weighs 1, so only an empty segment has less
        return weight / self.spread(total)


class _ToBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: Blocks, padding: float) -> Tensor:
        ctx.blocks = blocks
        return blocks._fill(x, padding)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.flatten(0, 1).index_select(0, ctx.blocks.place), None, None


class _FromBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, blocks: Blocks) -> Tensor:
        ctx.blocks = blocks
        return y.flatten(0, 1).index_select(0, blocks.place)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.blocks._fill(grad, 0.0), None


@dataclass(frozen=True, eq=False)
class Blocks:
    """The rows of each sample cut into blocks of BLOCK, the last one padded: matrix products at linear cost."""

    place: Tensor  # (n,) position of each row in the padded layout
    num: int
    samples: Segments  # sample of each block

    @classmethod
    def of(cls, segments: Segments) -> Blocks:
        """For rows that lie in order of their segment."""
        num_blocks = (segments.counts + BLOCK - 1) // BLOCK
        first = torch.cumsum(num_blocks, 0) - num_blocks
        within = torch.arange(len(segments.index), device=segments.index.device) - segments.offsets[segments.index]
        place = first[segments.index] * BLOCK + within
        owner = torch.repeat_interleave(torch.arange(segments.num, device=place.device), num_blocks)
        return cls(place, len(owner), Segments.of(owner, segments.num, ordered=True))

    def _fill(self, x: Tensor, padding: float) -> Tensor:
        padded = x.new_full((self.num * BLOCK, *x.shape[1:]), padding)
        padded.index_copy_(0, self.place, x)
        return padded.view(self.num, BLOCK, *x.shape[1:])

    def fill(self, x: Tensor, padding: float = 0.0) -> Tensor:
        """(n, ...) -> (block, BLOCK, ...)."""
        out: Tensor = _ToBlocks.apply(x, self, padding)  # type: ignore[no-untyped-call]
        return out

    def rows(self, y: Tensor) -> Tensor:
        """(block, BLOCK, ...) -> (n, ...): back again, without the padding."""
        out: Tensor = _FromBlocks.apply(y, self)  # type: ignore[no-untyped-call]
        return out

    def weighted_sum(self, weights: Tensor, rows: Tensor) -> Tensor:
        """out[b, v] = sum over the rows t of sample b of weights[t, v] rows[t]: (t, v), (t, k) -> (b, v, k)."""
        return self.samples.sum(torch.bmm(self.fill(weights).transpose(1, 2), self.fill(rows)))

    def match(self, rows: Tensor, queries: Tensor) -> Tensor:
        """out[t, v] = rows[t] . queries[b, v] for the sample b of row t: (t, k), (b, v, k) -> (t, v)."""
        return self.rows(torch.bmm(self.fill(rows), self.samples.spread(queries).transpose(1, 2)))
