"""The paper's Section 3 in plain loops over samples, times, sending and receiving sensors: slow, but easy to check.

Written from the paper's equations, not from `raindrop.models`; only the weights and settings of a model are used.
Axes: t a time of the sample, u the sending and v the receiving sensor, k a head, j a rank of the message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from raindrop.models.raindrop.messages import MessagePassing
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.temporal import TemporalAttention, TemporalLSTM, TemporalMean
from raindrop.table.event_table import EventTable

Floats = NDArray[np.float64]
At = tuple[int, int]  # (t, sensor)


@dataclass
class Sample:
    """One sample: its times in order, and the reading of sensor u at time number t."""

    times: list[float]
    readings: dict[At, float]
    statics: Floats
    num_sensors: int


@dataclass
class LoopOutput:
    """What the loops compute for one sample."""

    embeddings: list[dict[At, Floats]]  # of each layer: h of sensor v at time t, for t in T_{i,v}
    edges: list[Floats]  # of each layer, pruned: (u, v)
    beta: dict[At, float]
    z: Floats  # (v, z)
    sample: Floats
    scores: Floats


def samples_of(table: EventTable, statics: Floats) -> list[Sample]:
    """The samples of a table with z-scored readings."""
    values: dict[str, list[float]] = {name: [] for name in table.sensors}
    for _, _, sensor, value in table.events().iter_rows():
        values[sensor].append(value)
    samples = []
    for b, name in enumerate(table.ids):
        rows = [row for row in table.events().iter_rows() if row[0] == name]
        times = sorted({time for _, time, _, _ in rows})
        readings = {}
        for _, time, sensor, value in rows:
            scaled = (value - np.mean(values[sensor])) / np.std(values[sensor])
            readings[times.index(time), table.sensors.index(sensor)] = float(scaled)
        samples.append(Sample(times, readings, statics[b], len(table.sensors)))
    return samples


def sigma(x: Floats) -> Floats:
    """The sigmoid."""
    return 1 / (1 + np.exp(-x))


def softmax(scores: list[float]) -> list[float]:
    """exp over the sum of exps."""
    return [math.exp(score) / sum(math.exp(other) for other in scores) for score in scores]


def encode_time(t: float, xi: int, base: float = 10000.0) -> Floats:
    """Appendix: p_2k = sin(t / base^(2k / xi)), p_2k+1 = cos(t / base^(2k / xi))."""
    p = np.zeros(xi)
    for k in range(xi // 2):
        p[2 * k] = math.sin(t / base ** (2 * k / xi))
        p[2 * k + 1] = math.cos(t / base ** (2 * k / xi))
    return p


# ------------------------------------------------------------------ Sec. 3.3: messages and the graph


@dataclass
class LayerWeights:
    """One layer's weights, each with a leading axis for heads; w_u and w_v also for ranks."""

    D: Floats | None  # (k, d, r + p); None: alpha is 1
    r: Floats  # (k, v, r)
    w_u: Floats | None  # (u, k, j, d); None: the layer only updates edges, its messages are never used
    w_v: Floats | None  # (v, k, j, d)
    heads: int
    rank: int
    softmax_of_sigmoid: bool
    own_reading_wins: bool

    @classmethod
    def from_layer(cls, layer: MessagePassing, num_sensors: int) -> LayerWeights:
        """The weights of a layer."""
        graph, w = layer.config.graph, [None, None]
        if layer.sends_messages:
            shape = (num_sensors, graph.heads, graph.rank, -1)
            w = [numpy(weight).reshape(shape) for weight in (layer.w_send, layer.w_receive)]
        D, r = None, np.zeros((graph.heads, num_sensors, 0))
        if layer.config.ablation.inter_sensor_attention:
            parts = [numpy(part) for part in (layer.D_r, layer.D_p) if part is not None]
            D, r = np.concatenate(parts, axis=-1), r if layer.r is None else numpy(layer.r)
        return cls(
            D=D,
            r=r,
            w_u=w[0],
            w_v=w[1],
            heads=graph.heads,
            rank=graph.rank,
            softmax_of_sigmoid=graph.normalise == "sigmoid",
            own_reading_wins=graph.mixing == "own",
        )

    def attention_argument(self, h_u: Floats, v: int, p_t: Floats, k: int) -> float:
        """h_u D [r_v || p_t]^T."""
        assert self.D is not None
        return float(h_u @ self.D[k] @ np.concatenate([self.r[k, v], p_t]))

    def alpha(self, h_u: Floats, v: int, p_t: Floats, k: int) -> float:
        """Eq. 1."""
        return 1.0 if self.D is None else float(sigma(self.attention_argument(h_u, v, p_t, k)))

    def score(self, h_u: Floats, v: int, p_t: Floats, k: int) -> float:
        """What the softmax across active sensors is applied to."""
        if self.softmax_of_sigmoid or self.D is None:
            return self.alpha(h_u, v, p_t, k)
        return self.attention_argument(h_u, v, p_t, k)


