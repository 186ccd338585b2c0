"""Every sensor sends to every other at every timestamp: Eq. 1-3 for embedded senders.

That is (s, u, v) numbers, far more than all else in the model. They are made in small portions that stay in the
processor's cache, used at once, overwritten, and made again for the gradient, which is written out by hand: nothing of
this size is ever kept, so memory grows with the embeddings alone.

Axes: g a block of timestamps of one sample, t a timestamp within it, u the sending and v the receiving sensor, j a rank
of the message, a a part of the argument of Eq. 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raindrop.batch.ragged import Blocks, Segments

PORTION = 1 << 19  # numbers (s, u, v) in work at once
LIMIT = 30.0  # of the logits whose exponential is taken
NEVER = -1e4  # the argument of a sigmoid that is exactly 0


@dataclass(frozen=True)
class Delivery:
    """What goes to each sensor v, from one reading or summed over all senders at a time."""

    sent: Tensor  # (n or s, k, j, v) weight * e * (h_u . w_u)
    weight: Tensor  # (n or s, k, v) of the softmax over senders, before normalisation


def send_to_all(
    blocks: Blocks,
    h: Tensor,
    meets: Tensor,
    shift: Tensor,
    sends: Tensor,
    edges: Tensor | None,
    *,
    has: Tensor,
    deaf: Tensor | None = None,
    of_logits: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """One head: alpha = sigmoid(h @ meets + shift), and what the senders u of a timestamp give to each receiver v.

    h (s, u, d), meets (d, v), shift (s, u); sends (s, u, j) is h_u . w_u; edges (b, u, v), 0 where there is none;
    has (s, u) who sends; deaf (s, u) who does not hear itself. The softmax over senders is of alpha, or `of_logits`.
    -> the sum of alpha over each sample's times (b, u, v), sent (s, j, v) and weight (s, v) as in `Delivery`.
    """
    shift = blocks.pad(shift.masked_fill(~has, NEVER), NEVER)  # nobody sends in the padding of a block
    situation = _Situation(
        blocks.samples,
        None if has.all() else blocks.pad(has.to(h.dtype)),
        None if deaf is None else 1 - blocks.pad(deaf.to(h.dtype)),
        of_logits,
    )
    argument = torch.cat([blocks.pad(h), shift[..., None]], dim=-1)
    meets = torch.cat([meets, torch.ones_like(meets[:1])])
    total, sent, weight = _SendToAll.apply(  # type: ignore[no-untyped-call]
        argument, meets, blocks.pad(sends).transpose(-1, -2), edges, situation
    )
    return total, blocks.unpad(sent), blocks.unpad(weight)


@dataclass(frozen=True)
class _Situation:
    """What has no gradient."""

    samples: Segments  # sample of each block
    present: Tensor | None  # (g, t, u) 1 who sends, None where all do
    hears: Tensor | None  # (g, t, u) 0 who does not hear itself
    of_logits: bool

    def portions(self, times: int, num_sensors: int) -> Iterator[slice]:
        """Some blocks of `times` timestamps at a time."""
        step = max(1, PORTION // (times * num_sensors**2))
        return (slice(at, min(at + step, len(self.samples.index))) for at in range(0, len(self.samples.index), step))

    def edges(self, edges: Tensor | None, at: slice) -> Tensor | None:
        """(g, 1, u, v) of the samples of these blocks."""
        return None if edges is None else edges.index_select(0, self.samples.index[at])[:, None]

    def attend(self, argument: Tensor, meets: Tensor, e: Tensor | None, at: slice) -> tuple[Tensor, Tensor]:
        """alpha of Eq. 1 and the weights of the softmax over senders before normalisation, (g, t, u, v) each."""
        alpha = argument[at] @ meets
        if self.of_logits:
            weight = alpha.clamp(-LIMIT, LIMIT).exp_()
            alpha.sigmoid_()
        else:
            weight = torch.exp(alpha.sigmoid_())
        if e is not None:
            weight *= e.sign()
        if self.present is not None:
            weight *= self.present[at][..., None]
        if self.hears is not None:
            weight.diagonal(dim1=-2, dim2=-1).mul_(self.hears[at])
        return alpha, weight


class _SendToAll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, argument: Tensor, meets: Tensor, sends: Tensor, edges: Tensor | None, situation: _Situation
    ) -> tuple[Tensor, Tensor, Tensor]:
        """argument (g, t, u, a), meets (a, v), sends (g, t, j, u), edges (b, u, v)."""
        ctx.save_for_backward(argument, meets, sends, edges)
        ctx.situation = situation
        blocks, times, num_sensors, _ = argument.shape
        total = argument.new_zeros(situation.samples.num_segments, num_sensors, num_sensors)
        sent, weight = torch.empty_like(sends), argument.new_empty(blocks, times, num_sensors)
        for at in situation.portions(times, num_sensors):
            e = situation.edges(edges, at)
            alpha, share = situation.attend(argument, meets, e, at)
            total.index_add_(0, situation.samples.index[at], alpha.sum(1))
            weight[at] = share.sum(2)
            sent[at] = sends[at] @ (share if e is None else share.mul_(e))
        return total, sent, weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor, d_sent: Tensor, d_weight: Tensor) -> tuple[Tensor | None, ...]:
        argument, meets, sends, edges = ctx.saved_tensors
        situation: _Situation = ctx.situation
        d_argument, d_meets, d_sends = torch.empty_like(argument), torch.zeros_like(meets), torch.empty_like(sends)
        d_edges = None if edges is None else torch.zeros_like(edges)
        for at in situation.portions(*argument.shape[1:3]):
            e, owner = situation.edges(edges, at), situation.samples.index[at]
            alpha, share = situation.attend(argument, meets, e, at)
            d = sends[at].transpose(-1, -2) @ d_sent[at]  # (g, t, u, v): of share * e, then of log share
            d *= share
            if d_edges is not None:
                d_edges.index_add_(0, owner, d.sum(1))
                d *= e
            d.addcmul_(share, d_weight[at][:, :, None])
            if situation.of_logits:
                d *= within_limit(share)
            d_sends[at] = d_sent[at] @ (share if e is None else share.mul_(e)).transpose(-1, -2)
            d_alpha = d_total.index_select(0, owner)[:, None]
            if situation.of_logits:
                d.addcmul_(alpha.mul_(1 - alpha), d_alpha)
            else:
                d += d_alpha
                torch.ops.aten.sigmoid_backward.grad_input(d, alpha, grad_input=d)
            flat = d.flatten(0, 2)  # (g t u, v): of the argument of Eq. 1
            d_argument[at] = (meets @ flat.T).T.view_as(d_argument[at])  # this way round is three times as fast
            d_meets.addmm_(argument[at].flatten(0, 2).T, flat)
        return d_argument, d_meets, d_sends, d_edges, None


def within_limit(share: Tensor) -> Tensor:
    """Whether exp(logit) is of a logit that was not cut off at LIMIT."""
    ends = share.new_tensor([-LIMIT, LIMIT]).exp()
    return (share > ends[0] * 1.00001) & (share < ends[1] / 1.00001)
