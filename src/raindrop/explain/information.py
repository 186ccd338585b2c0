"""What a trained model's messages are worth: which sensor tells which what it shows."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.classifier import Classifier
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.raindrop.messages import MessagePassing, Messages
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable


def information_graphs(classifier: Classifier, table: EventTable) -> SensorGraphs:
    """For each sample and each edge u -> v: how much worse v's readings would be told without u's messages.

    The weight is the mean fall of the squared error (in units of v's variance) over the times at which both were
    read; about 0 where u tells nothing of v, negative where it misleads. Unlike the edge weights of Eq. 3, which only
    scale messages, this is measured against the readings themselves. Needs
    model.graph.reconstruction > 0.
    """
    model = classifier.model_.network
    if not isinstance(model, Raindrop) or not model.config.graph.reconstruction:
        raise ConfigError(
            "Information graphs need a Raindrop model whose messages learned to tell readings: "
            "train with model.graph.reconstruction above 0 (the preset 'tuned' does)."
        )
    weights = [information(model, batch).numpy() for batch in classifier.batches(table)]
    return SensorGraphs(classifier.scaler_.sensors, table.ids, np.concatenate(weights))


@torch.inference_mode()
def attention_over_time(classifier: Classifier, table: EventTable) -> pl.DataFrame:
    """How much each sensor of each sample attends to each of its times (beta of Eq. 4): a tidy frame.

    Weights of a sensor sum to 1 over a sample. `read` is whether the sensor was read at that time; where it was not,
    it has an embedding from messages alone. Columns: sample, time, sensor, weight, read.
    """
    model, names, parts = classifier.model_.eval(), pl.Series(classifier.scaler_.sensors, dtype=pl.String), []
    ids, done = pl.Series(table.ids, dtype=pl.String), 0
    for batch in classifier.batches(table):
        weight = model(batch).time_weights
        if weight is None:
            raise ConfigError(
                f"Model '{classifier.model}' with these settings has no attention over time "
                "(it needs temporal = 'attention', and series that are not thinned or cut)."
            )
        has = (weight > 0) | batch.observed  # a weight may be too small for a number
        slot, sensor = (at.numpy() for at in has.nonzero(as_tuple=True))
        parts.append(
            pl.DataFrame(
                {
                    "sample": ids.gather(batch.slot_sample.numpy()[slot] + done),
                    "time": batch.time.numpy()[slot],
                    "sensor": names.gather(sensor),
                    "weight": weight[slot, sensor].numpy(),
                    "read": batch.observed[slot, sensor].numpy(),
                }
            )
        )
        done += batch.num_samples
    if not parts:
        raise DataError("The table is empty; at least one sample is needed.")
    return pl.concat(parts)


@torch.inference_mode()
def information(model: Raindrop, batch: Batch) -> Tensor:
    """(b, u, v): the mean gain over readings of v at times when u was read too; 0 where they never were."""
    p, h = model.encode_time(batch.time, like=batch.value), model.embed(batch)
    state = model.initial_graph(batch, h)
    for layer in model.layers[:-1]:
        state = layer(batch, h, p, state)
    last = model.layers[-1]
    assert isinstance(last, MessagePassing)
    edges = state.edges if model.config.ablation.edge_weights else None
    _, sent = last.messages_per_reading(batch, h, p, edges)
    assert sent is not None
    total = Messages(batch.slots.sum(sent.numerator), batch.slots.sum(sent.denominator))
    rest = batch.slots.broadcast(total.denominator) - sent.denominator
    rest = rest * (rest > 1e-6 * batch.slots.broadcast(total.denominator))  # what rounding leaves of nothing is nothing
    missed = Messages((batch.slots.broadcast(total.numerator) - sent.numerator) * (rest > 0)[:, :, None], rest)
    told = last.predict_reading(last.message(total), last.decode, last.decode_bias)  # (s, v)
    # (n, v): had reading n sent nothing
    without = last.predict_reading(last.message(missed), last.decode, last.decode_bias)
    truth = torch.zeros_like(told).flatten().index_copy(0, batch.cell, batch.value).view_as(told)
    both = batch.slots.broadcast(batch.observed.to(h.dtype))
    both = both.scatter(1, batch.sensor[:, None], 0.0)  # (n, v) v was read with n, and is not n's own sensor
    wanted = batch.slots.broadcast(truth)
    gain = ((without - wanted).square() - (batch.slots.broadcast(told) - wanted).square()) * both
    mean = batch.senders.sum(gain) / batch.senders.sum(both).clamp_min(1)
    return mean.view(batch.num_samples, batch.num_sensors, batch.num_sensors)
