"""mTAND-Enc (Shukla & Marlin, "Multi-time attention networks for irregularly sampled time series", ICLR 2021).

Readings x_id of sensor d at times t_id, reference times r_1 .. r_K spread evenly over the observed window, heads h:

    phi_h(t)[0] = omega_0h t + alpha_0h,  phi_h(t)[i] = sin(omega_ih t + alpha_ih)                Sec. 3.1
    kappa_h(r, t_id) = softmax over i of phi_h(r) w_h v_h^T phi_h(t_id)^T / sqrt(d_k)             Eq. 3
    x^_hd(r) = sum over i of kappa_h(r, t_id) x_id                                                Eq. 2
    mTAN(r)[j] = sum over h and d of x^_hd(r) U_hdj                                               Eq. 1
    state = last state of a GRU over mTAN(r_1) .. mTAN(r_K), then a classifier                    Sec. 4.2, "mTAND-Enc"

As in the authors' code the inputs are [value || observed], so a sensor without readings differs from one whose reading
is the mean. The exponentials depend on d only through which i are observed: with E(r, i) = exp(score),
x^ = (E value) / (E observed), two products per sample and no (K, i, d) array. Statics are added in the classifier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import Clock, HeadConfig, dense_values, uniform
from raindrop.ranges import Layers, Positive, Share, Size

MIN_LOG_WEIGHT = -60.0  # relative to the largest weight of a sample, so that no sum is 0


@dataclass(frozen=True, kw_only=True)
class MTANDConfig(HeadConfig):
    """As in the authors' PhysioNet experiments."""

    references: Size = 128
    """K, number of reference times."""
    time_dim: Size = 128
    """Size of the time embeddings, all heads concatenated."""
    heads: Layers = 1
    """H, number of time embeddings."""
    frequency: Positive = 1.0
    """Largest initial omega; times are scaled so that the training readings lie between 0 and 1."""
    state_dim: Size = 128
    """Size of mTAN(r) and of the GRU's state."""
    hidden: Size = 300
    """Neurons in the classifier's first layer."""
    dropout: Share = 0.0
    """Dropout in the classifier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_dim % self.heads or self.time_dim // self.heads < 2:
            raise ValueError(f"time_dim must be divisible by heads, at least 2 for each; {self.time_dim} is not.")


class MTAND(Model):
    """Readings -> interpolation at reference times by learned attention -> GRU -> class."""

    references: Tensor

    def __init__(self, config: MTANDConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config, self.clock = config, Clock(spec, 1.0)
        self.register_buffer("references", self.clock.reference(config.references), persistent=False)
        self.embed_time = TimeEmbedding(config.heads, config.time_dim // config.heads, config.frequency)
        dim = config.time_dim // config.heads
        self.w = uniform(config.heads, dim, dim, bound=dim**-0.5)
        self.v = uniform(config.heads, dim, dim, bound=dim**-0.5)
        self.U = nn.Linear(2 * spec.num_sensors * config.heads, config.state_dim)
        self.gru = nn.GRU(config.state_dim, config.state_dim, batch_first=True)
        self.head = config.head(config.state_dim, spec)

    def forward(self, batch: Batch) -> Output:
        interpolated = self.interpolate(batch)  # (b, K, h 2u), Eq. 2-3
        state = self.gru(self.U(interpolated))[1][0]  # (b, state), Eq. 1 and the encoder
        return Output(self.head(state, batch.statics), state, state.new_zeros(()))

    def interpolate(self, batch: Batch) -> Tensor:
        """x^ of Eq. 2, and whether the sensor has readings: (b, K, h 2u)."""
        score = self.scores(self.clock(batch.time, like=batch.value))  # (s, h K)
        with torch.no_grad():
            top = score.new_full((batch.num_samples, score.shape[1]), -torch.inf)
            top = top.scatter_reduce(0, batch.step_sample[:, None].expand_as(score), score, "amax")
        E = torch.exp((score - top[batch.step_sample]).clamp_min(MIN_LOG_WEIGHT))
        observed = batch.observed.to(E.dtype)
        total = batch.blocks.weighted_sum(E, torch.cat([dense_values(batch), observed], dim=1))  # (b, h K, 2u)
        numerator, denominator = total.chunk(2, dim=2)
        present = denominator > 0
        x = numerator / denominator.masked_fill(~present, 1.0)
        both = torch.cat([x, present.to(x.dtype)], dim=2)
        return both.view(len(both), self.config.heads, self.config.references, -1).transpose(1, 2).flatten(2)

    def scores(self, time: Tensor) -> Tensor:
        """The argument of Eq. 3's softmax for times (s,) in 0 to 1: (s, h K)."""
        key = torch.einsum("shi,hij->shj", self.embed_time(time), self.v)
        query = torch.einsum("khi,hij->khj", self.embed_time(self.references), self.w)
        score: Tensor = torch.einsum("shj,khj->shk", key, query) / math.sqrt(key.shape[-1])
        return score.flatten(1)


class TimeEmbedding(nn.Module):
    """Sec. 3.1: phi_h, one linear function of time and waves of learned frequency and phase: (s,) -> (s, h, i)."""

    def __init__(self, heads: int, dim: int, frequency: float):
        super().__init__()
        self.omega = uniform(heads, dim, bound=frequency)
        self.alpha = uniform(heads, dim)

    def forward(self, time: Tensor) -> Tensor:
        angle = time[:, None, None] * self.omega + self.alpha
        return torch.cat([angle[..., :1], angle[..., 1:].sin()], dim=-1)
