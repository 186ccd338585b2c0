"""Messages that cross time, compared with loops over readings and senders; and what they may and may not see."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from closeness import ONE_SUM, assert_close
from paper_checks import as_double
from torch import Tensor

from raindrop import Classifier, EventTable, RaindropWarning
from raindrop.batch.batch import Batch
from raindrop.batch.nearby import decaying_average
from raindrop.config import make
from raindrop.models.raindrop import nearby_sums
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import MAX_TARGET
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.nearby_messages import LINE_DECAYS, NearbyMessages

NEARBY: dict[str, Any] = {
    "graph.senders": "nearby",
    "graph.rank": 2,
    "graph.scales": (0.5, 3.0),
    "graph.reconstruction": 1.0,
    "layers": 1,
    "prune": 0.0,
    "similarity": 0.0,
}
SIDES = pytest.mark.parametrize("sides", ["both", "before"])


@pytest.fixture
def model(build: Callable[..., Raindrop]) -> Raindrop:
    return drawn(build(NEARBY))


def drawn(model: Raindrop) -> Raindrop:
    """Pairs, decays and intervals that differ, as after training."""
    generator = torch.Generator().manual_seed(1)
    layer = nearby(model)
    with torch.no_grad():
        for parameter in (layer.pair, layer.nobody):
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
        layer.decay.copy_(torch.rand(layer.decay.shape, generator=generator, dtype=torch.float64) * 3)
        layer.interval.copy_(torch.rand(layer.interval.shape, generator=generator, dtype=torch.float64) * 3 + 0.5)
    return model


def nearby(model: Raindrop) -> NearbyMessages:
    assert model.nearby is not None
    return model.nearby


# ------------------------------------------------------------------ loops


def series_of(batch: Batch, sample: int, sensor: int) -> list[int]:
    """The readings of a sensor of a sample, in the order of their times."""
    return [n for n in range(len(batch.value)) if int(batch.sample[n]) == sample and int(batch.sensor[n]) == sensor]


def time_of(batch: Batch, n: int) -> float:
    return float(batch.time[batch.step[n]])


def loop_average(batch: Batch, x: Tensor, readings: list[int], until: int, width: float) -> Tensor:
    """The average of x over the readings up to position `until`, weighted by exp(-age / width)."""
    weights = [math.exp(-(time_of(batch, readings[until]) - time_of(batch, n)) / width) for n in readings[: until + 1]]
    return sum(w * x[n] for w, n in zip(weights, readings, strict=False)) / sum(weights)


def loop_terms(layer: NearbyMessages, batch: Batch, h: Tensor, n: int) -> dict[int, list[tuple[float, Tensor]]]:
    """For each sender to reading n, the weight and the content (j,) of each head."""
    terms: dict[int, list[tuple[float, Tensor]]] = {}
    v, sample, now = int(batch.sensor[n]), int(batch.sample[n]), time_of(batch, n)
    J = layer.rank
    for u in range(batch.num_sensors):
        readings = series_of(batch, sample, u)
        if u == v or not readings:
            continue
        before = [at for at, m in enumerate(readings) if time_of(batch, m) <= now]
        after = [m for m in readings if time_of(batch, m) > now]
        interval = float(layer.interval[u])
        age = (now - time_of(batch, readings[before[-1]])) / interval if before else math.inf
        wait = (time_of(batch, after[0]) - now) / interval if after else math.inf
        both = layer.sides == "both"
        terms[u] = []
        for k in range(layer.heads):
            content = h @ layer.w_send[u, k * J : (k + 1) * J].T  # (n, j) as if all readings were u's
            if k < len(LINE_DECAYS):
                near = min(age, wait) if both else age
                last = content[readings[before[-1]]] if before else None
                coming = content[after[0]] if after and both else None
                if last is not None and coming is not None:
                    sent = last + (coming - last) * age / (age + wait)
                else:
                    sent = last if last is not None else coming
            else:
                near, width = age, float(layer.scales[k - len(LINE_DECAYS)]) * interval
                sent = loop_average(batch, content, readings, before[-1], width) if before else None
            if sent is None:
                terms[u].append((0.0, torch.zeros(J, dtype=h.dtype)))
                continue
            evidence = math.exp(-abs(float(layer.decay[u, k])) * math.log1p(near))
            terms[u].append((math.exp(5.0 * float(layer.pair[k, u, v])) * evidence, sent))
    return terms


def loop_message(layer: NearbyMessages, batch: Batch, terms: dict[int, list[tuple[float, Tensor]]], n: int) -> Tensor:
    """Eq. 2 at reading n: (d,)."""
    v, J = int(batch.sensor[n]), layer.rank
    message = torch.zeros(layer.w_receive.shape[-1], dtype=batch.value.dtype)
    for k in range(layer.heads):
        total = math.exp(float(layer.nobody[v, k])) + sum(heads[k][0] for heads in terms.values())
        for heads in terms.values():
            weight, sent = heads[k]
            message += (weight / total) * sent @ layer.w_receive[v, k * J : (k + 1) * J]
    return message


# ------------------------------------------------------------------ equal to the loops


@pytest.mark.slow
@SIDES
@torch.no_grad()
def test_messages_agreement_and_edges_equal_loops_over_senders(build, batch, sides):
    model = drawn(build(NEARBY | {"graph.sides": sides}))
    layer, h = nearby(model), model.embed(batch)
    received = layer(batch, h)
    M = batch.num_sensors
    edges = torch.zeros(batch.num_samples, M, M, dtype=h.dtype)
    agreement = torch.zeros(batch.num_samples, M, 3, dtype=h.dtype)
    count = torch.zeros(batch.num_samples, M, dtype=h.dtype)
    own, errors = [], []
    for n in range(len(h)):
        sample, v = int(batch.sample[n]), int(batch.sensor[n])
        terms = loop_terms(layer, batch, h, n)
        message = loop_message(layer, batch, terms, n)
        own.append(torch.sigmoid(torch.logit(h[n]) + message))
        predicted = torch.sigmoid(message) @ layer.decode[v] + layer.decode_bias[v]
        value = batch.value[n].clamp(-MAX_TARGET, MAX_TARGET)
        errors.append((predicted - value) ** 2)
        agreement[sample, v] += torch.stack([value * predicted, predicted**2, errors[-1]])
        count[sample, v] += 1
        for k in range(layer.heads):
            total = math.exp(float(layer.nobody[v, k])) + sum(heads[k][0] for heads in terms.values())
            for u, heads in terms.items():
                edges[sample, u, v] += heads[k][0] / total / layer.heads
    assert_close(received.h, torch.stack(own), roundings=ONE_SUM)
    assert_close(received.penalty, torch.stack(errors).mean(), roundings=ONE_SUM)
    assert_close(received.agreement, agreement / count.clamp_min(1)[..., None], roundings=ONE_SUM)
    assert_close(received.edges, edges / count.clamp_min(1)[:, None], roundings=ONE_SUM)


@pytest.mark.slow
def test_decaying_averages_equal_loops_and_have_their_gradient(batch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(batch.value), 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    interval = torch.linspace(0.5, 3.0, batch.num_sensors, dtype=torch.float64)
    scales = torch.tensor([0.7, 4.0], dtype=torch.float64)
    found = decaying_average(batch, x, interval, scales)
    for sample in range(batch.num_samples):
        for u in range(batch.num_sensors):
            readings = series_of(batch, sample, u)
            for at, n in enumerate(readings):
                for k in range(2):
                    width = float(scales[k] * interval[u])
                    assert_close(found[n, k].detach(), loop_average(batch, x[:, k].detach(), readings, at, width))
    assert torch.autograd.gradcheck(lambda y: decaying_average(batch, y, interval, scales), (x,))


@SIDES
@pytest.mark.parametrize(("cut", "gain"), [(False, 0), (False, 1000), (True, 1000)], ids=["sums", "products", "edges"])
def test_the_gradient_of_the_sums_is_that_of_finite_differences(model, batch, monkeypatch, sides, cut, gain):
    monkeypatch.setattr(nearby_sums, "CHUNK_SIZE", 200)  # several chunks
    monkeypatch.setattr(nearby_sums, "PRODUCT_GAIN", gain)
    layer, generator = nearby(model), torch.Generator().manual_seed(0)
    layer.sides = sides
    edges = None
    if cut:
        shape = (batch.num_samples, batch.num_sensors, batch.num_sensors)
        edges = torch.rand(shape, generator=generator, dtype=torch.float64)
        edges = edges * (torch.rand(shape, generator=generator) > 0.4)
    sums = layer.sums(batch, edges)
    assert sums.products_are_cheaper == (gain > 0 and not cut)
    content = torch.randn(len(batch.value), layer.heads, 2, generator=generator, dtype=torch.float64)
    inputs = content, layer.decay.detach().abs(), layer.pair_weight().detach()
    assert torch.autograd.gradcheck(sums, [x.requires_grad_() for x in inputs], fast_mode=True)


@torch.no_grad()
def test_chunks_change_nothing(model, batch, monkeypatch):
    h = model.embed(batch)
    whole = nearby(model)(batch, h)
    monkeypatch.setattr(nearby_sums, "CHUNK_SIZE", 1)
    parts = nearby(model)(batch, h)
    assert_close(parts.h, whole.h)
    assert_close(parts.edges, whole.edges)


@torch.no_grad()
def test_predictions_without_a_sender_are_those_with_its_edges_cut(model, batch):
    layer, h = nearby(model), model.embed(batch)
    found = torch.cat([without for _, _, without, _ in layer.predict_without_each(batch, h)])  # (n, u)
    for u in range(batch.num_sensors):
        keep = torch.ones(batch.num_samples, batch.num_sensors, batch.num_sensors, dtype=h.dtype)
        keep[:, u] = 0
        numerator, weight = layer.sums(batch, keep)(layer.contents(batch, h), layer.decay.abs(), layer.pair_weight())
        message = layer.message(batch, numerator / (weight + layer.nobody_weight(batch))[..., None])
        assert_close(found[:, u], layer.predict(batch, message))


# ------------------------------------------------------------------ what a reading may receive


def moved(batch: Batch, n: int, by: float) -> Batch:
    value = batch.value.clone()
    value[n] += by
    return replace(batch, value=value)


@SIDES
@torch.no_grad()
def test_with_senders_before_only_a_reading_is_not_informed_by_later_ones(make_batch, make_spec, sides):
    table = two_sensors(shift=0.1, num_samples=4)
    batch = as_double(make_batch(table))
    config = make(RaindropConfig, NEARBY | {"graph.sides": sides})
    model = drawn(Raindrop(config, make_spec(table)).double().eval())
    last = int((batch.sample == 0).nonzero().max())  # of B; A was read between it and B's reading before
    before = nearby(model)(batch, model.embed(batch)).h
    changed = moved(batch, last, 3.0)
    after = nearby(model)(changed, model.embed(changed)).h
    earlier = batch.step < batch.step[last]
    assert torch.equal(before[earlier], after[earlier]) == (sides == "before")


@torch.no_grad()
def test_a_reading_at_the_same_time_has_age_0_whatever_follows_it(model, batch):
    """The line passes through the reading at the very time, so later readings of the sender change nothing there."""
    layer = nearby(model)
    sums = layer.sums(batch, None)
    (chunk,) = sums.chunks(1)
    moments, reading = sums.at_readings(chunk), torch.arange(len(batch.value))
    assert torch.equal(moments.previous[reading, batch.sensor], reading)
    assert not moments.share[reading, batch.sensor].any()
    assert not moments.log_ages[0][reading, batch.sensor].any()


@torch.no_grad()
def test_a_sensor_does_not_send_to_itself(model, batch):
    edges = nearby(model)(batch, model.embed(batch)).edges
    assert not edges.diagonal(dim1=1, dim2=2).any()
    assert (edges > 0).any()


# ------------------------------------------------------------------ what it is good for


def two_sensors(shift: float, lag: float = 0.0, num_samples: int = 240) -> EventTable:
    """B follows A in the class "coupled", and another curve otherwise; B is read `shift` hours after A."""
    rng = np.random.default_rng(0)
    rows, labels = [], []
    for number in range(num_samples):
        coupled = bool(rng.random() < 0.5)
        labels.append("coupled" if coupled else "apart")
        frequency, phase = rng.uniform(1.0, 4.0, (2, 4)), rng.uniform(0, 2 * np.pi, (2, 4))

        def curve(which: int, t: Any, frequency: Any = frequency, phase: Any = phase) -> Any:
            return np.cos(frequency[which] * t[:, None] + phase[which]).sum(1)

        time = np.sort(rng.uniform(0, 24, 40))
        later = time + shift
        b = curve(0 if coupled else 1, later - lag)
        for name, t, x in (("A", time, curve(0, time)), ("B", later, b)):
            rows.append(pl.DataFrame({"sample": f"s{number}", "time": t, "sensor": name, "value": x}))
    samples = pl.DataFrame({"sample": [f"s{number}" for number in range(num_samples)], "label": labels})
    return EventTable.from_frames(pl.concat(rows), samples, label="label")


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["tuned", "graph"])
def test_a_relation_between_sensors_is_found_though_their_clocks_differ_by_a_second(preset):
    table = two_sensors(shift=1 / 3600)
    train, validation, test = table.split((0.7, 0.1, 0.2), seed=0)
    config = {"train.epochs": 40, "train.batch_size": 16, "train.soft_targets": 0.0}
    classifier = Classifier(preset=preset, config=config).fit(train, validation=validation)
    assert classifier.evaluate(test)["auroc"] > 0.95
    graph = classifier.graphs(test).mean()
    assert graph.weights[0, 1] > 0
    assert graph.weights[1, 0] > 0


def test_training_messages_that_need_shared_times_without_any_says_so():
    table = two_sensors(shift=1 / 3600, num_samples=20)
    config = {"train.epochs": 1}
    with pytest.warns(RaindropWarning, match=r"No two sensors are ever read at the same time.*senders"):
        Classifier(preset="paper", config=config | {"train.holdout": 0.0}).fit(table)
