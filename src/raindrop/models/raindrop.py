"""Raindrop (Zhang et al., ICLR 2022), top to bottom as in the paper's Section 3.

Axes: n a reading, b a sample, s a timestamp of a sample, u the sending and v the receiving sensor (M of them),
d the observation embedding, p the time encoding, r the receiver vector, k a head, j a rank of the message.
docs/paper_map.md lists each equation with its code, its test and where we had to decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from raindrop.batch import Batch
from raindrop.errors import DataError, suggest
from raindrop.models.base import Activation, DataSpec, Head, Model, Output, TimeEncoding, uniform
from raindrop.models.temporal import Pool, Readout, TemporalAttention, TemporalLSTM, TemporalMean
from raindrop.ragged import Segments

CHUNK = 2048  # timestamps whose (u, v) attention is held at once


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
    senders: Literal["embedded", "observed"] = "embedded"
    """Who sends after the first layer: every sensor with an embedding at that time, or only those with a reading."""
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
    tell: Literal["now", "next"] = "now"
    """Which reading reconstruction is about: the receiver's at the same time, told by others, or its next one, told by
    all that are read now, itself included: so an edge says who drives whom with a lag."""
    mask_indicator: bool = False
    """Concatenate 1 to each reading (Appendix, missing pattern): an observation embedding then has a bias."""
    initial_edges: tuple[tuple[str, str, float], ...] | None = None
    """Known graph as (sender, receiver, weight); other edges do not exist. Not given: all edges, weight 1."""
    long_series: Literal["whole", "thin", "cut"] = "whole"
    """Series longer than max_times: as they are, evenly thinned, or cut into pieces whose embeddings are averaged."""
    max_times: int = 1000
    """Timestamps per sample that long_series "thin" and "cut" admit."""
    messages: bool = True
    """False: sensors stay isolated ("w/o graph")."""
    sensor_embedding: bool = True
    """False: one R for all sensors ("w/o R_u")."""
    edge_weights: bool = True
    """False: every edge weighs 1 and none is pruned ("w/o e")."""
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
        if self.tell == "next" and not self.reconstruction:
            raise ValueError('tell = "next" has no effect without reconstruction; set reconstruction above 0.')
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
        depth = config.layers if config.messages else 0
        self.layers = nn.ModuleList(MessagePassing(config, spec, last=at == depth - 1) for at in range(depth))
        self.pool = pool_of(config)
        self.readout = Readout(config.readout, spec.num_sensors, self.pool.dim)
        static_dim = config.static_dim or spec.num_sensors
        self.head = Head(
            self.readout.dim,
            spec,
            static_dim=static_dim,
            hidden=config.hidden,
            activation=config.activation,
            dropout=config.dropout,
        )

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
        sample = self.readout(z)  # Sec. 3.4: (b, z)

        edges = state.edges
        if pieces is not None:
            share = pieces.counts[:, None]
            sample, time_weights = pieces.sum(sample) / share, None
            edges = None if edges is None else pieces.sum(edges) / share[..., None]
        if batch.num_slots < whole.num_slots:
            time_weights = None  # they are of the times that were kept
        logits = self.head(sample, whole.statics)
        penalty = state.loss
        if edges is not None and self.config.similarity and self.config.messages and self.config.edge_weights:
            penalty = penalty + self.config.similarity * disparity(edges)  # L_r
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


@dataclass(frozen=True)
class State:
    """What the layers hand on."""

    loss: Tensor  # () further losses
    edges: Tensor | None = None  # (b, u, v); 0 where there is no edge, None while all weigh 1
    received: Tensor | None = None  # (s, v, d) embeddings at every sensor, its own reading included
    reached: Tensor | None = None  # (s, v) who has one

    def embedding(self, batch: Batch, h: Tensor) -> Tensor:
        """(s, v, d) the embedding of every sensor at every time, 0 where it has none."""
        if self.received is not None:
            return self.received
        return place_readings(batch, h.new_zeros(batch.num_slots, batch.num_sensors, h.shape[-1]), h)

    def has(self, batch: Batch) -> Tensor:
        """(s, v) whether sensor v has an embedding at time s: s is in T_{i,v}."""
        return batch.observed if self.reached is None else self.reached


@dataclass(frozen=True)
class Delivery:
    """What goes to each sensor v, from one reading or summed over all senders at a time."""

    sent: Tensor  # (n or s, k, j, v) weight * e * (h_u . w_u)
    weight: Tensor  # (n or s, k, v) of the softmax over senders, before normalisation


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


class MessagePassing(nn.Module):
    """Sec. 3.3: one round. Observation embeddings travel along edges, and edges learn from what was sent.

    A message h_u w_u w_v^T alpha e is a number times w_v, so what arrives at (s, v) is one number per rank and head.
    """

    def __init__(self, config: RaindropConfig, spec: DataSpec, *, last: bool):
        super().__init__()
        d, M, heads, rank = config.observation_dim, spec.num_sensors, config.heads, config.rank
        self.config, self.prunes = config, not last and config.edge_weights
        time_dim = config.time_dim if config.time_encoding else 0
        receiver_dim = config.receiver_dim if config.receiver_vectors else 0
        if config.inter_sensor_attention:
            self.D_p = uniform(heads, d, time_dim, bound=d**-0.5) if time_dim else None
            self.D_r = uniform(heads, d, receiver_dim, bound=d**-0.5) if receiver_dim else None
            self.r = uniform(heads, M, receiver_dim) if receiver_dim else None  # (k, v, r)
        # With observed senders, what earlier layers deliver is never sent on: they only shape the graph.
        self.delivers = last or config.senders == "embedded"
        if self.delivers:
            self.w_send = uniform(M, heads * rank, d)  # (u, kj, d)
            self.w_receive = uniform(M, heads * rank, d)  # (v, kj, d)
        # A sensor may tell its own next reading, but not the one that it sends.
        self.deaf_to_itself = config.tell == "now" and (config.mixing == "residual" or config.reconstruction > 0)
        if config.reconstruction and last:
            self.decode = uniform(M, d)  # (v, d)
            self.decode_bias = nn.Parameter(torch.zeros(M))

    def logits(self, h: Tensor, p: Tensor) -> Tensor:
        """The argument of Eq. 1, h D [r_v || p_t]^T, with D split into the parts that meet r_v and p_t.

        h (..., d) and p (..., p) -> (..., k, v), or (..., k, 1) where no receiver vector tells receivers apart.
        """
        logit = h.new_zeros(())
        if self.r is not None and self.D_r is not None:
            meets = self.D_r @ self.r.transpose(1, 2)  # (k, d, v)
            logit = (h @ meets.transpose(0, 1).flatten(1)).view(*h.shape[:-1], *meets.shape[::2])
        if self.D_p is not None:
            heads, d, width = self.D_p.shape
            sent = (h @ self.D_p.transpose(0, 1).reshape(d, -1)).view(*h.shape[:-1], heads, width)  # (..., k, p)
            logit = logit + (sent * p[..., None, :]).sum(-1, keepdim=True)
        return logit

    def attention(self, h: Tensor, p: Tensor, num_sensors: int) -> tuple[Tensor, Tensor]:
        """Eq. 1: alpha (..., k, v), and what the softmax over senders is taken of."""
        if not self.config.inter_sensor_attention:
            alpha = h.new_ones(*h.shape[:-1], self.config.heads, num_sensors)
            return alpha, alpha
        logit = self.logits(h, p).expand(*h.shape[:-1], -1, num_sensors)
        alpha = torch.sigmoid(logit)
        return alpha, alpha if self.config.normalise == "sigmoid" else logit.clamp(-30.0, 30.0)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, state: State) -> State:
        edges = state.edges if self.config.edge_weights else None
        if state.received is None or not batch.num_slots:  # without any time there is nothing to cut into chunks
            mean_alpha, delivery = self.send_readings(batch, h, p, edges)
        else:
            mean_alpha, delivery = self.send_embeddings(batch, state.received, state.has(batch), p, edges)
        if self.config.edge_weights:
            updated = mean_alpha if state.edges is None else state.edges * mean_alpha  # Eq. 3
            updated = prune(updated, self.config.prune) if self.prunes else updated
        else:
            updated = torch.ones_like(mean_alpha)
        if delivery is None:
            return State(loss=state.loss, edges=updated)
        return self.receive(batch, h, delivery, replace(state, edges=updated))

    def speak(self, batch: Batch, h: Tensor, p: Tensor, edges: Tensor | None) -> tuple[Tensor, Delivery | None]:
        """What every reading sends to every sensor, before any sum: alpha (n, k, v), and its part of the delivery."""
        alpha, score = self.attention(h, batch.slots.spread(p), batch.num_sensors)
        if not self.delivers:
            return alpha, None
        weight = score.exp()
        if self.deaf_to_itself:
            itself = batch.sensor[:, None, None].expand(-1, weight.shape[1], 1)
            weight = weight.scatter(-1, itself, 0.0)
        # `weight` goes below the fraction of the softmax, `carried` above it: e scales a message, not its share.
        carried = weight
        if edges is not None:
            e = edges.flatten(0, 1)  # (b u, v)
            exists = batch.senders.spread(e.detach().sign())[:, None]  # (n, 1, v)
            weight, carried = weight * exists, weight * batch.senders.spread(e)[:, None]
        sends = (h[:, None] * batch.sensors.spread(self.w_send)).sum(-1)  # (n, kj): h_u . w_u
        sends = sends.view(len(h), self.config.heads, self.config.rank)
        return alpha, Delivery(carried[:, :, None] * sends[..., None], weight)

    def send_readings(self, batch: Batch, h: Tensor, p: Tensor, edges: Tensor | None) -> tuple[Tensor, Delivery | None]:
        """Every reading sends. -> the mean of alpha over the times u sent, (b, u, v), and what was delivered."""
        alpha, spoken = self.speak(batch, h, p, edges)
        mean_alpha = batch.senders.sum(over_heads(alpha, 1)) / batch.senders.counts.clamp_min(1)[:, None]
        mean_alpha = mean_alpha.view(batch.num_samples, batch.num_sensors, batch.num_sensors)
        if spoken is None:
            return mean_alpha, None
        return mean_alpha, Delivery(batch.slots.sum(spoken.sent), batch.slots.sum(spoken.weight))

    def send_embeddings(
        self, batch: Batch, h: Tensor, has: Tensor, p: Tensor, edges: Tensor | None
    ) -> tuple[Tensor, Delivery]:
        """Every sensor with an embedding h (s, u, d) sends; as `send_readings`, CHUNK timestamps at a time.

        A chunk's (s, u, v) attention is computed again for the gradient instead of being kept: it never leaves the
        processor's cache, and a long series needs no more memory than its embeddings do.
        """
        # A chunk holds pieces of consecutive samples: `piece` of each timestamp, `owner` sample of each piece.
        chunk_of = torch.arange(batch.num_slots, device=h.device) // CHUNK
        key, piece = torch.unique_consecutive(chunk_of * batch.num_samples + batch.slot_sample, return_inverse=True)
        pieces = Segments.of(key % batch.num_samples, batch.num_samples)
        held = torch.bincount(key // batch.num_samples).tolist()
        edges_of = [None] * len(held) if edges is None else torch.split(pieces.spread(edges), held)
        chunks = zip(*(torch.split(x, CHUNK) for x in (h, p, has, batch.observed, piece)), edges_of, strict=True)
        out = [checkpoint(self.send_chunk, *c, use_reentrant=False, preserve_rng_state=False) for c in chunks]
        times = batch.samples.sum(has.to(h.dtype)).clamp_min(1)  # (b, u)
        totals, sent, weights = (torch.cat(parts) for parts in zip(*out, strict=True))
        return pieces.sum(totals) / times[..., None], Delivery(sent, weights)

    def send_chunk(
        self, h: Tensor, p: Tensor, has: Tensor, observed: Tensor, piece: Tensor, edges: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Some consecutive timestamps; edges (piece, u, v). -> sum of alpha per piece (piece, u, v), sent, weight."""
        num_sensors = h.shape[1]
        alpha, score = self.attention(h, p[:, None], num_sensors)  # (s, u, k, v)
        weight = score.exp()
        if not has.all():
            present = has[:, :, None, None].to(h.dtype)
            alpha, weight = alpha * present, weight * present
        if self.deaf_to_itself:
            weight = weight * (1 - torch.diag_embed(observed.to(h.dtype))[:, :, None])
        local = Segments.of(piece - piece[0], int(piece[-1] - piece[0]) + 1, ordered=True)
        carried = weight
        if edges is not None:
            e = local.spread(edges)[:, :, None]  # (s, u, 1, v)
            weight, carried = weight * e.detach().sign(), weight * e
        sends = (h[:, :, None] * self.w_send).sum(-1).view(*h.shape[:2], -1, self.config.rank)  # (s, u, k, j)
        sent = torch.einsum("sukv,sukj->skjv", carried, sends)
        return local.sum(over_heads(alpha, 2)), sent, weight.sum(1)

    def message(self, delivery: Delivery) -> Tensor:
        """a w_v, a the sum of what was sent, normalised over senders: (..., v, d), 0 where nothing arrived."""
        total = delivery.weight.masked_fill(delivery.weight <= 0, 1.0)
        a = delivery.sent / total[..., None, :]  # (..., k, j, v)
        return (a.flatten(-3, -2)[..., None] * self.w_receive.transpose(0, 1)).sum(-3)

    def receive(self, batch: Batch, h: Tensor, delivery: Delivery, state: State) -> State:
        """Eq. 2: h_v = sigma(a w_v); where v has a reading of its own, that wins."""
        message = self.message(delivery)  # (s, v, d)
        arrived = (delivery.weight > 0).any(1)  # (s, v)
        reached = batch.observed | arrived
        received = torch.sigmoid(message) * reached[..., None].to(message.dtype)
        own, loss = h, state.loss
        if self.config.mixing == "residual":
            told = message.flatten(0, 1).index_select(0, batch.cell)  # (n, d) what the others told each reading
            own = torch.sigmoid(torch.logit(h, eps=1e-6) + told)
        if self.config.reconstruction:
            loss = loss + self.config.reconstruction * self.telling_error(batch, message, arrived)
        return State(loss, state.edges, place_readings(batch, received, own), reached)

    def telling_error(self, batch: Batch, message: Tensor, arrived: Tensor) -> Tensor:
        """Mean squared error of the readings as messages (s, v, d) tell them; not in the paper."""
        if self.config.tell == "now":
            cell, value, sensors = batch.cell, batch.value, batch.sensors  # (n,)
        else:
            cell = torch.nonzero(batch.following.flatten() >= 0).squeeze(1)
            value = batch.value.index_select(0, batch.following.flatten().index_select(0, cell))
            sensors = Segments.of(cell % batch.num_sensors, batch.num_sensors)
        told = message.flatten(0, 1).index_select(0, cell)
        heard = arrived.flatten().index_select(0, cell)
        guess = self.guess(told, sensors.spread(self.decode), sensors.spread(self.decode_bias))
        error = (guess - value.clamp(-5, 5)).square() * heard
        return error.sum() / heard.sum().clamp_min(1)

    @staticmethod
    def guess(message: Tensor, decode: Tensor, bias: Tensor) -> Tensor:
        """A sensor's reading as its messages (..., d) tell it; not in the paper."""
        return (torch.sigmoid(message) * decode).sum(-1) + bias


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


