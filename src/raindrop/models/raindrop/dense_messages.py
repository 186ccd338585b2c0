"""Messages from every sensor to every other at every timestamp: Eq. 1-3 for embedded senders.

These are (s, u, v) numbers, far more than everything else in the model. They are computed in chunks that fit into the
processor's cache, and recomputed for the gradient, which is written by hand. No array of this size is ever stored, so
memory only grows with the embeddings.

Axes: g a block of timestamps of one sample, t a timestamp within it, u the sending and v the receiving sensor, j a rank
of the message, a a term of the argument of Eq. 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raindrop.batch.ragged import Blocks, Segments

CHUNK_SIZE = 1 << 19  # numbers (t, u, v) per chunk
MAX_LOGIT = 30.0  # logits are clamped to this size before exp
MASKED_LOGIT = -1e4  # its sigmoid is exactly 0


def dense_messages(
    blocks: Blocks,
    h: Tensor,
    receiver_weight: Tensor,
    time_logit: Tensor,
    content: Tensor,
    edges: Tensor | None,
    *,
    sends: Tensor,
    exclude_self: Tensor | None = None,
    softmax_of_logits: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """One head of Eq. 1-2: alpha = sigmoid(h @ receiver_weight + time_logit), summed over the senders u.

    h (s, u, d); receiver_weight (d, v); time_logit (s, u); content (s, u, j) is h_u . w_u; edges (b, u, v), 0 for
    edges that do not exist; sends (s, u) which sensors send; exclude_self (s, u) which of them do not send to
    themselves. The softmax over senders is of alpha, or of its logits.
    Returns the sum of alpha over each sample's timestamps (b, u, v), and numerator (s, j, v) and denominator (s, v) of
    `Messages`.
    """
    # Padding at the end of a block must not send.
    time_logit = blocks.pad(time_logit.masked_fill(~sends, MASKED_LOGIT), MASKED_LOGIT)
    attention = _ChunkedAttention(
        blocks.segments,
        None if sends.all() else blocks.pad(sends.to(h.dtype)),
        None if exclude_self is None else 1 - blocks.pad(exclude_self.to(h.dtype)),
        softmax_of_logits,
    )
    argument = torch.cat([blocks.pad(h), time_logit[..., None]], dim=-1)
    receiver_weight = torch.cat([receiver_weight, torch.ones_like(receiver_weight[:1])])
    alpha_sum, numerator, denominator = _DenseMessages.apply(  # type: ignore[no-untyped-call]
        argument, receiver_weight, blocks.pad(content).transpose(-1, -2), edges, attention
    )
    return alpha_sum, blocks.unpad(numerator), blocks.unpad(denominator)


@dataclass(frozen=True)
class _ChunkedAttention:
    """Attention for some blocks at a time; holds the masks, which have no gradient."""

    samples: Segments  # blocks by sample
    sends: Tensor | None  # (g, t, u) 1 where a sensor sends; None where all do
    sends_to_self: Tensor | None  # (g, t, u) 0 where a sensor does not send to itself; None where all do
    softmax_of_logits: bool

    def chunks(self, times: int, num_sensors: int) -> Iterator[slice]:
        """Ranges of blocks with `times` timestamps each."""
        num_blocks, step = len(self.samples.index), max(1, CHUNK_SIZE // (times * num_sensors**2))
        return (slice(start, min(start + step, num_blocks)) for start in range(0, num_blocks, step))

    def edges_of(self, edges: Tensor | None, chunk: slice) -> Tensor | None:
        """(g, 1, u, v) the edges of the samples of these blocks."""
        return None if edges is None else edges.index_select(0, self.samples.index[chunk])[:, None]

    def alpha_and_weight(
        self, argument: Tensor, receiver_weight: Tensor, e: Tensor | None, chunk: slice
    ) -> tuple[Tensor, Tensor]:
        """alpha of Eq. 1, and the weights of the softmax over senders before normalisation; (g, t, u, v) each."""
        alpha = argument[chunk] @ receiver_weight
        if self.softmax_of_logits:
            weight = alpha.clamp(-MAX_LOGIT, MAX_LOGIT).exp_()
            alpha.sigmoid_()
        else:
            weight = torch.exp(alpha.sigmoid_())
        if e is not None:
            weight *= e.sign()
        if self.sends is not None:
            weight *= self.sends[chunk][..., None]
        if self.sends_to_self is not None:
            weight.diagonal(dim1=-2, dim2=-1).mul_(self.sends_to_self[chunk])
        return alpha, weight


class _DenseMessages(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        argument: Tensor,
        receiver_weight: Tensor,
        content: Tensor,
        edges: Tensor | None,
        attention: _ChunkedAttention,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """argument (g, t, u, a), receiver_weight (a, v), content (g, t, j, u), edges (b, u, v)."""
        ctx.save_for_backward(argument, receiver_weight, content, edges)
        ctx.attention = attention
        num_blocks, times, num_sensors, _ = argument.shape
        alpha_sum = argument.new_zeros(attention.samples.num_segments, num_sensors, num_sensors)
        numerator = torch.empty_like(content)
        denominator = argument.new_empty(num_blocks, times, num_sensors)
        for chunk in attention.chunks(times, num_sensors):
            e = attention.edges_of(edges, chunk)
            alpha, weight = attention.alpha_and_weight(argument, receiver_weight, e, chunk)
            alpha_sum.index_add_(0, attention.samples.index[chunk], alpha.sum(1))
            denominator[chunk] = weight.sum(2)
            numerator[chunk] = content[chunk] @ (weight if e is None else weight.mul_(e))
        return alpha_sum, numerator, denominator

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_alpha_sum: Tensor, d_numerator: Tensor, d_denominator: Tensor
    ) -> tuple[Tensor | None, ...]:
        argument, receiver_weight, content, edges = ctx.saved_tensors
        attention: _ChunkedAttention = ctx.attention
        d_argument, d_content = torch.empty_like(argument), torch.empty_like(content)
        d_receiver_weight = torch.zeros_like(receiver_weight)
        d_edges = None if edges is None else torch.zeros_like(edges)
        for chunk in attention.chunks(*argument.shape[1:3]):
            e, owner = attention.edges_of(edges, chunk), attention.samples.index[chunk]
            alpha, weight = attention.alpha_and_weight(argument, receiver_weight, e, chunk)
            d = content[chunk].transpose(-1, -2) @ d_numerator[chunk]  # (g, t, u, v): of weight * e ...
            d *= weight
            if d_edges is not None:
                d_edges.index_add_(0, owner, d.sum(1))
                d *= e
            d.addcmul_(weight, d_denominator[chunk][:, :, None])  # ... then of log weight
            if attention.softmax_of_logits:
                d *= is_unclamped(weight)
            d_content[chunk] = d_numerator[chunk] @ (weight if e is None else weight.mul_(e)).transpose(-1, -2)
            d_alpha = d_alpha_sum.index_select(0, owner)[:, None]
            if attention.softmax_of_logits:
                d.addcmul_(alpha.mul_(1 - alpha), d_alpha)
            else:
                d += d_alpha
                torch.ops.aten.sigmoid_backward.grad_input(d, alpha, grad_input=d)
            flat = d.flatten(0, 2)  # (g t u, v): of the argument of Eq. 1
            # Transposed twice because this order is three times as fast.
            d_argument[chunk] = (receiver_weight @ flat.T).T.view_as(d_argument[chunk])
            d_receiver_weight.addmm_(argument[chunk].flatten(0, 2).T, flat)
        return d_argument, d_receiver_weight, d_content, d_edges, None


def is_unclamped(weight: Tensor) -> Tensor:
    """Whether weight = exp(logit) belongs to a logit that was not clamped to MAX_LOGIT."""
    bounds = weight.new_tensor([-MAX_LOGIT, MAX_LOGIT]).exp()
    return (weight > bounds[0] * 1.00001) & (weight < bounds[1] / 1.00001)
