"""Does the past of sensor u help to predict sensor v, beyond v's own past and that of all other sensors?

Each reading of v is a row. Its target is the change since v's previous reading; its columns are values of every sensor
at several lags before the row (`past.py`), their squares, and products of two sensors. A ridge regression predicts the
target out of fold (`sums.py`, `ridge.py`). Removing all columns of u shows how much worse v is predicted without u.
Errors are summed over about thirty blocks of rows: stretches of time, or groups of samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raindrop.graphs.design import CHUNK, Design
from raindrop.graphs.past import Floats, Rows
from raindrop.graphs.receiver import Receiver
from raindrop.graphs.ridge import Regression

FEW_ROWS = CHUNK  # at most this many rows choose the senders
LAG_ROWS = 8_000  # and at most this many the lags
MAX_SENDERS = 24  # in one regression: those that are most informative on their own
MAX_SCREENED = 2 * MAX_SENDERS  # maximum number screened: those with the highest correlations
PENALTIES = 10.0 ** np.arange(-3.0, 0.6, 0.5)  # per row
MIN_STATISTIC = 1.5  # with less, a sender is not an edge, so its lag is not computed
SURROGATES = 6  # senders of each receiver that are also tested with surrogates


@dataclass(frozen=True, eq=False)
class Lagged:
    """Results of the regression of one receiver, by sender; NaN for senders that were not tested."""

    gain: Floats  # (u,) how much lower the error is with u, as a share of the error from v's own past alone
    error: Floats  # (u,) its standard error
    statistic: Floats  # (u,) gain / error
    by_chance: Floats  # (k,) the statistics of surrogates
    lag: Floats  # (u,) at which u is most informative, in units of time
    explained: float  # by all senders together
    residual: Floats  # (n,) of the rows, standardised readings minus what the past predicts, weighted
    rows: Rows
    gain_sums: Floats  # (samples, u) the gain summed over the rows of each sample; empty unless requested


def compare_senders(receiver: Receiver, *, by_sample: bool = False) -> Lagged:
    """Test every sender; `by_sample` also sums its gains over the rows of each sample."""
    M, v, rng = receiver.past.num_sensors, receiver.sensor, np.random.default_rng([receiver.seed, receiver.sensor])
    senders = _screened(receiver.smaller(FEW_ROWS), [u for u in range(M) if u != v])
    surrogates = [senders[at] for at in sorted(rng.permutation(len(senders))[:SURROGATES].tolist())]
    design = Design(receiver, senders, surrogates, rng)
    sums, every = design.own_sums, design.sums
    penalty, full, solutions = sums.best(PENALTIES)
    _, base, own_solutions = sums.best(PENALTIES, (design.sensors == v).all(1))
    ridge = design.ridge(penalty)
    without = np.stack([ridge.without(design.of(u)).solutions for u in senders])
    losses = dict(zip(senders, sums.losses(without), strict=True))
    gain, error, statistic, lag = (np.full(M, np.nan) for _ in range(4))
    for u in senders:
        gain[u], error[u], statistic[u] = _summary(losses[u] - full, base)
    chance = every.losses(np.stack([every.system.solve(penalty, design.with_surrogate(u)) for u in surrogates]))
    by_chance = [_summary(losses[u] - each, each)[2] for u, each in zip(surrogates, chance, strict=True)]
    strong = [u for u in senders if statistic[u] > MIN_STATISTIC]
    if strong and len(receiver.rows) <= FEW_ROWS:
        lag[strong] = design.best_lags(ridge, strong)
    elif strong and (few := receiver.smaller(LAG_ROWS)) is not receiver:  # itself if those few rows would be constant
        few_design = Design(few, senders, [], rng)
        lag[strong] = few_design.best_lags(few_design.ridge(penalty), strong)
    residual = _residual(receiver, design.predicted(sums, solutions if full.sum() < base.sum() else own_solutions))
    explained = max(0.0, 1 - float(full.sum() / base.sum()))
    gain_sums = np.zeros((len(receiver.past.first) if by_sample else 0, M))
    if by_sample:
        squares = (receiver.target - design.predicted(sums, solutions)) ** 2
        for u, each in zip(senders, without, strict=True):
            grows = (receiver.target - design.predicted(sums, each)) ** 2 - squares
            of_samples = np.bincount(receiver.rows.sample, grows, minlength=len(gain_sums))
            gain_sums[:, u] = of_samples * len(receiver.rows) / base.sum()
    return Lagged(gain, error, statistic, np.array(by_chance), lag, explained, residual, receiver.rows, gain_sums)


def _residual(receiver: Receiver, predicted: Floats) -> Floats:
    """(n,) readings minus their out-of-fold prediction; the readings themselves if that is no better.

    Weighted: after a long gap a residual is larger, and less informative about which sensors move together.
    """
    residual: Floats = receiver.target - predicted
    value: Floats = (receiver.value - receiver.value.mean()) * receiver.weight
    return residual if (residual**2).sum() < (value**2).sum() else value


def _screened(receiver: Receiver, senders: list[int]) -> list[int]:
    """The most informative senders on their own, strongest first."""
    own_past = receiver.scale(receiver.own_past)
    own = Regression.of(own_past, receiver.target, receiver.folds)
    left = receiver.target - own.predicted(own.solve(0.01))
    if len(senders) > MAX_SCREENED:
        senders = _most_correlated(receiver, senders, left)
    gains = []
    for u in senders:
        values = receiver.past.values(u, receiver.rows)
        columns = np.concatenate([own_past, receiver.scale(np.concatenate([values, values**2], axis=1))], axis=1)
        gains.append((left**2 - Regression.of(columns, receiver.target, receiver.folds).squares(0.01)).sum())
    return [senders[at] for at in np.argsort(-np.array(gains), kind="stable")[:MAX_SENDERS]]


def _most_correlated(receiver: Receiver, senders: list[int], left: Floats) -> list[int]:
    """The senders whose earlier values, or their squares, correlate most with what v's own past does not explain."""
    left = left / np.sqrt((left**2).sum())
    score = np.zeros(receiver.past.num_sensors)
    for values in receiver.past.on_grid(receiver.rows):  # (n, sensor)
        for columns in (values, values**2):
            scaled = receiver.scale(columns)
            score += (left @ scaled) ** 2 / np.maximum((scaled**2).sum(0), 1e-9)
    return [senders[at] for at in np.argsort(-score[senders], kind="stable")[:MAX_SCREENED]]


def _summary(difference: Floats, base: Floats) -> tuple[float, float, float]:
    """Mean gain as a share of the base loss, its standard error over blocks, and the ratio of the two."""
    scale = float(base.mean())
    mean, error = float(difference.mean()), float(difference.std(ddof=1)) / np.sqrt(len(difference))
    return mean / scale, error / scale, mean / max(error, 1e-12 * scale)
