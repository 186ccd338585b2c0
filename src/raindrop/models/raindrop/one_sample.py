"""The scores of a single sample in NumPy: the equations of model.py for the preset "tuned", without gradients.

A forward pass of one sample is hundreds of operations on small arrays, and most of torch's time is overhead per
operation; NumPy's overhead is several times smaller. Nothing is cached between calls: weights are read from torch's
memory. tests/models/raindrop/test_one_sample.py compares the result with the model's.

Axes as in model.py: n a reading, s a timestamp, u the sending and v the receiving sensor, d the observation embedding,
p the time encoding, k a head, j a rank of the message, m a member of the head.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.nearby import Neighbours
from raindrop.models.ensemble import EnsembleHead
from raindrop.models.layers import Head
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import MAX_TARGET
from raindrop.models.raindrop.nearby_messages import LINE_DECAYS, MAX_PAIR, PAIR_RATE, NearbyMessages
from raindrop.models.raindrop.slots import PiecewiseLinear, Slots
from raindrop.models.raindrop.temporal import TemporalAttention

Array = NDArray[Any]
LOWEST, TINY = np.finfo(np.float32).min, np.finfo(np.float32).tiny
MAX_READINGS = 20_000  # with larger samples, torch's overhead no longer matters


def fits(config: RaindropConfig, batch: Batch) -> bool:
    """Whether `scores_of_one` supports this batch (one sample, on the CPU) and these settings."""
    return (
        batch.num_samples == 1
        and 0 < len(batch.value) <= MAX_READINGS
        and batch.value.device.type == "cpu"
        and batch.value.dtype == torch.float32
        and (config.graph.senders == "nearby" or not config.ablation.messages)
        and config.graph.initial_edges is None
        and config.ablation.sensor_embedding
        and config.ablation.time_encoding
        and config.temporal == "attention"
        and config.temporal_attention.s == "time"
        and config.readout == "concat"
        and not config.sample_dim
        and config.slots.dim > 0
        and (config.long_series.mode == "whole" or batch.num_steps <= config.long_series.max_times)
    )


def scores_of_one(model: Any, batch: Batch) -> Tensor:
    """(1, output): the same as `model(batch).scores` of a `Raindrop`."""
    readings = _Readings(batch)
    p = _np(model.encode_time(batch.time, like=batch.value))  # (s, p)
    x = readings.value[:, None] * _np(model.embed.R).take(readings.sensor, axis=0)
    if model.embed.indicator is not None:
        x += _np(model.embed.indicator).take(readings.sensor, axis=0)
    h, of_sensors = _sigmoid(x), []  # (n, d), and what is concatenated for each sensor (v, ...)
    if model.nearby is not None:
        h, agreement = _messages(cast(NearbyMessages, model.nearby), batch, readings, h)  # Eq. 1-3
        of_sensors = [agreement]
    z = _pool(cast(TemporalAttention, model.pool), readings, h, p)  # Eq. 4-5: (v, z)
    slots, context = _slots(cast(Slots, model.slots), batch, readings)
    sample = np.concatenate([np.concatenate([z, *of_sensors, slots], axis=1).ravel(), context])  # Sec. 3.4
    scores = torch.from_numpy(_head(model.head, sample, batch.statics.numpy()[0])[None])  # Sec. 3.5
    combined: Tensor = model.task.combine(scores) if model.config.head.members else scores
    return combined


class _Readings:
    """The readings of the sample as arrays, and how they are sorted by sensor."""

    def __init__(self, batch: Batch):
        self.value, self.sensor, self.step = batch.value.numpy(), batch.sensor.numpy(), batch.step.numpy()
        self.num_sensors = batch.num_sensors
        self.rows, self.count = batch.senders.rows.numpy(), batch.senders.counts.numpy()  # by sensor, then time
        self.present = self.count > 0
        self.start = (np.cumsum(self.count) - self.count)[self.present]  # of each sensor with readings
        self.number = self.count[self.present]

    def reduce(self, operation: np.ufunc, by_sensor: Array) -> Array:
        """(n, ...) sorted by sensor -> (sensors with readings, ...)."""
        return operation.reduceat(by_sensor, self.start, axis=0)

    def sum(self, x: Array) -> Array:
        """(n, ...) -> (u, ...), 0 for sensors without readings."""
        total = np.zeros((self.num_sensors, *x.shape[1:]), dtype=x.dtype)
        total[self.present] = self.reduce(np.add, x.take(self.rows, axis=0))
        return total


def _messages(layer: NearbyMessages, batch: Batch, readings: _Readings, h: Array) -> tuple[Array, Array]:
    """`NearbyMessages.forward`: embeddings with their messages (n, d), and the agreement (v, 3)."""
    sensor, n, heads, lines = readings.sensor, len(h), layer.heads, len(LINE_DECAYS)
    content = np.einsum("nd,ncd->nc", h, _np(layer.w_send).take(sensor, axis=0)).reshape(n, heads, -1)  # (n, k, j)
    if heads > lines:
        content[:, lines:] = _decaying_average(layer, batch, readings, content[:, lines:])
    numerator, weight = _sender_sums(layer, batch, readings, content)
    nobody = np.exp(_bounded(_np(layer.nobody), MAX_PAIR)).T.take(sensor, axis=1)  # (k, n)
    a = numerator / (weight + nobody)[:, None]  # (k, j, n)
    message = np.einsum("nc,ncd->nd", a.reshape(-1, n).T, _np(layer.w_receive).take(sensor, axis=0))  # Eq. 2
    predicted = np.einsum("nd,nd->n", _sigmoid(message), _np(layer.decode).take(sensor, axis=0))
    predicted += _np(layer.decode_bias).take(sensor)
    value = _bounded(readings.value, MAX_TARGET)
    statistics = np.array([value * predicted, predicted * predicted, np.square(predicted - value)]).T
    agreement = readings.sum(statistics) / np.maximum(readings.count, 1)[:, None].astype(np.float32)
    bounded = np.minimum(np.maximum(h, np.float32(1e-6)), np.float32(1 - 1e-6))
    return _sigmoid(np.log(bounded / (1 - bounded)) + message), agreement


def _decaying_average(layer: NearbyMessages, batch: Batch, readings: _Readings, x: Array) -> Array:
    """`decaying_average` of x (n, k, j)."""
    rows = readings.rows
    time = batch.time.numpy().take(readings.step.take(rows))
    gap = np.empty_like(time)
    np.subtract(time[1:], time[:-1], out=gap[1:])
    gap /= _np(layer.interval).take(readings.sensor.take(rows))
    gap[readings.start] = np.inf  # nothing before the first reading of a sensor
    reach = np.exp(gap[:, None] / -_np(layer.scales)).astype(np.float32)[..., None]
    total = np.ones((*x.shape[:2], x.shape[2] + 1), dtype=np.float32)  # the sums of x, and of the weights
    total[..., :-1] = x.take(rows, axis=0)
    step, longest = 1, int(readings.number.max())
    while step < longest:
        total[step:] += reach[step:] * total[:-step]
        reach[step:] = reach[step:] * reach[:-step]
        step *= 2
    average = np.empty_like(x)
    average[rows] = total[..., :-1] / total[..., -1:]
    return average


def _sender_sums(layer: NearbyMessages, batch: Batch, readings: _Readings, content: Array) -> tuple[Array, Array]:
    """`SenderSums.products`: sums over senders of weight times content (k, j, n), and of weights (k, n)."""
    near = Neighbours(batch, layer.interval)
    _, k, j = content.shape
    lines, before_only, shape = len(LINE_DECAYS), layer.sides == "before", near.age.shape
    padded = np.zeros((j, k, len(content) + 1), dtype=np.float32)  # one more, for position -1
    padded[..., :-1] = content.transpose(2, 1, 0)
    terms = np.empty((j + 1, k, *shape), dtype=np.float32)  # of each sensor at each timestamp: its content, evidence
    terms[:j] = padded.take(near.previous.numpy(), axis=-1)
    if not before_only:
        after = padded[:, :lines].take(near.following.numpy(), axis=-1)
        terms[:j, :lines] += near.share.astype(np.float32) * (after - terms[:j, :lines])
    age, decay = near.age if before_only else np.minimum(near.age, near.wait), -np.abs(_np(layer.decay)).T
    for of_heads, heads in ((age, slice(0, lines)), (near.age, slice(lines, None))):
        present = of_heads < np.inf
        log_age = np.log1p(np.where(present, of_heads, 0.0).astype(np.float32))
        np.multiply(np.exp(decay[heads, None] * log_age), present, out=terms[j, heads])
    terms[:j] *= terms[j]
    pair = np.exp(_bounded(PAIR_RATE * _np(layer.pair), MAX_PAIR))  # (k, u, v)
    np.einsum("kuu->ku", pair)[:] = 0.0  # a sensor does not send to itself
    sums = np.matmul(terms, pair).reshape((j + 1) * k, -1)
    sums = sums.take(readings.step * shape[1] + readings.sensor, axis=1).reshape(j + 1, k, -1)
    return sums[:j].transpose(1, 0, 2), sums[j]


def _pool(pool: TemporalAttention, readings: _Readings, h: Array, p: Array) -> Array:
    """`TemporalAttention.over_readings`: (v, z)."""
    x = np.concatenate([h, p.take(readings.step, axis=0)], axis=1)  # (n, d + p)
    s = (p @ _np(pool.s_time) + _np(pool.s_bias)).take(readings.step, axis=0)  # (n, k)
    if pool.mean_scores:
        s = s / readings.count.take(readings.sensor)[:, None].astype(np.float32)
    scale, pooled = np.float32(pool.W_Q.shape[-1] ** -0.5), []
    for head in range(pool.heads):
        query = readings.sum(x * s[:, head, None]) @ _np(pool.W_K)[head] @ _np(pool.W_Q)[head].T * scale  # (v, d + p)
        score = np.einsum("nx,nx->n", x, query.take(readings.sensor, axis=0)).take(readings.rows)
        score = np.exp(score - np.repeat(readings.reduce(np.maximum, score), readings.number))
        beta = np.empty_like(score)
        beta[readings.rows] = score / np.repeat(readings.reduce(np.add, score), readings.number)  # Eq. 4
        pooled.append(readings.sum(x * beta[:, None]))
    return np.concatenate(pooled, axis=1) @ _np(pool.W)  # Eq. 5


def _slots(slots: Slots, batch: Batch, readings: _Readings) -> tuple[Array, Array]:
    """`Slots.forward`: (v, dim), and the context of the sample as a whole (c,)."""
    present = readings.present[:, None]
    summaries, about = _summaries(slots, batch, readings)
    about = np.concatenate([batch.statics.numpy()[0], about])
    inputs = np.concatenate(
        [
            _piecewise_linear(slots.encode, summaries.ravel()).reshape(len(summaries), -1),
            _bounded(summaries, 4.0),
            about[None].repeat(len(summaries), axis=0),
        ],
        axis=1,
    )
    h = np.maximum(_per_sensor(inputs * present, _np(slots.W_1)) + _np(slots.b_1)[:, 0], 0.0)
    h = _normalised(slots.norm, _per_sensor(h, _np(slots.W_2)) + _np(slots.b_2)[:, 0])
    sensors = np.where(present, h, _np(slots.absent))
    if slots.messages is not None:
        layer = slots.messages
        logit = _per_sensor(h, _np(layer.D)) @ _np(layer.r).T + _np(layer.prior)  # (u, v)
        sends = present & ~np.eye(len(h), dtype=bool)
        logit = np.where(sends, logit, LOWEST)
        share = np.exp(logit - np.maximum.reduce(logit)) * sends
        share /= np.maximum(np.add.reduce(share), TINY)  # a sensor without senders receives nothing
        received = share.T @ _per_sensor(h, _np(layer.w_send))
        sensors = _normalised(layer.norm, sensors + _per_sensor(received, _np(layer.w_receive)))
    encoded = np.concatenate([_piecewise_linear(slots.encode_context, about), _bounded(about, 4.0)[:, None]], axis=1)
    return sensors, _linear(slots.context, encoded.ravel())


def _summaries(slots: Slots, batch: Batch, readings: _Readings) -> tuple[Array, Array]:
    """`SensorSummaries.forward`: (u, c) scaled, 0 for sensors without readings; and numbers about the sample (4,).

    Exact to the last bit: a summary that many samples share lies on a knot of its encoding, which jumps there. So
    everything that depends on the order of a sum, or on the implementation of a logarithm, is left to torch.
    """
    layer, series, present = slots.summaries, batch.senders, readings.present
    time = layer.clock.rescale(batch.time).numpy().astype(np.float32)
    value, last = readings.value[readings.rows], readings.start + readings.number - 1
    counts = series.counts.float()
    count, log_count = counts.numpy()[present], counts.log1p().numpy()[present]
    mean = series.sum(batch.value).numpy()[present] / count
    from_mean = np.empty_like(value)
    from_mean[readings.rows] = np.square(value - np.repeat(mean, readings.number))
    std = np.sqrt(series.sum(torch.from_numpy(from_mean)).numpy()[present] / count)
    low, high = readings.reduce(np.minimum, value), readings.reduce(np.maximum, value)
    first_value, last_value = value[readings.start], value[last]
    last_time = time[readings.step[readings.rows[last]]]
    known = [log_count, mean, low, high, std, first_value, last_value, last_value - first_value, last_time]
    raw = np.array([*known, time[-1] - last_time]).T
    scaled = np.zeros((readings.num_sensors, raw.shape[1]), dtype=np.float32)
    scaled[present] = (raw - _np(layer.mean)[present]) / _np(layer.scale)[present]
    number, share = counts.sum().log1p(), (counts > 0).to(counts.dtype).mean()
    return scaled, np.array([time[-1], time[0], number, share], dtype=np.float32)


def _head(head: Head, sample: Array, statics: Array) -> Array:
    """`Head.forward`: (output,), or (m, output) for a head with members."""
    if head.statics is not None:
        sample = np.concatenate([sample, _linear(head.statics, statics)])
    classifier = head.classifier
    if not isinstance(classifier, EnsembleHead):
        for layer in cast(nn.Sequential, classifier):
            if isinstance(layer, nn.Linear):
                sample = _linear(layer, sample)
            elif not isinstance(layer, nn.Dropout):
                sample = _activated(layer, sample)
        return sample
    x = np.broadcast_to(sample, (classifier.members, len(sample)))
    for shared in (classifier.first, classifier.second):
        x = (x * _np(shared.r)) @ _np(shared.W.weight).T * _np(shared.s) + _np(shared.b)
        x = _activated(classifier.activation, x)
    return _per_sensor(x, _np(classifier.last)) + _np(classifier.bias)


def _np(tensor: Tensor | None) -> Array:
    assert tensor is not None
    array: Array = tensor.detach().numpy()
    return array


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.maximum(x, -80.0)))  # float32 overflows at 88


def _bounded(x: Array, limit: float) -> Array:
    return np.minimum(np.maximum(x, -limit), limit)  # np.clip takes longer to start


def _activated(layer: nn.Module, x: Array) -> Array:
    return _sigmoid(x) if isinstance(layer, nn.Sigmoid) else np.maximum(x, 0.0)


def _linear(layer: nn.Linear, x: Array) -> Array:
    return _np(layer.weight) @ x + _np(layer.bias)


def _per_sensor(x: Array, weight: Array) -> Array:
    """A separate matrix for each row: (u, d), (u, d, j) -> (u, j)."""
    product: Array = np.matmul(x[:, None], weight)
    return product[:, 0]


def _normalised(norm: nn.LayerNorm, x: Array) -> Array:
    width = np.float32(x.shape[-1])
    centred = x - np.add.reduce(x, axis=-1, keepdims=True) / width
    variance = np.add.reduce(np.square(centred), axis=-1, keepdims=True) / width
    return centred / np.sqrt(variance + np.float32(norm.eps)) * _np(norm.weight) + _np(norm.bias)


def _piecewise_linear(layer: PiecewiseLinear, x: Array) -> Array:
    """(c,) -> (c, bin)."""
    knots = _np(layer.knots)
    width, above = knots[:, 1:] - knots[:, :-1], x[:, None] - knots[:, :-1]
    encoded = np.where(width > 0, above / np.maximum(width, np.float32(1e-9)), np.sign(above))
    bounded: Array = np.minimum(np.maximum(encoded, 0.0), 1.0)
    return bounded
