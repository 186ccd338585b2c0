"""Information graphs: what each sensor's messages tell of another's readings."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from closeness import assert_close, tolerance

from raindrop import Classifier, ConfigError, EventTable
from raindrop.explain.information import attention_over_time, information, information_graphs
from raindrop.models.base import DataSpec
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.sending import Delivery

TELLING = {"senders": "observed", "reconstruction": 1.0, "mixing": "residual", "normalise": "logit"}


@pytest.fixture
def table(make_table):
    return make_table()


@pytest.fixture
def batch(table, make_batch):
    return make_batch(table)


@pytest.fixture
def model(make_spec, table):
    torch.manual_seed(0)
    return Raindrop(RaindropConfig(**TELLING, prune=0.25, heads=2, rank=2), make_spec(table))


def test_the_gain_is_what_telling_loses_without_one_sender(model, batch):
    """Against loops: silence each reading in turn and sum up all messages anew."""
    with torch.no_grad():
        p, h = model.encode_time(batch.time), model.embed(batch)
        state = model.layers[0](batch, h, p, model.graph(batch, h))
        last = model.layers[1]
        _, spoken = last.speak(batch, h, p, state.edges)

        def told(silent):
            keep = torch.ones(len(h))
            if silent is not None:
                keep[silent] = 0
            sent = batch.slots.sum(spoken.sent * keep[:, None, None, None])
            weight = batch.slots.sum(spoken.weight * keep[:, None, None])
            return last.guess(last.message(Delivery(sent, weight)), last.decode, last.decode_bias)

        everyone = told(None)
        total = torch.zeros(batch.num_samples, batch.num_sensors, batch.num_sensors)
        number = torch.zeros_like(total)
        for n in range(len(h)):
            without = told(n)
            for m in range(len(h)):
                if batch.slot[m] == batch.slot[n] and m != n:
                    b, u, v, s = batch.sample[n], batch.sensor[n], batch.sensor[m], batch.slot[m]
                    loss = (without[s, v] - batch.value[m]) ** 2 - (everyone[s, v] - batch.value[m]) ** 2
                    total[b, u, v] += loss
                    number[b, u, v] += 1
    assert_close(information(model, batch), total / number.clamp_min(1))


def test_a_pruned_edge_tells_nothing(model, batch):
    with torch.no_grad():
        p, h = model.encode_time(batch.time), model.embed(batch)
        edges = model.layers[0](batch, h, p, model.graph(batch, h)).edges
    pruned = edges == 0
    assert pruned.any()
    assert information(model, batch)[pruned].abs().max() < tolerance()


@pytest.fixture(scope="module")
def telling():
    """Sensor b repeats sensor a; c is noise. Times are shared."""
    rng = np.random.default_rng(0)
    rows = []
    for sample in range(120):
        for time in range(12):
            a, c = rng.normal(size=2)
            rows += [(sample, time, "a", a), (sample, time, "b", a), (sample, time, "c", c)]
    samples = {"sample": [str(n) for n in range(120)], "label": rng.integers(0, 2, 120)}
    sample, time, sensor, value = zip(*rows, strict=True)
    table = EventTable.from_columns([str(s) for s in sample], time, sensor, value, samples)
    config = {"train.epochs": 15, "train.batch": 16, "train.learning_rate": 0.03, "train.holdout": 0.0}
    return Classifier(config=config).fit(table), table


def test_who_repeats_another_is_told_by_it_and_noise_is_told_by_nobody(telling):
    classifier, table = telling
    graph = information_graphs(classifier, table).mean()
    assert graph["a", "b"] > 0.2
    assert graph["b", "a"] > 0.2
    for edge in (("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")):
        assert graph[edge] < 0.1


def test_graphs_have_one_entry_per_sample_whatever_the_batches(telling):
    classifier, table = telling
    graphs = information_graphs(classifier, table)
    alone = information_graphs(classifier, table[[7]])
    assert list(graphs) == table.ids
    assert_close(graphs[table.ids[7]].weights, alone[table.ids[7]].weights)


def test_a_model_whose_messages_learned_nothing_says_what_to_set(table):
    spec = DataSpec(table.sensors, 2)
    classifier = Classifier()
    classifier.model_ = Raindrop(RaindropConfig(), spec)
    with pytest.raises(ConfigError, match="reconstruction"):
        information_graphs(classifier, table)


# ------------------------------------------------------------------ attention over time


def test_attention_over_time_sums_to_1_over_the_times_of_each_sensor(telling):
    classifier, table = telling
    few = table[[3, 50, 7]].where(lambda events: ~((events["sample"] == "50") & (events["sensor"] == "c")))
    frame = attention_over_time(classifier, few)
    assert frame.columns == ["sample", "time", "sensor", "weight", "read"]
    assert frame["sample"].unique(maintain_order=True).to_list() == ["3", "50", "7"]
    totals = frame.group_by("sample", "sensor").agg(pl.col("weight").sum())
    assert len(totals) == 9
    assert totals["weight"].to_list() == pytest.approx([1.0] * 9, abs=tolerance())
    read = frame.filter("read").select("sample", pl.col("time").cast(pl.Float64), "sensor")
    events = few.events().select("sample", "time", pl.col("sensor").cast(pl.String))
    assert read.sort(read.columns).rows() == events.sort(events.columns).rows()
    assert not frame.filter(sample="50", sensor="c")["read"].any()


def test_the_weights_are_those_of_the_models_output_whatever_the_batches(telling):
    classifier, table = telling
    frame = attention_over_time(classifier, table[[3, 50]])
    (batch,) = classifier.batches(table[[50]])
    with torch.inference_mode():
        weights = classifier.model_(batch).time_weights
    assert_close(frame.filter(sample="50", sensor="b")["weight"].to_numpy(), weights[:, 1].numpy())


def test_a_model_without_attention_over_time_says_so(make_table):
    table = make_table()
    no_attention = Classifier("transformer", config={"train.epochs": 1, "train.holdout": 0.0}).fit(table)
    with pytest.raises(ConfigError, match="'transformer' with these settings has no attention over time"):
        attention_over_time(no_attention, table)