def over_heads(alpha: Tensor, dim: int) -> Tensor:
    """The mean over heads."""
    return alpha.squeeze(dim) if alpha.shape[dim] == 1 else alpha.mean(dim)


def place_readings(batch: Batch, embeddings: Tensor, own: Tensor) -> Tensor:
    """Where a sensor has a reading, its own embedding (n, d) stands in (s, v, d)."""
    return embeddings.flatten(0, 1).index_copy(0, batch.cell, own).view_as(embeddings)


def prune(edges: Tensor, share: float) -> Tensor:
    """Sec. 3.3: set the `share` of lowest edges of each sample to 0, over all M^2; of equal ones the later go first."""
    flat = edges.flatten(1)  # (b, u v)
    keep = flat.shape[1] - int(share * flat.shape[1])
    with torch.no_grad():
        border = flat.kthvalue(flat.shape[1] - keep + 1, dim=1, keepdim=True).values
        above, tied = flat > border, flat == border
        room = keep - above.sum(1, keepdim=True)
        alive = above | (tied & (tied.cumsum(1) <= room))
    return (flat * alive.to(flat.dtype)).view_as(edges)


def disparity(edges: Tensor) -> Tensor:
    """L_r: mean over (u, v) of the sum over sample pairs |e_i - e_j| / (B - 1)^2, from sorted values: O(B log B)."""
    B = len(edges)
    if B < 2:
        return edges.new_zeros(())
    ordered = edges.flatten(1).t().contiguous().sort(dim=1).values  # (u v, b)
    sign = 2 * torch.arange(B, device=edges.device, dtype=edges.dtype) - B + 1
    return 2 * (ordered @ sign).mean() / (B - 1) ** 2
