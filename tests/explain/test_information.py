"""Information graphs: how much a sensor's messages help to predict another sensor's readings."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from class_tasks import classes
from closeness import assert_close, tolerance

from raindrop import Classifier, ConfigError, DataError, EventTable
from raindrop.explain.information import attention_over_time, information, information_graphs
from raindrop.models.base import DataSpec
from raindrop.models.raindrop.config import GraphConfig, RaindropConfig
from raindrop.models.raindrop.messages import Messages, predict_reading
from raindrop.models.raindrop.model import Raindrop

pytestmark = pytest.mark.slow

RECONSTRUCTING = GraphConfig(
    senders="observed", reconstruction=1.0, mixing="residual", normalise="logit", heads=2, rank=2
)


@pytest.fixture
def table(make_table):
    return make_table()


@pytest.fixture
def batch(table, make_batch):
    return make_batch(table)


@pytest.fixture
def model(make_spec, table):
    torch.manual_seed(0)
    return Raindrop(RaindropConfig(graph=RECONSTRUCTING, prune=0.25), make_spec(table))


def test_the_gain_is_the_increase_of_the_error_without_one_sender(model, batch):
    """Against loops: leave out each reading's message in turn and sum up all messages again."""
    with torch.no_grad():
        p, h = model.encode_time(batch.time, like=batch.value), model.embed(batch)
        state = model.layers[0](batch, h, p, model.initial_graph(batch, h))
        last = model.layers[1]
        _, messages = last.messages_per_reading(batch, h, p, state.edges)

        def predicted(left_out):
            keep = torch.ones(len(h))
            if left_out is not None:
                keep[left_out] = 0
            sent = batch.steps.sum(messages.numerator * keep[:, None, None, None])
            weight = batch.steps.sum(messages.denominator * keep[:, None, None])
            return predict_reading(last.message(Messages(sent, weight)), last.decode, last.decode_bias)

        with_all = predicted(None)
        total = torch.zeros(batch.num_samples, batch.num_sensors, batch.num_sensors)
        number = torch.zeros_like(total)
        for n in range(len(h)):
            without = predicted(n)
            for m in range(len(h)):
                if batch.step[m] == batch.step[n] and m != n:
                    b, u, v, s = batch.sample[n], batch.sensor[n], batch.sensor[m], batch.step[m]
                    loss = (without[s, v] - batch.value[m]) ** 2 - (with_all[s, v] - batch.value[m]) ** 2
                    total[b, u, v] += loss
                    number[b, u, v] += 1
    assert_close(information(model, batch), total / number.clamp_min(1))


def test_a_pruned_edge_has_weight_0(model, batch):
    with torch.no_grad():
        p, h = model.encode_time(batch.time, like=batch.value), model.embed(batch)
        edges = model.layers[0](batch, h, p, model.initial_graph(batch, h)).edges
    pruned = edges == 0
    assert pruned.any()
    assert information(model, batch)[pruned].abs().max() < tolerance()


@pytest.fixture(scope="module")
def repeating():
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
    config = {"train.epochs": 15, "train.batch_size": 16, "train.learning_rate": 0.03, "train.holdout": 0.0}
    return Classifier(config=config).fit(table), table


def test_a_sensor_that_repeats_another_has_a_strong_edge_and_noise_has_none(repeating):
    classifier, table = repeating
    graph = information_graphs(classifier, table).mean()
    assert graph["a", "b"] > 0.2
    assert graph["b", "a"] > 0.2
    for edge in (("c", "a"), ("c", "b"), ("a", "c"), ("b", "c")):
        assert graph[edge] < 0.1


def test_there_is_one_graph_per_sample_whatever_the_batches(repeating):
    classifier, table = repeating
    graphs = information_graphs(classifier, table)
    alone = information_graphs(classifier, table[[7]])
    assert list(graphs) == table.ids
    assert_close(graphs[table.ids[7]].weights, alone[table.ids[7]].weights)


def test_a_model_without_reconstruction_says_what_to_set(table):
    spec = DataSpec(table.sensors, classes(2))
    classifier = Classifier()
    classifier.model_ = Raindrop(RaindropConfig(), spec)
    with pytest.raises(ConfigError, match="reconstruction"):
        information_graphs(classifier, table)


def test_messages_cross_time_between_sensors_never_read_at_the_same_time(repeating):
    classifier, table = repeating
    assert not information_graphs(classifier, table.where(alternating)).mean().describe_empty()


def test_empty_graphs_say_why(repeating):
    classifier, table = repeating
    alone = table.where(lambda events: events["sensor"].cast(pl.String) == "a")
    text = information_graphs(classifier, alone).mean().describe_empty()
    assert text.startswith("There are no edges between sensors: no message changes a predicted reading")
    same_time = {"model.graph.senders": "observed", "train.epochs": 1, "train.holdout": 0.0}
    config = same_time | {"model.graph.reconstruction": 1.0}
    needs_shared_times = Classifier(preset="paper", config=config).fit(table[:20])
    text = information_graphs(needs_shared_times, table.where(alternating)).mean().describe_empty()
    assert text.startswith("There are no edges between sensors: no two sensors")
    with pytest.raises(DataError, match="table is empty"):
        information_graphs(classifier, table[:0])


def alternating(events: pl.DataFrame) -> pl.Series:
    """At each time only one sensor, in turn."""
    return events["sensor"].cast(pl.String) == pl.Series(["a", "b", "c"]).gather(events["time"].cast(pl.Int64) % 3)


# ------------------------------------------------------------------ attention over time


def test_attention_over_time_sums_to_1_over_the_times_of_each_sensor(repeating):
    classifier, table = repeating
    few = table[[3, 50, 7]].where(lambda events: ~((events["sample"] == "50") & (events["sensor"] == "c")))
    frame = attention_over_time(classifier, few)
    assert frame.columns == ["sample", "time", "sensor", "weight", "observed"]
    assert frame["sample"].unique(maintain_order=True).to_list() == ["3", "50", "7"]
    totals = frame.group_by("sample", "sensor").agg(pl.col("weight").sum())
    assert len(totals) == 8  # sensor c of sample 50 has no reading
    assert totals["weight"].to_list() == pytest.approx([1.0] * 8, abs=tolerance())
    observed = frame.filter("observed").select("sample", pl.col("time").cast(pl.Float64), "sensor")
    events = few.events().select("sample", "time", pl.col("sensor").cast(pl.String))
    assert observed.sort(observed.columns).rows() == events.sort(events.columns).rows()
    assert frame["observed"].all()  # messages that cross time are received at readings


def test_the_weights_are_those_of_the_models_output_whatever_the_batches(repeating):
    classifier, table = repeating
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
