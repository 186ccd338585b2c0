"""Raindrop (Zhang et al., ICLR 2022), top to bottom as in the paper's Section 3.

The rounds of message passing (Eq. 1-3) are in messages.py, what happens along time (Eq. 4-5) is in temporal.py.
Axes: n a reading, b a sample, s a timestamp of a sample, u the sending and v the receiving sensor (M of them),
d the observation embedding, p the time encoding, r the receiver vector, k a head, j a rank of the message.
docs/paper_map.md lists each equation with its code, its test and where we had to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from raindrop.batch import Batch, Collator
from raindrop.errors import DataError, suggest
from raindrop.models.base import Activation, DataSpec, Head, Model, Output, TimeEncoding, uniform
from raindrop.models.ensemble import together
from raindrop.models.messages import MessagePassing, State
from raindrop.models.slots import Slots
from raindrop.models.temporal import Pool, Readout, TemporalAttention, TemporalLSTM, TemporalMean


@dataclass(frozen=True, kw_only=True)
class RaindropConfig:
    """The paper's model; every default is the paper's."""

    observation_dim: int = 4
    """d_h, size of an observation embedding."""
    time_dim: int = 16
    """xi, size of the time encoding."""
    time_base: float = 10000.0
    """Base of the time encoding's wave lengths."""
    time_scale: float = 1.0
    """Times are divided by this before they are encoded; 1 keeps the table's unit."""
    receiver_dim: int = 16
    """d_r, size of the receiver vector r_v."""
    layers: int = 2
    """L, rounds of message passing; all but the last prune."""
    prune: float = 0.5
    """K, share of all edges removed after each layer but the last."""
    senders: Literal["observed", "embedded"] = "observed"
    """Who sends: only sensors with a reading at that time ("active", Sec. 3.3), or after the first layer every sensor
    with an embedding."""
    normalise: Literal["sigmoid", "logit"] = "sigmoid"
    """What the softmax over active senders is taken of: Eq. 1's sigmoid, or its argument."""
    mixing: Literal["own", "residual"] = "own"
    """A sensor that has a reading and receives: its own reading alone, or the message added to it."""
    heads: int = 1
    """Heads of the inter-sensor attention alpha."""
    rank: int = 1
    """Rank of the message matrix w_u w_v^T."""
    temporal: Literal["attention", "mean", "lstm"] = "attention"
    """How a sensor's embeddings become one: Eq. 4-5, their average, or an LSTM's last state."""
    attention_dim: int = 20
    """d_k of the temporal attention."""
    sensor_dim: int = 20
    """Size of a sensor embedding, columns of W."""
    time_heads: int = 1
    """Heads of the temporal attention beta."""
    s: Literal["time", "rank"] = "time"
    """The vector s of Eq. 4: a linear function of the time encoding, or one learned entry per rank of a time."""
    max_rank: int = 1000
    """Entries of s = "rank"; a longer series is an error."""
    scores: Literal["sum", "mean"] = "sum"
    """Q K^T s sums over all times as written; the mean keeps its size for series of any length."""
    readout: Literal["concat", "mean", "squeeze"] = "concat"
    """Sensor embeddings into one: concatenation, average, squeeze-and-excitation."""
    static_dim: int | None = None
    """d_a, size of the projected statics; as many as sensors where not given."""
    hidden: int = 128
    """Neurons in the classifier's first layer."""
    activation: Activation = "sigmoid"
    """Activation in the classifier."""
    dropout: float = 0.0
    """Dropout in the classifier."""
    similarity: float = 0.02
    """lambda, weight of L_r: graphs of different samples should be alike."""
    reconstruction: float = 0.0
    """Weight of a further loss, not in the paper: messages alone must tell the receiver's reading."""
    mask_indicator: bool = False
    """Concatenate 1 to each reading (Appendix, missing pattern): an observation embedding then has a bias."""
    initial_edges: tuple[tuple[str, str, float], ...] | None = None
    """Known graph as (sender, receiver, weight); other edges do not exist. Not given: all edges, weight 1."""
    long_series: Literal["whole", "thin", "cut"] = "whole"
    """Series longer than max_times: as they are, evenly thinned, or cut into pieces whose embeddings are averaged."""
    max_times: int = 1000
    """Timestamps per sample that long_series "thin" and "cut" admit."""
    slots: int = 0
    """Size of a vector of each sensor's summaries beside its embedding, not in the paper; 0 has none."""
    slot_bins: int = 8
    """Bins of the piecewise-linear code of a summary."""
    slot_dropout: float = 0.0
    """Dropout of the codes."""
    slot_rank: int = 0
    """Rank of messages between slots: what the sensors that were read tell of the others; 0 has none."""
    slot_reconstruction: float = 0.3
    """Weight of the loss by which messages between slots learn to tell the receiver's summaries."""
    members: int = 0
    """Classifiers that share most weights and are averaged, not in the paper; 0 has the paper's one."""
    messages: bool = True
    """False: sensors stay isolated ("w/o graph")."""
    sensor_embedding: bool = True
    """False: one R for all sensors ("w/o R_u")."""
    edge_weights: bool = True
    """False: every edge weighs 1 and none is pruned ("w/o e"); with observed senders one layer is then all there is."""
    receiver_vectors: bool = True
    """False: attention does not know the receiver ("w/o r_v")."""
    time_encoding: bool = True
    """False: nothing knows the time ("w/o p")."""
    inter_sensor_attention: bool = True
    """False: alpha is 1 ("w/o alpha")."""

    def __post_init__(self) -> None:
        sizes = ("observation_dim", "receiver_dim", "attention_dim", "sensor_dim", "hidden", "max_rank", "max_times")
        for name in (*sizes, "layers", "heads", "rank", "time_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if min(self.slots, self.slot_rank, self.members) < 0 or self.slot_bins < 1 or not 0 <= self.slot_dropout < 1:
            raise ValueError(
                "slots, slot_rank and members are 0 or above, slot_bins 1 or above, slot_dropout from 0 to below 1."
            )
        if self.slot_rank and not self.slots:
            raise ValueError("slot_rank has no effect without slots; set slots above 0.")
        if not 0 <= self.prune < 1:
            raise ValueError(f"prune is a share of edges, 0 up to (not including) 1, not {self.prune}.")
        if self.initial_edges is not None:
            if not self.edge_weights:
                raise ValueError("initial_edges has no effect with edge_weights = false; give one or the other.")
            wrong = [edge for edge in self.initial_edges if not 0 < edge[2] <= 1]
            if wrong:
                raise ValueError(f"initial_edges have weights above 0 and up to 1, not {wrong[0][2]} ({wrong[0]}).")
        if self.reconstruction and (self.senders == "embedded" or not self.messages):
            raise ValueError(
                'reconstruction needs messages and senders = "observed"; '
                "embedded senders would carry the receiver's own reading back to it."
            )
        if not (self.receiver_vectors or self.time_encoding) and self.inter_sensor_attention and self.messages:
            raise ValueError(
                "attention needs receiver_vectors or time_encoding; else set inter_sensor_attention = false."
            )


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
            keep = None if keep is None else pieces.spread(keep)

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
        return rows if len(rows) == 1 else batch.sensors.spread(rows)


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
