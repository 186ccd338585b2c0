"""The values of a sender some time before and after a query, weighted for each pair of sensors.

An influence takes time: what v measures at t, its sender u may have shown hours earlier, and a sensor that v informs
will show it hours later. Each pair of sensors has its own weights for the sender's values at a few lags.
Axes: q queries, u senders, l lags.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Queries
from raindrop.batch.nearby import MAX_AGE, Series
from raindrop.models.raindrop.pair_numbers import PairNumbers

LAGS = (-8.0, -6.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # in units of `lag_unit`
CERTAIN = 2.0  # typical intervals to the nearest reading at which a lagged value has a weight of 1/e


class LaggedValues(nn.Module):
    """One number from each sender: its values around a query, with a learned weight per pair of sensors and lag."""

    def __init__(self, num_sensors: int, rank: int):
        super().__init__()
        self.weights = PairNumbers(num_sensors, len(LAGS), rank, 0.02)

    def forward(self, series: Series, queries: Queries, level: Tensor) -> Tensor:
        """(q, u). `level` (q, u) is that of each sender; its values are relative to it."""
        lags = torch.tensor(LAGS, dtype=torch.float64) * lag_unit(series.interval)
        times = (queries.time[:, None] + lags).flatten()
        there, index = series.of_all_sensors(queries.sample.repeat_interleave(len(LAGS)), times)
        nearest = torch.minimum(
            torch.where(there.has_previous, there.age, MAX_AGE), torch.where(there.has_following, there.wait, MAX_AGE)
        )
        line, certainty = there.values()[2], torch.exp(-nearest / CERTAIN)  # (m, u)
        line, certainty = (x[index].view(-1, len(LAGS), x.shape[1]) for x in (line, certainty))  # (q, l, u)
        deviation = (line - level[:, None]) * certainty
        return torch.einsum("qlu,qul->qu", deviation, self.weights(queries.sensor))


def lag_unit(interval: Tensor) -> Tensor:
    """The unit of the lags: the typical interval of a sensor that is read often (lower quartile)."""
    return torch.quantile(interval.detach().cpu().double(), 0.25)
