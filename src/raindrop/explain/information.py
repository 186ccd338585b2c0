"""Information graphs: how much a sensor's messages help to predict another sensor's readings. Attention over time."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.host import to_numpy
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.samples import SampleEstimator
from raindrop.graphs.empty import no_shared_times_reason
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.raindrop.messages import MessagePassing, Messages, predict_reading
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.nearby_messages import NearbyMessages
from raindrop.table.event_table import EventTable

EMPTY_REASON = "no message changes a predicted reading"


def information_graphs(estimator: SampleEstimator, table: EventTable) -> SensorGraphs:
    """One graph per sample; the weight of u -> v is how much worse v's readings are predicted without u's messages.

    It is the mean increase of the squared error, in units of v's variance, over the readings of v that u can inform:
    those at which u was read too, or all if senders are "nearby". It is about 0 if u's messages do not help to predict
    v, and negative if they mislead. The edge weights of Eq. 3 only scale messages; these weights are measured on the
    readings. Needs model.graph.reconstruction > 0.
    """
    model = estimator.model_.network
    if not isinstance(model, Raindrop) or not model.config.graph.reconstruction:
        raise estimator.no_graph(
            "Information graphs need a Raindrop model whose messages were trained to predict readings: "
            "train with model.graph.reconstruction above 0 (the preset 'tuned' does)."
        )
    weights = [to_numpy(information(model, batch)) for batch in estimator.batches(table)]
    if not weights:
        raise DataError("The table is empty; at least one sample is needed.")
    reason = EMPTY_REASON if model.nearby is not None else no_shared_times_reason(table) or EMPTY_REASON
    return SensorGraphs(estimator.scaler_.sensors, table.ids, np.concatenate(weights), reason)


def attention_over_time(estimator: SampleEstimator, table: EventTable) -> pl.DataFrame:
    """How much each sensor of each sample attends to each of its times (beta of Eq. 4), as a tidy frame.

    The weights of a sensor sum to 1 over a sample. `observed` is whether the sensor was read at that time; if not, its
    embedding comes from messages alone. Columns: sample, time, sensor, weight, observed.
    """
    names, parts = pl.Series(estimator.scaler_.sensors, dtype=pl.String), []
    ids, first = pl.Series(table.ids, dtype=pl.String), 0
    for batch, output in estimator.run_model(table):
        if output.time_weights is None:
            raise ConfigError(
                f"Model '{estimator.model}' with these settings has no attention over time "
                "(it needs temporal = 'attention', and series that are not thinned or cut)."
            )
        weight, observed = to_numpy(output.time_weights), to_numpy(batch.observed)
        step, sensor = np.nonzero((weight > 0) | observed)  # a weight may be rounded to 0
        parts.append(
            pl.DataFrame(
                {
                    "sample": ids.gather(to_numpy(batch.step_sample)[step] + first),
                    "time": to_numpy(batch.time)[step],
                    "sensor": names.gather(sensor),
                    "weight": weight[step, sensor],
                    "observed": observed[step, sensor],
                }
            )
        )
        first += batch.num_samples
    if not parts:
        raise DataError("The table is empty; at least one sample is needed.")
    return pl.concat(parts)


@torch.inference_mode()
def information(model: Raindrop, batch: Batch) -> Tensor:
    """(b, u, v): the mean gain over the readings of v that u can inform; 0 if there are none."""
    if model.nearby is not None:
        return nearby_information(model.nearby, batch, model.embed(batch))
    p, h = model.encode_time(batch.time, like=batch.value), model.embed(batch)
    state = model.initial_graph(batch, h)
    for layer in model.layers[:-1]:
        state = layer(batch, h, p, state)
    last = model.layers[-1]
    assert isinstance(last, MessagePassing)
    _, sent = last.messages_per_reading(batch, h, p, state.edges if model.config.ablation.edge_weights else None)
    assert sent is not None
    total = Messages(batch.steps.sum(sent.numerator), batch.steps.sum(sent.denominator))
    rest_weight = batch.steps.broadcast(total.denominator) - sent.denominator
    rest_weight = rest_weight * (
        rest_weight > 1e-6 * batch.steps.broadcast(total.denominator)
    )  # rounding errors become 0
    rest_sent = (batch.steps.broadcast(total.numerator) - sent.numerator) * (rest_weight > 0)[:, :, None]
    rest = Messages(rest_sent, rest_weight)
    predicted = predict_reading(last.message(total), last.decode, last.decode_bias)  # (s, v)
    without = predict_reading(
        last.message(rest), last.decode, last.decode_bias
    )  # (n, v): without the message of reading n
    value = torch.zeros_like(predicted).flatten().index_copy(0, batch.cell, batch.value).view_as(predicted)
    both = batch.steps.broadcast(batch.observed.to(h.dtype))
    both = both.scatter(1, batch.sensor[:, None], 0.0)  # (n, v) whether another sensor v was read at the time of n
    target = batch.steps.broadcast(value)
    gain = ((without - target).square() - (batch.steps.broadcast(predicted) - target).square()) * both
    mean = batch.senders.sum(gain) / batch.senders.sum(both).clamp_min(1)
    return mean.view(batch.num_samples, batch.num_sensors, batch.num_sensors)


def nearby_information(messages: NearbyMessages, batch: Batch, h: Tensor) -> Tensor:
    """The same for messages that cross time: over all readings of v in samples in which u was read."""
    M = batch.num_sensors
    gain, count = (h.new_zeros(batch.num_samples * M, M) for _ in range(2))  # (b v, u)
    for rows, predicted, without, sent in messages.predict_without_each(batch, h):
        value, series = batch.value[rows], batch.senders.index[rows]
        worse = (without - value[:, None]).square() - (predicted - value).square()[:, None]
        gain.index_add_(0, series, worse * sent)
        count.index_add_(0, series, sent.to(h.dtype))
    return (gain / count.clamp_min(1)).view(batch.num_samples, M, M).transpose(1, 2)