def receive(
    w: LayerWeights, sending: Mapping[At, Floats], readings: Mapping[At, Floats], e: Floats, p: list[Floats]
) -> dict[At, Floats]:
    """Eq. 2: the embedding of every sensor that has a reading or receives from an active sensor."""
    num_sensors, out = len(e), dict(readings)
    if w.w_u is None or w.w_v is None:
        return out
    for t, v in product(range(len(p)), range(num_sensors)):
        active = [u for u in range(num_sensors) if (t, u) in sending and e[u, v] > 0]
        if (t, v) in readings:
            if w.own_reading_wins:
                continue
            active = [u for u in active if u != v]
        if not active:
            continue
        message = np.zeros(w.w_v.shape[-1])
        for k in range(w.heads):
            alpha_hat = softmax([w.score(sending[t, u], v, p[t], k) for u in active])
            for u, share in zip(active, alpha_hat, strict=True):
                for j in range(w.rank):
                    message += sending[t, u] @ np.outer(w.w_u[u, k, j], w.w_v[v, k, j]) * share * e[u, v]
        if (t, v) in readings:  # residual: the message is added to the reading before sigma
            message += np.log(readings[t, v] / (1 - readings[t, v]))
        out[t, v] = sigma(message)
    return out


def update_edges(w: LayerWeights, sending: Mapping[At, Floats], e: Floats, p: list[Floats]) -> Floats:
    """Eq. 3: e times the mean of alpha over the times at which u sends; 0 where u never does."""
    new = np.zeros_like(e)
    for u, v in product(range(len(e)), range(len(e))):
        alphas = []
        for t in range(len(p)):
            if (t, u) in sending:
                alphas.append(np.mean([w.alpha(sending[t, u], v, p[t], k) for k in range(w.heads)]))
        if alphas:
            new[u, v] = e[u, v] * np.mean(alphas)
    return new


def prune(e: Floats, share: float) -> Floats:
    """Remove the `share` of the M^2 edges with the smallest weights; among equal ones (our choice) the later first."""
    ascending = sorted(product(range(len(e)), range(len(e))), key=lambda uv: (e[uv], -uv[0], -uv[1]))
    out = e.copy()
    for uv in ascending[: int(share * len(ascending))]:
        out[uv] = 0.0
    return out


# ------------------------------------------------------------------ Sec. 3.3: from times to sensors


def attend(
    h: dict[int, Floats], p: list[Floats], W_Q: Floats, W_K: Floats, s: Floats, *, mean: bool
) -> tuple[dict[int, float], Floats]:
    """Eq. 4 with the T x T matrix, and sum_t beta_t [h_t || p_t] of Eq. 5; h by time, s in order of the times."""
    H = np.stack([np.concatenate([h[t], p[t]]) for t in sorted(h)])
    Q, K = H @ W_Q, H @ W_K
    matrix = Q @ K.T / math.sqrt(W_Q.shape[1])  # (T, T)
    scores = matrix @ (s / len(H) if mean else s)
    beta = softmax(list(scores))
    pooled = sum(weight * row for weight, row in zip(beta, H, strict=True))
    return dict(zip(sorted(h), beta, strict=True)), np.asarray(pooled)


def lstm_last_state(inputs: list[Floats], pool: TemporalLSTM) -> Floats:
    """One LSTM step after another; the last output."""
    w_in, w_state, b_in, b_state = (numpy(weight) for weight in pool.lstm.parameters())
    h = c = np.zeros(pool.dim)
    for x in inputs:
        i, f, g, o = np.split(w_in @ x + b_in + w_state @ h + b_state, 4)
        c = sigma(f) * c + sigma(i) * np.tanh(g)
        h = sigma(o) * np.tanh(c)
    return h


