"""MTGNN (Wu et al., "Connecting the Dots: Multivariate Time Series Forecasting with Graph Neural Networks", KDD 2020).

Sec. 4.2  one graph for all samples: M_1 = tanh(a E_1 T_1), M_2 = tanh(a E_2 T_2),
          A = ReLU(tanh(a (M_1 M_2' - M_2 M_1'))); of each row the top k entries stay
Sec. 4.3  mix-hop propagation along it: H_k = beta H_in + (1 - beta) D^-1 (A + I) H_{k-1}, H_out = sum_k H_k W_k;
          once with A and once with A', added
Sec. 4.4  dilated inception: convolutions over time with kernels 2, 3, 6, 7, one quarter of the output each, gated
          tanh(.) * sigmoid(.); the dilation grows by q from layer to layer
Sec. 4.5  residual and skip connections; layer norm

The series is mean-imputed: at every timestamp each sensor has its reading or 0, the mean. Time is a further input, as
in the paper's traffic data. Our choices, for classification of series of any length:
- the timestamps of all samples are concatenated, and a convolution looks back within its own sample only, with zeros
  before the first timestamp: there is no padding;
- layer norm is over sensors and width at one timestamp, instead of over a series of fixed length;
- skip connections use every timestamp, and their mean over the sample's timestamps is classified with the statics.

Axes: b a sample, s a timestamp of a sample, v a sensor, c the width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import Clock, Head, dense_values, uniform
from raindrop.ranges import Layers, Positive, Ranged, Share, Size, WholeShare

KERNELS = (2, 3, 6, 7)


@dataclass(frozen=True, kw_only=True)
class MTGNNConfig(Ranged):
    """The paper's settings for single-step forecasting."""

    width: Size = 16
    """c, size of the state of a sensor at a timestamp; a multiple of 4, one part for each kernel."""
    skip_width: Size = 32
    """Size of each layer's skip connection to the output."""
    layers: Layers = 5
    """Rounds of temporal convolution and graph convolution."""
    dilation: Positive = 2.0
    """q, growth of the dilation from layer to layer."""
    neighbours: Size = 20
    """k, edges kept per sensor."""
    node_dim: Size = 40
    """Size of the sensor embeddings E that make the graph."""
    saturation: Positive = 3.0
    """a, how fast the graph's tanh saturates."""
    depth: Layers = 2
    """K, hops of the propagation."""
    retain: WholeShare = 0.05
    """beta, share of the state that a hop keeps."""
    dropout: Share = 0.3
    """Dropout after the temporal convolution."""
    indicator: bool = False
    """A third input beside value and time: 1 where the sensor has a reading. Not in the paper."""
    window: Positive = 1.0
    """Length assigned to the time span of the training readings."""
    static_dim: Size = 32
    """Size of the projected statics."""
    head_hidden: Size = 64
    """Neurons in the classifier's first layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 4 or self.width % 4:
            raise ValueError(f"width must be a multiple of 4, not {self.width}.")


class MTGNN(Model):
    """Mean-imputed readings -> convolutions over time and over a learned graph -> mean over time -> class."""

    def __init__(self, config: MTGNNConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        self.clock = Clock(spec, config.window)
        self.graph = LearnedGraph(config, spec.num_sensors)
        self.start = nn.Linear(3 if config.indicator else 2, config.width)
        self.skip_start = nn.Linear(config.width * spec.num_sensors, config.skip_width)
        self.layers = nn.ModuleList(
            Layer(config, spec.num_sensors, dilation=int(config.dilation**at)) for at in range(config.layers)
        )
        self.head = Head(
            config.skip_width,
            spec,
            static_dim=config.static_dim,
            hidden=config.head_hidden,
            activation="relu",
        )

    def forward(self, batch: Batch) -> Output:
        A = self.graph()  # (v, v), receiver by sender
        value = dense_values(batch)  # (s, v)
        inputs = [value, self.clock(batch.time, like=value)[:, None].expand_as(value)]
        if self.config.indicator:
            inputs.append(batch.observed.to(value.dtype))
        x = self.start(torch.stack(inputs, dim=-1))  # (s, v, c)
        skip = self.skip_start(x.flatten(1))  # (s, skip)
        for layer in self.layers:
            x, layer_skip = layer(x, A, batch.rank)
            skip = skip + layer_skip
        embedding = batch.samples.sum(F.relu(skip)) / batch.samples.counts.clamp_min(1)[:, None]
        edges = A.T.expand(batch.num_samples, -1, -1)  # (b, sender, receiver)
        return Output(self.head(embedding, batch.statics), embedding, x.new_zeros(()), edges)


class LearnedGraph(nn.Module):
    """Sec. 4.2: a sparse directed graph; where i receives from j, j does not receive from i."""

    def __init__(self, config: MTGNNConfig, num_sensors: int):
        super().__init__()
        self.a, self.neighbours = config.saturation, min(config.neighbours, num_sensors)
        self.E_1, self.E_2 = (nn.Parameter(torch.randn(num_sensors, config.node_dim)) for _ in range(2))
        bound = config.node_dim**-0.5
        self.T_1, self.T_2 = (uniform(config.node_dim, config.node_dim, bound=bound) for _ in range(2))

    def forward(self) -> Tensor:
        """A (v, v): row i has the weights with which sensor i receives from the others."""
        first, second = torch.tanh(self.a * self.E_1 @ self.T_1), torch.tanh(self.a * self.E_2 @ self.T_2)
        A = F.relu(torch.tanh(self.a * (first @ second.T - second @ first.T)))
        top = A.detach().topk(self.neighbours, dim=1).indices
        return A * torch.zeros_like(A).scatter(1, top, 1.0)


class Layer(nn.Module):
    """Sec. 4.4 and 4.3: convolution over time, then over the graph both ways; residual and skip connections."""

    def __init__(self, config: MTGNNConfig, num_sensors: int, *, dilation: int):
        super().__init__()
        self.time = GatedInception(config.width, dilation)
        self.dropout = nn.Dropout(config.dropout)
        self.skip = nn.Linear(config.width * num_sensors, config.skip_width)
        self.inflow, self.outflow = MixHop(config), MixHop(config)
        self.norm = nn.LayerNorm([num_sensors, config.width])

    def forward(self, x: Tensor, A: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
        """x (s, v, c) -> the same, and the skip connection (s, skip)."""
        h = self.dropout(self.time(x, rank))
        out = self.norm(self.inflow(h, A) + self.outflow(h, A.T) + x)
        return out, self.skip(out.flatten(1))


class GatedInception(nn.Module):
    """Sec. 4.4: tanh(conv) * sigmoid(conv), with a quarter of the outputs from each kernel size."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.kernels = nn.ModuleList(nn.Linear(size * width, 2 * width // len(KERNELS)) for size in KERNELS)

    def forward(self, x: Tensor, rank: Tensor) -> Tensor:  # (s, v, c), (s,)
        past = torch.cat([earlier(x, rank, self.dilation * lag) for lag in range(max(KERNELS))], dim=-1)  # (s, v, 7c)
        # Short kernels are padded with zero weights: one matrix product instead of four.
        weights, biases = zip(*(tuple(kernel.parameters()) for kernel in self.kernels), strict=True)
        weight = torch.cat([F.pad(w, (0, past.shape[-1] - w.shape[1])) for w in weights])
        out = F.linear(past, weight, torch.cat(biases))  # (s, v, 2c)
        content, gate = out.view(*x.shape[:2], len(KERNELS), 2, x.shape[-1] // len(KERNELS)).unbind(-2)
        return (torch.tanh(content) * torch.sigmoid(gate)).flatten(-2)


def earlier(x: Tensor, rank: Tensor, lag: int) -> Tensor:
    """(s, ...) the entry of the timestamp `lag` steps earlier in the same sample, 0 if there is none."""
    if lag == 0:
        return x
    exists = (rank >= lag).view(-1, *[1] * (x.dim() - 1))
    return torch.where(exists, x.roll(lag, 0), 0.0)


class MixHop(nn.Module):
    """Sec. 4.3: H_k = beta H_in + (1 - beta) D^-1 (A + I) H_{k-1}, and sum_k H_k W_k."""

    def __init__(self, config: MTGNNConfig):
        super().__init__()
        self.beta, self.depth = config.retain, config.depth
        self.W = nn.Linear((config.depth + 1) * config.width, config.width)

    def forward(self, x: Tensor, A: Tensor) -> Tensor:  # (s, v, c), (v, v)
        A = A + torch.eye(len(A), device=A.device)
        A = A / A.sum(1, keepdim=True)
        hops = [x]
        for _ in range(self.depth):
            hops.append(self.beta * x + (1 - self.beta) * (A @ hops[-1]))
        out: Tensor = self.W(torch.cat(hops, dim=-1))
        return out
