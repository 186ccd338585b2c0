"""Slots: for each sensor, a vector computed from summaries of its readings over the whole series. Not in the paper.

Trees on such summaries beat most networks. Slots give a network the same summaries in a form it can use: as
piecewise-linear encodings (Gorishniy et al., "On Embeddings for Numerical Features", 2022), followed by a small network
for each sensor. Axes as in model.py, and c a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource
from raindrop.batch.summaries import SUMMARIES, summaries_of
from raindrop.models.base import DataSpec
from raindrop.models.layers import Clock, uniform
from raindrop.models.raindrop.config import SlotsConfig

NUM_SUMMARIES = len(SUMMARIES) + 1  # plus the time since the last reading
NUM_CONTEXT = 4  # numbers about the sample as a whole, see `SensorSummaries.raw`
RECONSTRUCTED = (SUMMARIES.index("mean"), SUMMARIES.index("last"))  # what messages between slots learn to predict
MAX_SAMPLES = 20_000  # maximum number of training samples for estimating scales and quantiles


class PiecewiseLinear(nn.Module):
    """Encodes each number by its position in each bin, 0 below the bin and 1 above: (..., c) -> (..., c, bin)."""

    knots: Tensor  # (c, bin + 1)

    def __init__(self, columns: int, bins: int):
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2.0, 2.0, bins + 1).repeat(columns, 1))

    def learn(self, x: NDArray[np.float32]) -> None:
        """Set the knots from training numbers (n, c), NaN if there is none.

        Half of the knots are quantiles of all numbers, half are quantiles of the distinct numbers, so that rare values
        get bins of their own.
        """
        quantiles = np.linspace(0.002, 0.998, self.knots.shape[1])
        for number, column in enumerate(x.T):
            known = column[np.isfinite(column)]
            if len(known):
                common = np.quantile(known, quantiles[::2])
                rare = np.quantile(np.unique(known), quantiles[1::2])
                knots = torch.from_numpy(np.sort(np.concatenate([common, rare])))
                self.knots[number] = knots.to(self.knots.dtype)

    def forward(self, x: Tensor) -> Tensor:
        low, width = self.knots[:, :-1], self.knots.diff(dim=1)
        above = x[..., None] - low
        return torch.where(width > 0, above / width.clamp_min(1e-9), above.sign()).clamp(0.0, 1.0)


@dataclass(frozen=True)
class Summarised:
    """The summaries of a batch."""

    sensors: Tensor  # (b, u, c)
    context: Tensor  # (b, 4) about the sample as a whole
    present: Tensor  # (b, u) whether the sensor has readings


class SensorSummaries(nn.Module):
    """The summaries of a batch, scaled to mean 0 and standard deviation 1 over the training samples that have them."""

    mean: Tensor
    scale: Tensor

    def __init__(self, spec: DataSpec):
        super().__init__()
        self.clock = Clock(spec, window=1.0)
        self.register_buffer("mean", torch.zeros(spec.num_sensors, NUM_SUMMARIES))
        self.register_buffer("scale", torch.ones(spec.num_sensors, NUM_SUMMARIES))

    def learn(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Set mean and scale from raw summaries (n, u, c) of training samples, and return these scaled."""
        known = np.isfinite(x)
        count = np.maximum(known.sum(0), 1)
        filled = np.where(known, x, 0.0).astype(np.float64)
        mean = filled.sum(0) / count
        deviation = np.sqrt(np.where(known, (filled - mean) ** 2, 0.0).sum(0) / count)
        scale = np.where(deviation > 1e-6, deviation, 1.0)
        self.mean.copy_(torch.from_numpy(mean).to(self.mean.dtype))
        self.scale.copy_(torch.from_numpy(scale).to(self.scale.dtype))
        scaled: NDArray[np.float32] = (x - mean.astype(np.float32)) / scale.astype(np.float32)
        return scaled

    def raw(self, batch: Batch) -> Summarised:
        """Unscaled: `SUMMARIES` with the log of the count, and the time since the last reading; NaN without readings.

        Times are shares of the training window. The context is the time of the sample's last and first reading, the
        log of its number of readings, and the share of sensors with readings.
        """
        time = self.clock(batch.time, like=batch.value)  # (s,)
        x = summaries_of(batch, time)
        count, last = x[..., :1], x[..., -1:]
        start, length = batch.samples.offsets, batch.samples.counts
        padded = torch.cat([time, time.new_zeros(1)])
        sample_end = padded[(start + length - 1).clamp_min(0)].masked_fill(length == 0, 0.0)  # (b,)
        sample_start = padded[start].masked_fill(length == 0, 0.0)
        num_readings, share_present = count.sum((1, 2)), (count > 0).to(time.dtype).mean((1, 2))
        context = torch.stack([sample_end, sample_start, num_readings.log1p(), share_present], dim=1)
        sensors = torch.cat([count.log1p(), x[..., 1:], sample_end[:, None, None] - last], dim=-1)
        return Summarised(sensors.masked_fill(count == 0, torch.nan), context, (count > 0).squeeze(-1))

    def forward(self, batch: Batch) -> Summarised:
        """The scaled summaries, 0 for sensors without readings."""
        raw = self.raw(batch)
        scaled = ((raw.sensors - self.mean) / self.scale).nan_to_num(0.0)
        return Summarised(scaled, raw.context, raw.present)