def pool_sensor(model: Raindrop, h: dict[int, Floats], p: list[Floats]) -> tuple[dict[int, float], Floats]:
    """All embeddings h of one sensor, by time -> the weight of each time, and z; z = 0 where T_{i,v} is empty."""
    pool = model.pool
    if not h:
        return {}, np.zeros(pool.dim)
    if isinstance(pool, TemporalLSTM):
        absent = np.zeros(len(next(iter(h.values()))) + len(p[0]))
        inputs = [np.concatenate([h[t], p[t]]) if t in h else absent for t in range(len(p))]
        return {}, lstm_last_state(inputs, pool)
    if isinstance(pool, TemporalMean):
        stacked = np.stack([np.concatenate([h[t], p[t]]) for t in sorted(h)])
        return {t: 1 / len(h) for t in h}, stacked.mean(0) @ numpy(pool.W)
    assert isinstance(pool, TemporalAttention)
    betas, pooled = [], []
    for k in range(pool.heads):
        if pool.s_rank is not None:
            s = numpy(pool.s_rank)[: len(h), k]
        else:
            slope = 0.0 if pool.s_time is None else numpy(pool.s_time)[:, k]
            s = np.array([np.sum(p[t] * slope) + numpy(pool.s_bias)[k] for t in sorted(h)])
        beta, row = attend(h, p, numpy(pool.W_Q)[k], numpy(pool.W_K)[k], s, mean=pool.mean_scores)
        betas.append(beta)
        pooled.append(row)
    return {t: float(np.mean([beta[t] for beta in betas])) for t in h}, np.concatenate(pooled) @ numpy(pool.W)


# ------------------------------------------------------------------ Sec. 3.4 and 3.5


def read_out(model: Raindrop, z: Floats) -> Floats:
    """Concatenation, average, or squeeze-and-excitation (one gate per sensor, from all sensors' averages)."""
    if model.config.readout == "concat":
        joined = np.concatenate(list(z))
        if not model.config.sample_dim:
            return joined
        dense = model.readout.dense[0]
        return sigma(numpy(dense.weight) @ joined + numpy(dense.bias))
    if model.config.readout == "squeeze":
        first, second = model.readout.gate[0], model.readout.gate[2]
        squeezed = sigma(numpy(first.weight) @ z.mean(1) + numpy(first.bias))
        gates = sigma(numpy(second.weight) @ squeezed + numpy(second.bias))
        z = np.stack([gate * row for gate, row in zip(gates, z, strict=True)])
    return np.asarray(sum(z) / len(z))


def classify(model: Raindrop, sample: Floats, statics: Floats) -> Floats:
    """[z || a] through two layers."""
    if model.head.statics is not None:
        projected = numpy(model.head.statics.weight) @ statics + numpy(model.head.statics.bias)
        sample = np.concatenate([sample, projected])
    first, second = (layer for layer in model.head.classifier if hasattr(layer, "weight"))
    hidden = numpy(first.weight) @ sample + numpy(first.bias)
    hidden = sigma(hidden) if model.config.head.activation == "sigmoid" else np.maximum(hidden, 0)
    return numpy(second.weight) @ hidden + numpy(second.bias)


def graph_distance(edges: list[Floats]) -> float:
    """L_r: 1/M^2 sum_{u,v} sum_{i,j} |e_i,uv - e_j,uv| / (B - 1)^2, over the samples i, j of a batch."""
    total, num_sensors = 0.0, len(edges[0])
    for u, v in product(range(num_sensors), range(num_sensors)):
        for e_i, e_j in product(edges, edges):
            total += abs(e_i[u, v] - e_j[u, v]) / (len(edges) - 1) ** 2
    return total / num_sensors**2


def forward(model: Raindrop, sample: Sample, known: Floats | None = None) -> LoopOutput:
    """Sec. 3, top to bottom, for one sample; `known` is the initial graph where there is one."""
    config, M = model.config, sample.num_sensors
    xi = config.time_dim if config.ablation.time_encoding else 0
    p = [encode_time(t / config.time.scale, xi, config.time.base) for t in sample.times]
    readings = {}
    for (t, u), x in sample.readings.items():
        row = u if config.ablation.sensor_embedding else 0
        bias = 0.0 if model.embed.indicator is None else numpy(model.embed.indicator)[row]
        readings[t, u] = sigma(x * numpy(model.embed.R)[row] + bias)
    e = np.ones((M, M)) if known is None or not config.ablation.edge_weights else known
    sending, h, embeddings, edges = readings, readings, [], []
    for l, layer in enumerate(model.layers):
        w = LayerWeights.from_layer(layer, M)
        h = receive(w, sending, readings, e, p)
        if config.ablation.edge_weights:
            e = update_edges(w, sending, e, p)
            e = prune(e, config.prune) if l < len(model.layers) - 1 else e
        sending = h if config.graph.senders == "embedded" else readings
        embeddings.append(h)
        edges.append(e)
    beta, z = {}, []
    for v in range(M):
        beta_v, z_v = pool_sensor(model, {t: row for (t, sensor), row in h.items() if sensor == v}, p)
        beta |= {(t, v): weight for t, weight in beta_v.items()}
        z.append(z_v)
    embedding = read_out(model, np.stack(z))
    return LoopOutput(embeddings, edges, beta, np.stack(z), embedding, classify(model, embedding, sample.statics))


def numpy(tensor: object) -> Floats:
    """A tensor's numbers in double precision."""
    return np.asarray(tensor.detach().double().numpy())  # type: ignore[attr-defined]
