"""Slots: what each sensor's readings come to over the whole series, beside what attention makes of them.

Not in the paper. Trees on summaries beat most networks, so a network is given the same summaries, in the form in which
a network can use them: as piecewise-linear codes (Gorishniy et al., "On Embeddings for Numerical Features", 2022),
through a small map of each sensor's own. Axes as in raindrop.py, and c a summary.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator
from raindrop.batch.summaries import SUMMARIES, summaries_of
from raindrop.models.base import DataSpec
from raindrop.models.layers import uniform

CONTEXT = 4  # what is said of a sample as a whole beside its statics: `Summaries.whole`
TOLD = [SUMMARIES.index("mean"), SUMMARIES.index("last")]  # what messages between slots learn to tell
MOST = 20_000  # training samples that are enough to know quantiles


class Piecewise(nn.Module):
    """Numbers (..., c) by how full each bin between their knots is: (..., c, bin), from 0 below it to 1 above."""

    knots: Tensor

    def __init__(self, columns: int, bins: int):
        super().__init__()
        even = torch.linspace(-2.0, 2.0, bins + 1)  # until data say better: numbers about 0 with spread 1
        self.register_buffer("knots", even.repeat(columns, 1))

    def learn(self, x: NDArray[np.float32]) -> None:
        """Knots from training numbers (n, c), NaN where there is none.

        Half of them lie at quantiles of the numbers, half at quantiles of the different numbers, so that a rare range
        is told apart as well as a common one.
        """
        share = np.linspace(0.002, 0.998, self.knots.shape[1])
        for at, column in enumerate(x.T):
            known = column[np.isfinite(column)]
            if len(known):
                common, rare = np.quantile(known, share[::2]), np.quantile(np.unique(known), share[1::2])
                self.knots[at] = torch.from_numpy(np.sort(np.concatenate([common, rare])))

    def forward(self, x: Tensor) -> Tensor:
        low, width = self.knots[:, :-1], self.knots.diff(dim=1)
        above = x[..., None] - low
        return torch.where(width > 0, above / width.clamp_min(1e-9), above.sign()).clamp(0.0, 1.0)


class Summaries(nn.Module):
    """A batch's summaries, scaled to mean 0 and spread 1 over the training samples that have them."""

    mean: Tensor
    scale: Tensor

    def __init__(self, spec: DataSpec):
        super().__init__()
        self.start, self.length = spec.window[0], max(spec.window[1] - spec.window[0], 1e-9)
        shape = (spec.num_sensors, len(SUMMARIES) + 1)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def learn(self, x: NDArray[np.float32]) -> None:
        """From raw summaries (n, u, c) of training samples."""
        known = np.isfinite(x)
        count = np.maximum(known.sum(0), 1)
        filled = np.where(known, x, 0.0).astype(np.float64)
        mean = filled.sum(0) / count
        spread = np.sqrt(np.where(known, (filled - mean) ** 2, 0.0).sum(0) / count)
        self.mean = torch.from_numpy(mean).float()
        self.scale = torch.from_numpy(np.where(spread > 1e-6, spread, 1.0)).float()

    def raw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(b, u, c) as `summaries_of`, with log counts, times in windows and the time since the last reading; (b, 4).

        The four of a sample as a whole: the times of its last and first reading, log of its readings, and the share of
        sensors with one.
        """
        x = summaries_of(batch, torch.float32)
        count, rest, last = x[..., :1], x[..., 1:-1], (x[..., -1:] - self.start) / self.length
        when = (batch.time - self.start).float() / self.length  # (s,)
        edge = batch.samples.offsets
        none = batch.samples.counts == 0
        padded = torch.cat([when, when.new_zeros(1)])
        end = padded[(edge + batch.samples.counts - 1).clamp_min(0)].masked_fill(none, 0.0)
        first = padded[edge].masked_fill(none, 0.0)
        whole = torch.stack([end, first, count.sum((1, 2)).log1p(), (count > 0).float().mean((1, 2))], dim=1)
        absent = count == 0
        known = torch.cat([count.log1p(), rest, last, end[:, None, None] - last], dim=-1)
        return known.masked_fill(absent, torch.nan), whole

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(b, u, c) scaled, 0 where there is no reading; (b, 4) of the sample as a whole; (b, u) who has readings."""
        x, whole = self.raw(batch)
        has = ~x[..., 0].isnan()
        return ((x - self.mean) / self.scale).nan_to_num(0.0), whole, has


