"""Raindrop (Zhang et al., ICLR 2022), top to bottom as in the paper's Section 3.

The rounds of message passing (Eq. 1-3) are in messages.py, what happens along time (Eq. 4-5) is in temporal.py.
Axes: n a reading, b a sample, s a timestamp of a sample, u the sending and v the receiving sensor (M of them),
d the observation embedding, p the time encoding, r the receiver vector, k a head, j a rank of the message.
docs/paper_map.md lists each equation with its code, its test and where we had to decide.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator
from raindrop.errors import DataError, suggest
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.ensemble import together
from raindrop.models.layers import Head, TimeEncoding, uniform
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import MessagePassing, State
from raindrop.models.raindrop.slots import Slots
from raindrop.models.raindrop.temporal import Pool, Readout, TemporalAttention, TemporalLSTM, TemporalMean


class Raindrop(Model):
    """Sec. 3: observations -> sensors -> sample, along a graph of sensors that each sample has for itself."""

    def __init__(self, config: RaindropConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        self.time_dim = config.time_dim if config.time_encoding else 0
        self.encode_time = TimeEncoding(config.time_dim, config.time_base, config.time_scale)
        self.embed = ObservationEmbedding(config, spec)
        self.graph = InitialGraph(config, spec)
        # Earlier layers hand on edge weights and, with embedded senders, embeddings; with neither, only the last acts.
        depth = config.layers if config.edge_weights or config.senders == "embedded" else 1
        depth = depth if config.messages else 0
        self.layers = nn.ModuleList(MessagePassing(config, spec, last=at == depth - 1) for at in range(depth))
        self.pool = pool_of(config)
        rank = config.slot_rank if config.messages else 0
        self.slots = Slots(spec, config.slots, config.slot_bins, config.slot_dropout, rank) if config.slots else None
        self.readout = Readout(config.readout, spec.num_sensors, self.pool.dim + config.slots)
        static_dim = config.static_dim or spec.num_sensors
        self.head = Head(
            self.readout.dim + (self.slots.whole_dim if self.slots else 0),
            spec,
            static_dim=static_dim,
            hidden=config.hidden,
            activation=config.activation,
            dropout=config.dropout,
            members=config.members,
        )

    def prepare(self, training: Collator, validation: Collator | None, seed: int) -> None:
        """The slots' scales and knots."""
        if self.slots is not None:
            self.slots.learn(training)

    def forward(self, batch: Batch, keep: Tensor | None = None) -> Output:
        """`keep` (b, u, v), 1 or 0 for each edge: the sample as it would be without some edges."""
        whole, pieces = batch, None  # batch becomes what is looked at of the whole
        if self.config.long_series == "thin":
            batch = batch.thinned(self.config.max_times)
        elif self.config.long_series == "cut":
            batch, pieces = batch.cut(self.config.max_times)
            keep = None if keep is None else pieces.broadcast(keep)

        p = self.encode_time(batch.time)[:, : self.time_dim]  # (s, p)
        h = self.embed(batch)  # (n, d)
        state = self.graph(batch, h, keep)
        for layer in self.layers:
            state = layer(batch, h, p, state)  # Eq. 1-3, pruning
        z, time_weights = self.pool(batch, state.embedding(batch, h), p, state.has(batch))  # Eq. 4-5: (b, v, z)
        penalty = state.loss
        if self.slots is None:
            sample = self.readout(z)  # Sec. 3.4: (b, z)
        else:
            slots, about, error = self.slots(batch, keep)
            sample = torch.cat([self.readout(torch.cat([z, slots], dim=-1)), about], dim=-1)
            penalty = penalty + self.config.slot_reconstruction * error

        edges = state.edges
        if pieces is not None:
            share = pieces.counts[:, None]
            sample, time_weights = pieces.sum(sample) / share, None
            edges = None if edges is None else pieces.sum(edges) / share[..., None]
        if batch.num_slots < whole.num_slots:
            time_weights = None  # they are of the times that were kept
        logits = self.head(sample, whole.statics)
        if edges is not None and self.config.similarity and self.config.messages and self.config.edge_weights:
            penalty = penalty + self.config.similarity * disparity(edges)  # L_r
        if self.config.members:
            return Output(together(logits), sample, penalty, edges, time_weights, members=logits)
        return Output(logits, sample, penalty, edges, time_weights)


class ObservationEmbedding(nn.Module):
    """Sec. 3.3: h = sigma(x R_u), one weight vector R_u per sensor, for readings only."""

    def __init__(self, config: RaindropConfig, spec: DataSpec):
        super().__init__()
        rows = spec.num_sensors if config.sensor_embedding else 1
        self.R = uniform(rows, config.observation_dim)  # (u, d)
        self.indicator = uniform(rows, config.observation_dim) if config.mask_indicator else None  # (u, d)

    def forward(self, batch: Batch) -> Tensor:
        x = batch.value[:, None] * self.of_sensor(batch, self.R)
        if self.indicator is not None:
            x = x + self.of_sensor(batch, self.indicator)
        return torch.sigmoid(x)  # (n, d)

    @staticmethod
    def of_sensor(batch: Batch, rows: Tensor) -> Tensor:
        return rows if len(rows) == 1 else batch.sensors.broadcast(rows)


class InitialGraph(nn.Module):
    """Sec. 3.2: every edge weighs 1, or what domain knowledge says."""

    known: Tensor | None

    def __init__(self, config: RaindropConfig, spec: DataSpec):
        super().__init__()
        known = None
        if config.initial_edges is not None:
            known = torch.zeros(spec.num_sensors, spec.num_sensors)
            for sender, receiver, weight in config.initial_edges:
                for name in (sender, receiver):
                    if name not in spec.sensors:
                        raise DataError(f"model.initial_edges: no sensor '{name}'; {suggest(name, spec.sensors)}")
                known[spec.sensors.index(sender), spec.sensors.index(receiver)] = weight
        self.register_buffer("known", known, persistent=False)

    def forward(self, batch: Batch, h: Tensor, keep: Tensor | None = None) -> State:
        edges = None if self.known is None else self.known.expand(batch.num_samples, -1, -1)
        if keep is not None:
            edges = keep if edges is None else edges * keep
        return State(loss=h.new_zeros(()), edges=edges)


def pool_of(config: RaindropConfig) -> Pool:
    """Sec. 3.3: how the embeddings of a sensor over time become one."""
    time_dim = config.time_dim if config.time_encoding else 0
    if config.temporal == "lstm":
        return TemporalLSTM(config.observation_dim, time_dim)
    if config.temporal == "mean":
        return TemporalMean(config.observation_dim, time_dim, config.sensor_dim)
    return TemporalAttention(
        config.observation_dim,
        time_dim,
        config.sensor_dim,
        attention_dim=config.attention_dim,
        heads=config.time_heads,
        max_rank=config.max_rank if config.s == "rank" else None,
        mean_scores=config.scores == "mean",
    )


def disparity(edges: Tensor) -> Tensor:
    """L_r: mean over (u, v) of the sum over sample pairs |e_i - e_j| / (B - 1)^2, from sorted values: O(B log B)."""
    B = len(edges)
    if B < 2:
        return edges.new_zeros(())
    ordered = edges.flatten(1).t().contiguous().sort(dim=1).values  # (u v, b)
    sign = 2 * torch.arange(B, device=edges.device, dtype=edges.dtype) - B + 1
    return 2 * (ordered @ sign).mean() / (B - 1) ** 2
