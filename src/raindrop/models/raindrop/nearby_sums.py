"""Sums over the senders near each reading, for messages that cross time (nearby_messages.py).

These are (n, u, k, j) numbers, far more than everything else in the model. They are computed in chunks that fit into
the processor's cache, and recomputed for the gradient, which is written by hand. If many sensors are read at the same
times, sums and gradient are matrix products: what u sends at s is the same for all receivers.

Axes: n a reading, s a timestamp, u the sending and v the receiving sensor, k a head, j a rank of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raindrop.batch.batch import Batch
from raindrop.batch.nearby import Neighbours

CHUNK_SIZE = 1 << 18  # numbers (n, u, k, j) per chunk
PRODUCT_GAIN = 16  # timestamps x sensors for each reading up to which products are faster (benchmarks/sender_sums.py)


class SenderSums:
    """Sums over senders for a batch: the sensors of the same sample with readings near the time of a reading."""

    def __init__(
        self, batch: Batch, near: Neighbours, *, lines: int, before_only: bool = False, edges: Tensor | None = None
    ):
        """The first `lines` heads see the interpolation of the readings before and after, the others the one before.

        With `before_only` all see the reading before. edges (b, u, v) scale contents, and 0 removes a sender.
        """
        self.batch, self.lines, self.edges = batch, lines, edges
        self.between = not before_only
        like, nothing = batch.value, len(batch.value)
        share = torch.from_numpy(near.share).to(like.device, like.dtype)
        previous, following = (torch.where(x < 0, nothing, x) for x in (near.previous, near.following))
        log_ages, absences = [], []
        for of_heads in (near.age if before_only else np.minimum(near.age, near.wait), near.age):
            ages = torch.from_numpy(of_heads).to(like.device, like.dtype)
            log_ages.append(ages.masked_fill(ages == torch.inf, 0.0).log1p_())
            absences.append(torch.zeros_like(ages).masked_fill_(ages == torch.inf, -torch.inf))
        self.moments = _Moments(previous, following, share, tuple(log_ages), tuple(absences))  # at all timestamps

    def __call__(self, content: Tensor, decay: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Contents (n, k, j), decays (u, k) and pairs (v, u, k) -> at each reading, the sums over senders (n, k, j) of
        weight times content, and of weights (n, k)."""
        if not torch.is_grad_enabled():
            return self.sums(content, decay, pair)
        sums: tuple[Tensor, Tensor] = _Sums.apply(content, decay, pair, self)  # type: ignore[no-untyped-call]
        return sums

    def sums(self, content: Tensor, decay: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """The same without a gradient, by the cheaper of two methods."""
        if self.products_are_cheaper:
            return self.products(content, decay, pair)
        numerator, total = torch.zeros_like(content), content.new_zeros(content.shape[:2])
        for chunk, sent, scaled, weight in self.by_readings(content, decay, pair):
            every = torch.bmm(scaled.transpose(1, 2), sent.flatten(2))  # (n, k, k j): each head's weights for all heads
            numerator[chunk.rows] = _own_heads(every)
            total[chunk.rows] = weight.sum(1)
        return numerator, total

    @property
    def products_are_cheaper(self) -> bool:
        """Whether matrix products over all timestamps and sensors cost less than sums for each reading."""
        batch = self.batch
        return self.edges is None and 0 < batch.num_steps * batch.num_sensors <= PRODUCT_GAIN * len(batch.value)

    def products(self, content: Tensor, decay: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of every receiver at every timestamp, by matrix products; those of the readings are selected."""
        k, j = content.shape[1:]
        padded, by_pair = self.padded(content), pair.permute(2, 1, 0)  # (k, u, v)
        parts = []
        for chunk in self.product_chunks(content):
            moments = self.at_times(chunk)
            sent = _sent(self.content_at(padded, moments), self.evidence(decay, moments))  # (k, t, j + 1, u)
            summed = torch.bmm(sent.flatten(1, 2), by_pair)  # (k, t (j + 1), v)
            parts.append(summed.view(k, -1, j + 1, len(pair))[:, chunk.step, :, self.batch.sensor[chunk.rows]])
        sums = parts[0] if len(parts) == 1 else torch.cat(parts)  # (n, k, j + 1)
        return sums[..., :j], sums[..., j]

    def product_chunks(self, content: Tensor) -> Iterator[_Chunk]:
        """Chunks for matrix products of all sensors at all timestamps."""
        n, k, j = content.shape
        return self.chunks(max(1, self.batch.num_sensors * k * (j + 1) * self.batch.num_steps // n))

    def weights(self, decay: Tensor, pair: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """The weight of each sender at each reading, scaled by edges, for some readings at a time: (n, u, k)."""
        for chunk in self.chunks(pair.shape[1] * pair.shape[2]):
            weight, _, scaled = self.pair_of(pair, chunk)
            yield chunk.rows, (weight if scaled is None else scaled) * self.evidence(decay, self.at_readings(chunk))

    def terms(self, content: Tensor, decay: Tensor, pair: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The terms of the sums, for some readings at a time: contents (n, u, k, j) with their weights, and weights."""
        for chunk, sent, scaled, weight in self.by_readings(content, decay, pair):
            yield chunk.rows, sent * scaled[..., None], weight

    def by_readings(
        self, content: Tensor, decay: Tensor, pair: Tensor
    ) -> Iterator[tuple[_Chunk, Tensor, Tensor, Tensor]]:
        """For some readings at a time: contents (n, u, k, j), weights scaled by edges (n, u, k), and weights."""
        padded = self.padded(content)
        for chunk in self.chunks(_numbers_per_reading(content, pair)):
            moments = self.at_readings(chunk)
            evidence, (weight, _, scaled) = self.evidence(decay, moments), self.pair_of(pair, chunk)
            weight, scaled = weight * evidence, None if scaled is None else scaled * evidence
            yield chunk, self.content_at(padded, moments), weight if scaled is None else scaled, weight

    # ------------------------------------------------------------------ parts of the sums, for one chunk

    def chunks(self, size: int) -> Iterator[_Chunk]:
        """Ranges of timestamps and their readings, with about CHUNK_SIZE numbers where a reading has `size`."""
        batch, total = self.batch, len(self.batch.value)
        if 0 < total * size <= CHUNK_SIZE:
            yield _Chunk(slice(0, batch.num_steps), slice(0, total), batch.step)
            return
        starts = batch.steps.offsets.cpu()
        stops = starts + batch.steps.counts.cpu()  # (s,) rows up to each timestamp
        bounds = torch.arange(0, total, max(1, CHUNK_SIZE // size))
        steps = sorted(set(torch.searchsorted(stops, bounds, right=True).tolist()))  # chunks start with a timestamp
        rows_from = [*starts[steps].tolist(), total] if steps else []
        for at, first in enumerate(steps):
            last = steps[at + 1] if at + 1 < len(steps) else batch.num_steps
            rows = slice(rows_from[at], rows_from[at + 1])
            yield _Chunk(slice(first, last), rows, batch.step[rows] - first)

    def at_times(self, chunk: _Chunk) -> _Moments:
        """What senders have near the timestamps of a chunk."""
        return self.moments.map(lambda x: x[chunk.steps])

    def at_readings(self, chunk: _Chunk) -> _Moments:
        """What senders have near the readings of a chunk."""
        step = self.batch.step[chunk.rows]
        return self.moments.map(lambda x: x.index_select(0, step))

    def evidence(self, decay: Tensor, moments: _Moments) -> Tensor:
        """(t, u, k) weights by age; 0 for a sensor without a reading."""
        parts = [
            torch.addcmul(absent[..., None], of_heads, log_age[..., None])
            for of_heads, log_age, absent in zip(
                (-decay).tensor_split([self.lines], dim=1), moments.log_ages, moments.absences, strict=True
            )
        ]
        return torch.cat(parts, dim=-1).exp_()

    def padded(self, content: Tensor) -> tuple[Tensor, Tensor]:
        """(n + 1, k, j) contents with a row of zeros, that of a sensor without a reading; and those of the first heads
        alone."""
        padded = torch.cat([content, content.new_zeros(1, *content.shape[1:])])
        return padded, padded[:, : self.lines].contiguous()

    def content_at(self, padded: tuple[Tensor, Tensor], moments: _Moments) -> Tensor:
        """(t, u, k, j) what each sensor sends, from the contents as `padded` returns them."""
        content = _rows(padded[0], moments.previous)
        if self.between:
            after = _rows(padded[1], moments.following)
            content[:, :, : self.lines].lerp_(after, moments.share[..., None, None])
        return content

    def pair_of(self, pair: Tensor, chunk: _Chunk) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(n, u, k) weights by pair; and with edges (n, u, 1) the edges, and the weights scaled by them."""
        rows = chunk.rows
        weight = pair[self.batch.sensor[rows]]
        if self.edges is None:
            return weight, None, None
        e = self.edges[self.batch.sample[rows], :, self.batch.sensor[rows]][..., None]
        weight = weight * e.sign()
        return weight, e, weight * e


@dataclass(frozen=True)
class _Chunk:
    steps: slice
    rows: slice
    step: Tensor  # (n,) of each reading, counted from the chunk's first timestamp


@dataclass(frozen=True)
class _Moments:
    """What senders have near some times: (t, u) each."""

    previous: Tensor  # the reading before; the number of readings if there is none
    following: Tensor  # the reading after, likewise
    share: Tensor  # position between the two
    log_ages: tuple[Tensor, ...]  # of the nearest reading for the first heads, of the one before for the others
    absences: tuple[Tensor, ...]  # for the same heads: -inf without a reading, else 0

    def map(self, pick: Callable[[Tensor], Tensor]) -> _Moments:
        """The same at other times: `pick` of each tensor."""
        previous, following, share = (pick(x) for x in (self.previous, self.following, self.share))
        return _Moments(previous, following, share, tuple(map(pick, self.log_ages)), tuple(map(pick, self.absences)))


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, content: Tensor, decay: Tensor, pair: Tensor, sums: SenderSums) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(content, decay, pair)
        ctx.sums = sums
        return sums.sums(content, decay, pair)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_numerator: Tensor, d_total: Tensor) -> tuple[Tensor | None, ...]:
        content, decay, pair = ctx.saved_tensors
        sums: SenderSums = ctx.sums
        n, k, j = content.shape
        d_content, d_lines = (
            content.new_zeros(n + 1, heads * j) for heads in (k, sums.lines)
        )  # the last row: of nobody
        d_decay, d_pair = torch.zeros_like(decay), torch.zeros_like(pair)
        gradient = _gradient_by_products if sums.products_are_cheaper else _gradient_by_readings
        for moments, of_sent, of_evidence in gradient(sums, (content, decay, pair), (d_numerator, d_total), d_pair):
            for heads, log_age in zip((slice(0, sums.lines), slice(sums.lines, None)), moments.log_ages, strict=True):
                d_decay[:, heads] -= (of_evidence[..., heads] * log_age[..., None]).sum(0)
            # of contents, back to the readings that were sent
            if sums.between:
                after = of_sent[:, :, : sums.lines] * moments.share[..., None, None]
                d_lines.index_add_(0, moments.following.flatten(), after.flatten(0, 1).flatten(1))
                of_sent[:, :, : sums.lines] -= after
            d_content.index_add_(0, moments.previous.flatten(), of_sent.flatten(0, 1).flatten(1))
        d_content = d_content[:-1].view_as(content)
        d_content[:, : sums.lines] += d_lines[:-1].view_as(d_content[:, : sums.lines])
        return d_content, d_decay, d_pair, None


Gradients = Iterator[tuple[_Moments, Tensor, Tensor]]
"""Per chunk: the gradients of what each sensor sends (t, u, k, j) and of log evidence (t, u, k) at some times."""


def _gradient_by_products(
    sums: SenderSums, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, Tensor], d_pair: Tensor
) -> Gradients:
    """From the inputs of `SenderSums.products` and the gradients of its outputs; that of pairs is added to d_pair."""
    (content, decay, pair), (d_numerator, d_total) = inputs, outputs
    k, j = content.shape[1:]
    padded, d_sums = sums.padded(content), torch.cat([d_numerator, d_total[..., None]], dim=-1)
    to_senders = pair.permute(2, 0, 1)  # (k, v, u)
    for chunk in sums.product_chunks(content):
        times, moments = chunk.steps.stop - chunk.steps.start, sums.at_times(chunk)
        evidence = sums.evidence(decay, moments)  # (t, u, k)
        sent = _sent(sums.content_at(padded, moments), evidence)  # (k, t, j + 1, u)
        received = content.new_zeros(k, times, j + 1, len(pair))
        received[:, chunk.step, :, sums.batch.sensor[chunk.rows]] = d_sums[chunk.rows]
        arrived = received.flatten(1, 2)  # (k, t (j + 1), v)
        d_pair += torch.bmm(arrived.transpose(1, 2), sent.flatten(1, 2)).permute(1, 2, 0)
        d_sent = torch.bmm(arrived, to_senders).view_as(sent)
        of_evidence = sent.mul_(d_sent).sum(2).permute(1, 2, 0)  # (t, u, k)
        of_sent = evidence.new_empty(*evidence.shape, j)
        torch.mul(d_sent[:, :, :j].permute(1, 3, 0, 2), evidence[..., None], out=of_sent)
        yield moments, of_sent, of_evidence


def _gradient_by_readings(
    sums: SenderSums, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, Tensor], d_pair: Tensor
) -> Gradients:
    """The same from the sums over `SenderSums.by_readings`, which may have edges."""
    (content, decay, pair), (d_numerator, d_total) = inputs, outputs
    padded = sums.padded(content)
    for chunk in sums.chunks(_numbers_per_reading(content, pair)):
        rows, moments = chunk.rows, sums.at_readings(chunk)
        evidence, sent = sums.evidence(decay, moments), sums.content_at(padded, moments)  # (n, u, k), (n, u, k, j)
        weight, e, scaled = sums.pair_of(pair, chunk)
        scaled = weight if scaled is None else scaled
        by_head = _in_own_heads(d_numerator[rows])  # (n, k, k j)
        d_weight_content = torch.bmm(sent.flatten(2), by_head.transpose(1, 2))  # (n, u, k): of scaled weight x evidence
        d_out = d_total[rows][:, None]
        of_pair = (d_weight_content if e is None else d_weight_content * e) + d_out
        if e is not None:
            of_pair = of_pair * e.sign()
        d_pair.index_add_(0, sums.batch.sensor[rows], of_pair * evidence)
        of_evidence = (d_weight_content * scaled + weight * d_out) * evidence
        of_sent = torch.bmm(scaled * evidence, by_head)  # (n, u, k j)
        yield moments, of_sent.view_as(sent), of_evidence


def _in_own_heads(x: Tensor) -> Tensor:
    """(n, k, j) -> (n, k, k j): the numbers of each head in its own columns, 0 in those of the others.

    Products with these are matrix products, which are several times faster than sums over few numbers.
    """
    n, k, j = x.shape
    wide = x.new_zeros(n, k, k, j)
    wide.diagonal(dim1=1, dim2=2).copy_(x.permute(0, 2, 1))
    return wide.flatten(2)


def _own_heads(wide: Tensor) -> Tensor:
    """(n, k, k j) -> (n, k, j): of each head, its own columns."""
    n, k, width = wide.shape
    return wide.view(n, k, k, width // k).diagonal(dim1=1, dim2=2).permute(0, 2, 1)


def _rows(padded: Tensor, at: Tensor) -> Tensor:
    """padded[at]: (n + 1, k, j), (t, u) -> (t, u, k, j)."""
    return padded.flatten(1).index_select(0, at.flatten()).view(*at.shape, *padded.shape[1:])


def _sent(content: Tensor, evidence: Tensor) -> Tensor:
    """(t, u, k, j), (t, u, k) -> (k, t, j + 1, u): contents times evidence, and evidence, in the order of products."""
    t, u, k, j = content.shape
    sent = content.new_empty(k, t, j + 1, u)
    torch.mul(content, evidence[..., None], out=sent[:, :, :j].permute(1, 3, 0, 2))
    sent[:, :, j] = evidence.permute(2, 0, 1)
    return sent


def _numbers_per_reading(content: Tensor, pair: Tensor) -> int:
    return pair.shape[1] * content.shape[1] * content.shape[2]