@dataclass(frozen=True)
class SlotOutput:
    """What slots add to the embeddings of a batch."""

    sensors: Tensor  # (b, u, dim)
    context: Tensor  # (b, context_dim) about the sample as a whole
    error: Tensor  # () squared error of summaries predicted from messages; 0 without messages


class Slots(nn.Module):
    """A vector of size `dim` for each sensor: from its summaries, or a learned one if it has no readings."""

    def __init__(self, config: SlotsConfig, spec: DataSpec, *, messages: bool = True):
        super().__init__()
        self.dropout = config.dropout
        M, dim, bins = spec.num_sensors, config.dim, config.bins
        context = spec.static_width + NUM_CONTEXT
        self.summaries = SensorSummaries(spec)
        self.encode = PiecewiseLinear(M * NUM_SUMMARIES, bins)
        self.encode_context = PiecewiseLinear(context, 4 * bins)
        width = NUM_SUMMARIES * (bins + 1) + context
        self.W_1 = uniform(M, width, 2 * dim, bound=(3 / (NUM_SUMMARIES * bins / 2)) ** 0.5)
        self.b_1 = uniform(M, 1, 2 * dim, bound=0.1)
        self.W_2 = uniform(M, 2 * dim, dim, bound=(3 / (2 * dim)) ** 0.5)
        self.b_2 = uniform(M, 1, dim, bound=0.1)
        self.norm = nn.LayerNorm(dim)
        self.absent = uniform(M, dim)
        self.context = nn.Linear(context * (4 * bins + 1), 2 * dim)
        self.context_dim = 2 * dim
        self.messages = SlotMessages(M, dim, config.rank) if config.rank and messages else None

    def learn(self, training: BatchSource, shorten: Callable[[Batch], Batch] = lambda batch: batch) -> None:
        """Set scales and knots from training samples, with their long series shortened by `shorten`."""
        chosen = np.linspace(0, len(training) - 1, min(len(training), MAX_SAMPLES)).astype(np.int64)
        chunks = np.array_split(chosen, -(-len(chosen) // 512))
        batches = [shorten(training.batch(positions)) for positions in chunks]
        raw = [self.summaries.raw(batch) for batch in batches]
        scaled = self.summaries.learn(torch.cat([part.sensors for part in raw]).cpu().numpy())  # (n, u, c)
        self.encode.learn(scaled.reshape(len(scaled), -1))
        context = [torch.cat([batch.statics, part.context], dim=1) for batch, part in zip(batches, raw, strict=True)]
        self.encode_context.learn(torch.cat(context).cpu().numpy())

    def forward(self, batch: Batch, keep: Tensor | None = None, *, with_error: bool = True) -> SlotOutput:
        """The slots of a batch; `keep` (b, u, v) is 0 for edges without messages."""
        summaries = self.summaries(batch)
        x, present = summaries.sensors, summaries.present
        context = torch.cat([batch.statics, summaries.context], dim=1)
        encoded = self.encode(x.flatten(1)).view(*x.shape[:2], -1)
        inputs = torch.cat([encoded, x.clamp(-4.0, 4.0), context[:, None].expand(-1, x.shape[1], -1)], dim=-1)
        inputs = F.dropout(inputs * present[..., None], self.dropout, self.training).transpose(0, 1)  # (u, b, ...)
        h = torch.baddbmm(self.b_2, torch.relu(torch.baddbmm(self.b_1, inputs, self.W_1)), self.W_2)
        h, error = self.norm(h.transpose(0, 1)), x.new_zeros(())  # (b, u, dim)
        sensors = torch.where(present[..., None], h, self.absent)
        if self.messages is not None:
            truth = torch.stack([x[..., c] for c in RECONSTRUCTED], dim=-1) if with_error else None
            sensors, error = self.messages(h, sensors, present, truth, keep)
        encoded_context = torch.cat([self.encode_context(context), context[..., None].clamp(-4.0, 4.0)], dim=-1)
        return SlotOutput(sensors, self.context(encoded_context.flatten(1)), error)


class SlotMessages(nn.Module):
    """Eq. 1-2 between slots: messages from sensors with readings to all others, including those without readings.

    The message to v is sum_u a_uv (h_u w_u) w_v, with a the softmax over senders, as for readings at one timestamp.
    They learn from the label, and from predicting the receiver's summaries from its messages alone.
    """

    def __init__(self, num_sensors: int, dim: int, rank: int):
        super().__init__()
        M = num_sensors
        self.D = uniform(M, dim, dim, bound=(3 / dim) ** 0.5)
        self.r = uniform(M, dim, bound=0.5)
        self.prior = nn.Parameter(torch.zeros(M, M))  # (u, v)
        self.w_send = uniform(M, dim, rank, bound=(3 / dim) ** 0.5)
        self.w_receive = uniform(M, rank, dim, bound=(3 / rank) ** 0.5)
        self.decode = uniform(M, dim, len(RECONSTRUCTED), bound=(3 / dim) ** 0.5)
        self.decode_bias = nn.Parameter(torch.zeros(M, len(RECONSTRUCTED)))
        self.norm = nn.LayerNorm(dim)

    def attention(self, h: Tensor, present: Tensor, keep: Tensor | None = None) -> Tensor:
        """(b, u, v) the share of sender u among the senders to v, which are the other sensors with readings.

        Shares sum to 1 over u; they are all 0 if v has no sender.
        """
        logit = per_sensor(h, self.D) @ self.r.T + self.prior
        sends = present[..., None] & ~torch.eye(len(self.r), dtype=torch.bool, device=h.device)
        sends = sends if keep is None else sends & (keep > 0)
        return torch.softmax(logit.masked_fill(~sends, torch.finfo(h.dtype).min), dim=1) * sends

    def forward(
        self, h: Tensor, slots: Tensor, present: Tensor, truth: Tensor | None, keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """h, slots (b, u, d), present (b, u), truth (b, u, c) -> slots with their messages, and the squared error.

        Without `truth` the error is 0.
        """
        content = per_sensor(h, self.w_send)
        received = self.attention(h, present, keep).transpose(1, 2) @ content  # (b, v, j)
        message = per_sensor(received, self.w_receive)
        slots = self.norm(slots + message)
        if truth is None:
            return slots, slots.new_zeros(())
        predicted = per_sensor(torch.relu(message), self.decode) + self.decode_bias
        return slots, ((predicted - truth).square().sum(-1) * present).sum() / present.sum().clamp_min(1)


def per_sensor(x: Tensor, weight: Tensor) -> Tensor:
    """A separate matrix for each sensor: (b, u, d), (u, d, j) -> (b, u, j)."""
    return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)
