"""Raindrop (Zhang et al., ICLR 2022), in the order of the paper's Section 3.

Message passing (Eq. 1-3) is in messages.py; temporal attention, readout and long series (Eq. 4-5, Sec. 3.4) are in
temporal.py. docs/paper_map.md lists each equation with its code, its test and the decisions we made.

Axes: n a reading, b a sample, s a timestamp of a sample, u the sending and v the receiving sensor (M of them),
d the observation embedding, p the time encoding, r the receiver vector, k a head, j a rank of the message.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource
from raindrop.batch.gaps import typical_intervals
from raindrop.errors import DataError, suggest
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import Head, TimeEncoding, uniform
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import MessagePassing, State
from raindrop.models.raindrop.nearby_messages import AGREEMENT_DIM, NearbyMessages
from raindrop.models.raindrop.one_sample import fits, scores_of_one
from raindrop.models.raindrop.slots import Slots
from raindrop.models.raindrop.temporal import Readout, ShortSeries, make_pool


class Raindrop(Model):
    """Sec. 3: observations -> sensors -> sample, along a sensor graph that is learned for each sample."""

    def __init__(self, config: RaindropConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config, self.spec, self.task = config, spec, spec.task
        ablation, num_layers = config.ablation, count_layers(config)
        self.encode_time = TimeEncoding(
            config.time_dim if ablation.time_encoding else 0, config.time.base, config.time.scale
        )
        self.embed = ObservationEmbedding(config, spec)
        self.initial_graph = InitialGraph(config.graph.initial_edges, spec)
        nearby = ablation.messages and config.graph.senders == "nearby"
        self.nearby = NearbyMessages(config, spec) if nearby else None
        self.needs_shared_times = ablation.messages and not nearby
        self.needs_cells = ablation.messages
        self.layers = nn.ModuleList(
            MessagePassing(config, spec, last=layer == num_layers - 1) for layer in range(num_layers)
        )
        self.pool = make_pool(config)
        self.slots = Slots(config.slots, spec, messages=ablation.messages) if config.slots.dim else None
        sensor_dim = self.pool.dim + config.slots.dim + (AGREEMENT_DIM if nearby else 0)
        self.readout = Readout(config.readout, spec.num_sensors, sensor_dim, config.sample_dim)
        self.head = Head(
            self.readout.dim + (self.slots.context_dim if self.slots else 0),
            spec,
            static_dim=config.static_dim or spec.num_sensors,
            hidden=config.hidden,
            activation=config.head.activation,
            dropout=config.head.dropout,
            members=config.head.members,
        )

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Learn the scales and bins of the slots from the training series as the model will see them, and intervals."""
        if self.nearby is not None:
            self.nearby.interval.copy_(torch.from_numpy(typical_intervals(training.table)))
        if self.slots is not None:
            self.slots.learn(training, lambda batch: ShortSeries.from_batch(batch, self.config.long_series).batch)

    def without_messages(self) -> Raindrop | None:
        """The same network without messages, if `graph.optional` allows it and no graph was given."""
        graph = self.config.graph
        if not (graph.optional and self.config.ablation.messages and graph.initial_edges is None):
            return None
        ablation = replace(self.config.ablation, messages=False)
        graph = replace(graph, optional=False, reconstruction=0.0)
        return Raindrop(replace(self.config, graph=graph, ablation=ablation), self.spec)

    def score_batch(self, batch: Batch) -> Tensor:
        """The scores; those of a single sample in NumPy, which is several times faster."""
        if not self.training and fits(self.config, batch):
            return scores_of_one(self, batch)
        output: Output = self(batch, scores_only=True)
        return output.scores

    def forward(self, batch: Batch, keep: Tensor | None = None, *, scores_only: bool = False) -> Output:
        """Scores and graphs. `keep` (b, u, v), 1 or 0 for each edge, gives the output without some edges.

        With `scores_only`, graphs and timestamp weights that the scores do not need are left out.
        """
        series = ShortSeries.from_batch(batch, self.config.long_series)  # Sec. 3.4, long series
        short, keep = series.batch, None if keep is None else series.per_piece(keep)
        p = self.encode_time(short.time, like=short.value)  # Appendix: (s, p)
        h = self.embed(short)  # Sec. 3.3: (n, d)
        if self.nearby is not None:
            edges = self.initial_graph.edges(short, keep)  # Sec. 3.2
            received = self.nearby(short, h, edges, with_edges=not (self.training or scores_only))  # Eq. 1-3
            edges, penalty = received.edges, self.config.graph.reconstruction * received.penalty
            z, beta = self.pool.over_readings(short, received.h, p, with_weights=not scores_only)  # Eq. 4-5: (b, v, z)
            z = torch.cat([z, received.agreement], dim=-1)
        else:
            state = self.initial_graph(short, h, keep)  # Sec. 3.2
            for layer in self.layers:
                state = layer(short, h, p, state)  # Eq. 1-3, pruning
            edges, penalty = state.edges, state.penalty
            if state.embeddings is None:  # no messages: only readings have embeddings
                z, beta = self.pool.over_readings(short, h, p, with_weights=not scores_only)  # Eq. 4-5: (b, v, z)
            else:
                z, beta = self.pool(short, state.embeddings, p, state.present)  # Eq. 4-5: (b, v, z)
        sample, slot_penalty = self.read_out(short, z, keep, with_error=not scores_only)  # Sec. 3.4: (b, z)
        sample = series.mean(sample)
        edges = None if edges is None else series.mean(edges)
        scores = self.head(sample, batch.statics)  # Sec. 3.5
        penalty = penalty + slot_penalty + self.similarity_loss(edges)  # Sec. 3.5
        if series.pieces is not None or short.num_steps < batch.num_steps:
            beta = None  # its timestamps are not those of the batch
        if not self.config.head.members:
            return Output(scores, sample, penalty, edges, beta)
        return Output(self.task.combine(scores), sample, penalty, edges, beta, members=scores)

    def read_out(
        self, batch: Batch, z: Tensor, keep: Tensor | None, *, with_error: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Sec. 3.4: the sample embedding from the sensor embeddings z (b, v, z), and the penalty of the slots."""
        if self.slots is None:
            return self.readout(z), z.new_zeros(())
        slots = self.slots(batch, keep, with_error=with_error)
        sample = torch.cat([self.readout(torch.cat([z, slots.sensors], dim=-1)), slots.context], dim=-1)
        return sample, self.config.slots.reconstruction * slots.error

    def similarity_loss(self, edges: Tensor | None) -> Tensor | float:
        """lambda L_r of Sec. 3.5; 0 if the model has no edge weights."""
        config = self.config
        if edges is None or not (config.similarity and config.ablation.messages and config.ablation.edge_weights):
            return 0.0
        return config.similarity * graph_distance(edges)


def count_layers(config: RaindropConfig) -> int:
    """The number of layers that have an effect.

    A layer passes on edge weights and, with embedded senders, embeddings. Without both, only the last layer acts.
    """
    if not config.ablation.messages or config.graph.senders == "nearby":
        return 0
    return config.layers if config.ablation.edge_weights or config.graph.senders == "embedded" else 1


class ObservationEmbedding(nn.Module):
    """Sec. 3.3: h = sigma(x R_u), one weight vector R_u per sensor. Only readings are embedded."""

    def __init__(self, config: RaindropConfig, spec: DataSpec):
        super().__init__()
        rows = spec.num_sensors if config.ablation.sensor_embedding else 1
        self.R = uniform(rows, config.observation_dim)  # (u, d)
        self.indicator = uniform(rows, config.observation_dim) if config.mask_indicator else None  # (u, d)

    def forward(self, batch: Batch) -> Tensor:
        x = batch.value[:, None] * self.per_reading(batch, self.R)
        if self.indicator is not None:
            x = x + self.per_reading(batch, self.indicator)
        return torch.sigmoid(x)  # (n, d)

    @staticmethod
    def per_reading(batch: Batch, rows: Tensor) -> Tensor:
        """(u, d) -> (n, d), the row of each reading's sensor; one row for all sensors stays (1, d)."""
        return rows if len(rows) == 1 else batch.sensors.broadcast(rows)


class InitialGraph(nn.Module):
    """Sec. 3.2: every edge has weight 1, or the weight given by domain knowledge."""

    known: Tensor | None

    def __init__(self, initial_edges: tuple[tuple[str, str, float], ...] | None, spec: DataSpec):
        super().__init__()
        known = None
        if initial_edges is not None:
            known = torch.zeros(spec.num_sensors, spec.num_sensors)  # (u, v)
            for sender, receiver, weight in initial_edges:
                for name in (sender, receiver):
                    if name not in spec.sensors:
                        raise DataError(f"model.graph.initial_edges: no sensor '{name}'; {suggest(name, spec.sensors)}")
                known[spec.sensors.index(sender), spec.sensors.index(receiver)] = weight
        self.register_buffer("known", known, persistent=False)

    def forward(self, batch: Batch, h: Tensor, keep: Tensor | None = None) -> State:
        return State(batch.observed, h.new_zeros(()), self.edges(batch, keep))

    def edges(self, batch: Batch, keep: Tensor | None = None) -> Tensor | None:
        """(b, u, v); None if every edge has weight 1."""
        edges = None if self.known is None else self.known.expand(batch.num_samples, -1, -1)
        if keep is None:
            return edges
        return keep if edges is None else edges * keep


def graph_distance(edges: Tensor) -> Tensor:
    """L_r: mean over (u, v) of the sum over pairs of samples |e_i - e_j| / (B - 1)^2.

    Computed from sorted values in O(B log B).
    """
    B = len(edges)
    if B < 2:
        return edges.new_zeros(())
    ordered = edges.flatten(1).t().contiguous().sort(dim=1).values  # (u v, b)
    sign = 2 * torch.arange(B, device=edges.device, dtype=edges.dtype) - B + 1
    return 2 * (ordered @ sign).mean() / (B - 1) ** 2
