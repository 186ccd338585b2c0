"""The core of Raindrop with queries on a padded grid: quantiles of queried readings, as `models/raindrop/queries.py`.

The only difference from the trained model is how a query's neighbouring readings are found: it searches sorted lists,
here the rows up to a time are counted. Axes: b a window, t a timestamp, u a sensor, q a query, k a width.
"""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.nearby import MAX_AGE, Moments, Series, Side
from raindrop.export.grid_series import GridBatch, coming, decay_since_row_before, latest, recurrence, shift
from raindrop.models.raindrop.queries import RaindropQueries


class QueryCore(nn.Module):
    """Scores of queries: a grid, and sample, sensor, time (q,) and time of day (q, 2) of each query -> (q, level)."""

    def __init__(self, model: RaindropQueries, rounds: int):
        super().__init__()
        self.model, self.rounds = deepcopy(model).eval().requires_grad_(False), rounds

    def forward(
        self,
        value: Tensor,
        observed: Tensor,
        time: Tensor,
        statics: Tensor,
        query_sample: Tensor,
        query_sensor: Tensor,
        query_time: Tensor,
        query_time_of_day: Tensor | None = None,
    ) -> Tensor:
        grid = GridBatch(torch.where(observed, value, 0.0), observed, time, statics)
        series = GridSeries(grid, self.model.interval, self.model.scales, self.rounds)
        queries = Queries(query_sample, query_sensor, query_time, query_time_of_day)
        members, _ = self.model._answer(cast(Batch, grid), cast(Series, series), queries)
        return members.mean(1)


class GridSeries:
    """`Series` on a grid; its rows are the cells (b t u)."""

    def __init__(self, grid: GridBatch, interval: Tensor, scales: Tensor, rounds: int):
        self.shape, self.scales, self.interval = grid.observed.shape, scales, interval
        self.present, self.row_time = grid.present, grid.time  # (b, t)
        self.value = grid.value.flatten()
        self.time = grid.time[..., None].expand(self.shape).flatten()
        self.previous, self.following = latest(grid.observed, rounds), coming(grid.observed, rounds)  # (b, t, u)
        decay = decay_since_row_before(grid.time, interval, scales)  # (b, t, u, k)
        self.before = _side(grid, decay, rounds)
        self.after = _side(grid, shift(decay.flip(1), 1, 0.0), rounds, backwards=True)

    def around(self, sample: Tensor, sensor: Tensor, time: Tensor, *, strict: bool = False) -> Moments:
        """As `Series.around`."""
        times, present = self.row_time[sample], self.present[sample]  # (q, t)
        up_to = (present & (times <= time[:, None])).long().sum(1)  # rows at or before the time
        before = (present & (times < time[:, None])).long().sum(1) if strict else up_to
        if sensor.dim() > 1:
            sample, time, up_to, before = sample[:, None], time[:, None], up_to[:, None], before[:, None]
        previous = self._row(self.previous, sample, sensor, before - 1)
        first = self._row(self.first_of_series(), sample, sensor, torch.zeros_like(up_to))
        following = torch.where(up_to > 0, self._row(self.following, sample, sensor, up_to - 1), first)
        return self._moments(sample, sensor, time, previous, following)

    def of_all_sensors(self, sample: Tensor, time: Tensor) -> tuple[Moments, Tensor]:
        """As `Series.of_all_sensors`, but separately for every query: sharing equal times is not worth it here."""
        sensor = torch.arange(self.shape[2]).expand(sample.shape[0], -1)
        return self.around(sample, sensor, time), torch.arange(sample.shape[0])

    def first_of_series(self) -> Tensor:
        """(b, 1, u) the row of the first reading; -1 if there is none."""
        first = self.following[:, :1]
        return torch.where(self.previous[:, :1] >= 0, 0, first)

    @staticmethod
    def _row(index: Tensor, sample: Tensor, sensor: Tensor, row: Tensor) -> Tensor:
        """index (b, t, u) at these places; -1 if the row is below 0."""
        _, times, sensors = index.shape
        place = (sample * times + row.clamp_min(0)) * sensors + sensor
        return torch.where(row >= 0, index.flatten()[place], -1)

    def _moments(self, sample: Tensor, sensor: Tensor, time: Tensor, previous: Tensor, following: Tensor) -> Moments:
        _, times, sensors = self.shape
        has_previous, more = previous >= 0, following >= 0
        cells = [(sample * times + row.clamp_min(0)) * sensors + sensor for row in (previous, following)]
        since, until = time - self.time[cells[0]], self.time[cells[1]] - time
        interval = self.interval[sensor]
        share = torch.where(has_previous & more, since / (since + until), (~has_previous).double())
        return Moments(
            cast(Series, self),
            cells[0],
            has_previous,
            cells[1],
            more,
            (since.float() / interval).clamp(0.0, MAX_AGE),
            (until.float() / interval).clamp(0.0, MAX_AGE),
            share.float(),
        )


def _side(grid: GridBatch, decay: Tensor, rounds: int, *, backwards: bool = False) -> Side:
    """Averages over the readings on one side, by cell; 0 if there is no reading. Backwards, decays are flipped."""
    observed = grid.observed[..., None]
    x = torch.stack([grid.value * grid.observed, grid.observed.to(grid.value.dtype)], dim=-1)[..., None, :]
    x, decay = x.expand(*decay.shape, 2), decay[..., None]
    total = recurrence(x.flip(1), decay, rounds).flip(1) if backwards else recurrence(x, decay, rounds)
    weight = torch.where(observed, total[..., 1], 1.0)
    return Side((total[..., 0] / weight * observed).flatten(0, 2), weight.log().flatten(0, 2))