class Slots(nn.Module):
    """For each sensor a vector of size `dim`: from its summaries where it has readings, a learned one where not."""

    def __init__(self, spec: DataSpec, dim: int, bins: int, dropout: float, rank: int = 0):
        super().__init__()
        self.dropout = dropout
        M, columns = spec.num_sensors, len(SUMMARIES) + 1
        whole = spec.static_width + CONTEXT
        self.summaries = Summaries(spec)
        self.codes = Piecewise(M * columns, bins)
        self.whole_codes = Piecewise(whole, 4 * bins)
        width = columns * (bins + 1) + whole
        self.W_1 = uniform(M, width, 2 * dim, bound=(3 / (columns * bins / 2)) ** 0.5)
        self.b_1 = uniform(M, 1, 2 * dim, bound=0.1)
        self.W_2 = uniform(M, 2 * dim, dim, bound=(3 / (2 * dim)) ** 0.5)
        self.b_2 = uniform(M, 1, dim, bound=0.1)
        self.norm = nn.LayerNorm(dim)
        self.absent = uniform(M, dim)
        self.whole = nn.Linear(whole * (4 * bins + 1), 2 * dim)
        self.whole_dim = 2 * dim
        self.messages = SlotMessages(M, dim, rank) if rank else None

    def learn(self, training: Collator) -> None:
        """Scales and knots from the training samples."""
        chosen = np.linspace(0, len(training) - 1, min(len(training), MOST)).astype(np.int64)
        batches = [training.batch(part) for part in np.array_split(chosen, -(-len(chosen) // 512))]
        raw = [self.summaries.raw(batch) for batch in batches]
        x = np.concatenate([held.numpy() for held, _ in raw])  # (n, u, c)
        self.summaries.learn(x)
        scaled = (x - self.summaries.mean.numpy()) / self.summaries.scale.numpy()
        self.codes.learn(scaled.reshape(len(x), -1))
        wholes = [torch.cat([batch.statics, whole], dim=1) for batch, (_, whole) in zip(batches, raw, strict=True)]
        self.whole_codes.learn(torch.cat(wholes).numpy())

    def forward(self, batch: Batch, keep: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(b, u, dim) of each sensor, (b, whole_dim) of the sample as a whole, and how badly messages tell of slots."""
        x, whole, has = self.summaries(batch)
        whole = torch.cat([batch.statics, whole], dim=1)
        codes = self.codes(x.flatten(1)).view(*x.shape[:2], -1)
        seen = torch.cat([codes, x.clamp(-4.0, 4.0), whole[:, None].expand(-1, x.shape[1], -1)], dim=-1)
        seen = F.dropout(seen * has[..., None], self.dropout, self.training).transpose(0, 1)  # (u, b, ...)
        slot = torch.baddbmm(self.b_2, torch.relu(torch.baddbmm(self.b_1, seen, self.W_1)), self.W_2)
        slot, error = self.norm(slot.transpose(0, 1)), x.new_zeros(())
        own = torch.where(has[..., None], slot, self.absent)
        if self.messages is not None:
            own, error = self.messages(slot, own, has, x[..., TOLD], keep)
        told = torch.cat([self.whole_codes(whole), whole[..., None].clamp(-4.0, 4.0)], dim=-1)
        return own, self.whole(told.flatten(1)), error


class SlotMessages(nn.Module):
    """Eq. 1-2 between slots: what the sensors that were read tell of all others, those never read included.

    The message to v is sum_u a_uv (h_u w_u) w_v with a softmax a over the senders, as for readings at one time. They
    learn from the label and from `error`: how far messages alone are from the summaries of the receiver.
    """

    def __init__(self, num_sensors: int, dim: int, rank: int):
        super().__init__()
        M, receiver_dim = num_sensors, dim
        self.D = uniform(M, dim, receiver_dim, bound=(3 / dim) ** 0.5)
        self.r = uniform(M, receiver_dim, bound=0.5)
        self.prior = nn.Parameter(torch.zeros(M, M))  # (u, v)
        self.w_send = uniform(M, dim, rank, bound=(3 / dim) ** 0.5)
        self.w_receive = uniform(M, rank, dim, bound=(3 / rank) ** 0.5)
        self.decode = uniform(M, dim, len(TOLD), bound=(3 / dim) ** 0.5)
        self.decode_bias = nn.Parameter(torch.zeros(M, len(TOLD)))
        self.norm = nn.LayerNorm(dim)

    def attention(self, h: Tensor, has: Tensor, keep: Tensor | None = None) -> Tensor:
        """(b, u, v): the share of u among those that tell v; nobody tells itself, who was not read tells nothing."""
        logit = torch.einsum("bud,udr->bur", h, self.D) @ self.r.T + self.prior
        others = 1 - torch.eye(len(self.r), device=h.device)
        weight = logit.clamp(-15.0, 15.0).exp() * has[..., None] * others
        weight = weight if keep is None else weight * keep
        return weight / weight.sum(1, keepdim=True).clamp_min(1e-6)

    def forward(
        self, h: Tensor, own: Tensor, has: Tensor, truth: Tensor, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """h, own (b, u, d), has (b, u), truth (b, u, c) -> what sensors know after listening, and the error."""
        sent = torch.einsum("bud,udj->buj", h, self.w_send)
        arrived = self.attention(h, has, keep).transpose(1, 2) @ sent  # (b, v, j)
        message = torch.einsum("bvj,vjd->bvd", arrived, self.w_receive)
        guess = torch.einsum("bvd,vdc->bvc", torch.relu(message), self.decode) + self.decode_bias
        error = ((guess - truth).square().sum(-1) * has).sum() / has.sum().clamp_min(1)
        return self.norm(own + message), error
