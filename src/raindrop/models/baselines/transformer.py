"""Transformer and Trans-mean, baselines of SeFT (Horn et al., ICML 2020) and Raindrop (ICLR 2022).

The encoder of Vaswani et al., "Attention is all you need" (NeurIPS 2017), over the timestamps t of a sample:

    x_t = sqrt(d) W [value_t || observed_t] + p_t     Sec. 3.4-3.5, p of the real time instead of a position
    a   = softmax(Q K^T / sqrt(d_k)) V                Eq. 1, over the sample's own timestamps, several heads
    x   = x + W_o a                                   Sec. 3.1, x normalised before (or after: `norm = "post"`)
    x   = x + W_2 relu(W_1 x)                         Eq. 2, likewise
    z   = mean over t of x_t                          SeFT, App. (aggregation over the observed timestamps)

Trans-mean (`imputation = "mean"`) fills missing readings with the sensor's training mean, which is 0 after scaling, and
has no indicator of what was observed. Statics are added in the classifier, as in Raindrop's comparison. Only the
attention is padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import HeadConfig, PaddedLayout, TimeEncoding, dense_values
from raindrop.ranges import Layers, Positive, Share, Size


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(HeadConfig):
    """Two layers, as in Raindrop's comparison."""

    imputation: Literal["indicator", "mean"] = "indicator"
    """How missing readings are marked: by an indicator beside the value, or not at all (the training mean)."""
    dim: Size = 64
    """Size of a timestamp's embedding."""
    layers: Layers = 2
    """Encoder layers."""
    heads: Layers = 4
    """Heads of the attention."""
    feedforward: Size = 128
    """Neurons of the feed-forward layer."""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalisation before attention and feed-forward (trains stably), or after as first published."""
    time_base: Positive = 10000.0
    """Base of the time encoding's wavelengths."""
    time_scale: Positive = 1.0
    """Times are divided by this before they are encoded; 1 keeps the table's unit."""
    dropout: Share = 0.2
    """Dropout in the encoder and the classifier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads or self.dim % 2:
            raise ValueError(f"dim must be even and divisible by heads; {self.dim} with {self.heads} heads is not.")


class Transformer(Model):
    """Self-attention over the timestamps; their mean is the sample embedding."""

    def __init__(self, config: TransformerConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        width = spec.num_sensors * (2 if config.imputation == "indicator" else 1)
        self.embed = nn.Linear(width, config.dim)
        self.encode_time = TimeEncoding(config.dim, config.time_base, config.time_scale)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.final = nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()
        self.head = config.head(config.dim, spec)

    def forward(self, batch: Batch) -> Output:
        token = dense_values(batch)  # (s, u)
        if self.config.imputation == "indicator":
            token = torch.cat([token, batch.observed.to(token.dtype)], dim=1)
        x = math.sqrt(self.config.dim) * self.embed(token) + self.encode_time(batch.time, like=token)  # (s, d)
        layout = PaddedLayout.from_batch(batch)
        for layer in self.layers:
            x = layer(x, layout)
        z = batch.samples.sum(self.final(x)) / batch.samples.counts.clamp_min(1)[:, None]  # (b, d)
        return Output(self.head(z, batch.statics), z, z.new_zeros(()))


class EncoderLayer(nn.Module):
    """Eq. 1 and 2 with their residual connections."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.W_o = nn.Linear(config.dim, config.dim)
        self.W_1 = nn.Linear(config.dim, config.feedforward)
        self.W_2 = nn.Linear(config.feedforward, config.dim)
        self.norm = config.norm
        self.norm_attention = nn.LayerNorm(config.dim)
        self.norm_feedforward = nn.LayerNorm(config.dim)

    def forward(self, x: Tensor, layout: PaddedLayout) -> Tensor:  # (s, d)
        if self.norm == "post":
            x = self.norm_attention(x + self.attend(x, layout))
            x = self.norm_feedforward(x + self.feed_forward(x))
            return x
        x = x + self.attend(self.norm_attention(x), layout)
        return x + self.feed_forward(self.norm_feedforward(x))

    def attend(self, x: Tensor, layout: PaddedLayout) -> Tensor:
        """Eq. 1 and W_o, (s, d) -> (s, d)."""
        qkv = layout.pad(self.qkv(x)).view(*layout.shape, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (b, head, t, k)
        rank = torch.arange(layout.shape[1], device=x.device)
        present = rank < layout.lengths.clamp_min(1)[:, None]  # (b, t); an empty sample attends to its padding
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=present[:, None, None])
        return self._drop(self.W_o(layout.unpad(a.transpose(1, 2).flatten(2))))

    def feed_forward(self, x: Tensor) -> Tensor:
        """Eq. 2."""
        return self._drop(self.W_2(self._drop(F.relu(self.W_1(x)))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)
