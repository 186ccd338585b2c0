"""Tests of new counts against the reference, and their findings.

For each sensor: the share of pieces in which it is read, its median values, how often it is read in each, and the share
of pieces in which it is constant. For each column of the scores: their distribution, and whether outcomes follow it as
in validation. The size of a change is the population stability index, sum (p - q) log(p / q) over bins; its
significance is that of a chi-squared test of the same bins (for shares: of the hypergeometric distribution). p-values
are adjusted for the number of tests by Holm's method, so that with nothing changed the probability of any alarm is at
most `alpha`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from raindrop.monitor.pieces import Float64, Int64
from raindrop.monitor.reference import Counts, Reference
from raindrop.monitor.unit_changes import find_unit_change

Kind = Literal["missing", "level", "rate", "constant", "scores", "calibration"]
ALPHA = 0.05
MIN_PSI, MIN_RESIDUAL = 0.05, 0.02  # smaller changes (second: of calibration) are no alarm, even if certain
MIN_EXPECTED, MIN_VARIANCE = 10.0, 2.5  # per bin; neighbouring bins are merged until they reach it
MIN_PIECES = 20  # minimum number of new and old pieces for a test
DEAD = 0.02  # of its share in training: with less, a sensor counts as dead


@dataclass(frozen=True)
class Drift:
    """One test."""

    name: str
    """A sensor, or a column of the scores."""
    kind: Kind
    psi: float
    """Population stability index; for calibration, the root mean square of the differences of the bins' residuals."""
    p: float
    q: float
    """p adjusted for the number of tests."""
    before: float
    """Share of pieces, median value, mean number of readings or mean score in training."""
    now: float
    is_alarm: bool = False
    group: str = ""
    """The group of samples it is about, if groups were compared."""
    note: str = ""
    """A possible explanation, such as another unit."""
    shares: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    """Counts of each bin, in training and now; for a share, without and with."""
    edges: tuple[float, ...] = ()
    """The edges between the bins."""

    @property
    def is_dead(self) -> bool:
        """Whether a sensor is no longer read."""
        return self.is_alarm and self.kind == "missing" and self.now <= DEAD * self.before

    def sentence(self) -> str:
        """A description of the change."""
        before, now = f"{self.before:.4g}", f"{self.now:.4g}"
        text = {
            "missing": f"read in {self.now:.1%} of samples, {self.before:.1%} in training",
            "level": f"median {now}, {before} in training",
            "rate": f"{now} readings per sample that has any, {before} in training",
            "constant": f"one value throughout in {self.now:.1%} of samples, {self.before:.1%} in training",
            "scores": f"mean score {now}, {before} in validation",
            "calibration": f"outcomes are off by {now} on average, {before} in validation",
        }[self.kind]
        dead = "dead: " if self.is_dead else ""
        where = f" ({self.group})" if self.group else ""
        return f"{self.name}{where}: {dead}{text}{f'; {self.note}' if self.note else ''}"


@dataclass(frozen=True)
class Findings:
    """All tests of some samples against the reference."""

    tests: tuple[Drift, ...]
    pieces: int
    new_sensors: tuple[str, ...] = ()
    """Sensors that the model does not know."""
    untested: tuple[str, ...] = ()
    """Sensors with too few readings in training or now."""
    alpha: float = ALPHA

    @property
    def alarms(self) -> tuple[Drift, ...]:
        """The changes, most certain first."""
        return tuple(sorted((test for test in self.tests if test.is_alarm), key=lambda test: (test.q, -test.psi)))

    def sentences(self) -> list[str]:
        """One sentence for each alarm."""
        return [drift.sentence() for drift in self.alarms]


def adjust(tests: Sequence[Drift], alpha: float = ALPHA) -> tuple[Drift, ...]:
    """The tests with p-values adjusted by Holm's method; an alarm is one below alpha whose change is not small."""
    p = np.array([test.p for test in tests])
    order = np.argsort(p, kind="stable")
    q = np.empty(len(p))
    q[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return tuple(
        replace(test, q=float(each), is_alarm=bool(each < alpha and test.psi >= _least(test.kind)))
        for test, each in zip(tests, q, strict=True)
    )


def _least(kind: Kind) -> float:
    return MIN_RESIDUAL if kind == "calibration" else MIN_PSI


def compare(reference: Reference, new: Counts, levels: Sequence[Float64]) -> Iterator[Drift]:
    """Every test with enough pieces, not adjusted; levels: all or some of the new median values of each sensor."""
    old, bins = reference.counts, reference.bins
    n_old, n_new = int(old.pieces), int(new.pieces)
    if min(n_old, n_new) >= MIN_PIECES:
        p = share_tests(old.present, np.full_like(old.present, n_old), new.present, np.full_like(new.present, n_new))
        for at in np.flatnonzero(old.present).tolist():
            shares = old.present[at] / n_old, new.present[at] / n_new
            yield _of_shares(reference.sensors[at], "missing", float(p[at]), shares, (n_old, n_new))
    p = share_tests(old.constant, old.repeated, new.constant, new.repeated)
    for at, name in enumerate(reference.sensors):
        if min(old.repeated[at], new.repeated[at]) >= MIN_PIECES:
            shares = old.constant[at] / old.repeated[at], new.constant[at] / new.repeated[at]
            yield _of_shares(name, "constant", float(p[at]), shares, (old.repeated[at], new.repeated[at]))
        if min(old.level[at].sum(), new.level[at].sum()) >= MIN_PIECES:
            before, now = reference.level_quantiles[at, 50], np.median(levels[at]) if len(levels[at]) else np.nan
            yield _of_bins(name, "level", old.level[at], new.level[at], bins.level[at], float(before), float(now))
            means = (float(each.readings_total[at] / each.present[at]) for each in (old, new))
            yield _of_bins(name, "rate", old.readings[at], new.readings[at], bins.readings[at], *means)
    yield from _of_scores(reference, new)


def explain(drift: Drift, reference: Reference, levels: Sequence[Float64]) -> Drift:
    """The drift with a note if the values of a sensor look like another unit."""
    if drift.kind != "level" or not drift.is_alarm:
        return drift
    at = reference.sensors.index(drift.name)
    found = find_unit_change(reference.level_quantiles[at], levels[at])
    return drift if found is None else replace(drift, note=found)


def _of_scores(reference: Reference, new: Counts) -> Iterator[Drift]:
    old = reference.counts
    for at, name in enumerate(reference.columns):
        if min(old.scores[at].sum(), new.scores[at].sum()) < MIN_PIECES:
            continue
        edges = reference.bins.scores[at]
        means = (_mean_of_bins(each.scores[at], edges) for each in (old, new))
        yield _of_bins(name, "scores", old.scores[at], new.scores[at], edges, *means)
        if min(old.judged[at].sum(), new.judged[at].sum()) < MIN_PIECES:
            continue
        if old.errors[at].any():
            edges = reference.bins.errors[at]
            means = (_mean_of_bins(each.errors[at], edges) for each in (old, new))
            yield _of_bins(name, "calibration", old.errors[at], new.errors[at], edges, *means)
        else:
            yield _of_residuals(name, old, new, at)


def _of_residuals(name: str, old: Counts, new: Counts, at: int) -> Drift:
    """Whether outcomes minus probabilities, by bin of the probability, are as in validation."""
    rows = [[_merged(getattr(each, field)[at], new.variance[at]) for field in RESIDUALS] for each in (old, new)]
    residual, variance = [], []
    for predicted, spread, happened, judged in rows:
        n = np.maximum(judged, 1)
        residual.append((happened - predicted) / n)
        variance.append(spread / n**2)
    known = (rows[0][3] > 0) & (rows[1][3] > 0) & (variance[0] + variance[1] > 0)
    difference = (residual[1] - residual[0])[known]
    chi2 = float(np.sum(difference**2 / (variance[0] + variance[1])[known]))
    before, now = (float((sum(row[2]) - sum(row[0])) / max(sum(row[3]), 1)) for row in rows)
    p = float(special.chdtrc(known.sum(), chi2)) if known.any() else 1.0
    weight = rows[1][3][known] / max(rows[1][3][known].sum(), 1)
    size = float(np.sqrt(np.sum(weight * difference**2)))
    shown = tuple(tuple((row[2] / np.maximum(row[3], 1)).tolist()) for row in rows)
    return Drift(name, "calibration", size, p, 1.0, before, now, shares=(shown[0], shown[1]))


RESIDUALS = ("predicted", "variance", "happened", "judged")


def _merged(values: NDArray[np.generic], variance: Float64) -> Float64:
    """Values of bins, with neighbours merged until each has enough variance for a normal approximation."""
    return np.add.reduceat(values.astype(np.float64), _starts(variance, MIN_VARIANCE))


def _of_bins(name: str, kind: Kind, old: Int64, new: Int64, edges: Float64, before: float, now: float) -> Drift:
    finite = edges[np.isfinite(edges)]
    shares = tuple(tuple((counts[: len(finite) + 1] / counts.sum()).tolist()) for counts in (old, new))
    return Drift(
        name, kind, psi(old, new), homogeneity(old, new), 1.0, before, now,
        shares=(shares[0], shares[1]), edges=tuple(finite.tolist()),
    )  # fmt: skip


def _of_shares(name: str, kind: Kind, p: float, shares: tuple[float, float], totals: tuple[int, int]) -> Drift:
    counts = [
        np.round(np.array([1 - share, share]) * total).astype(np.int64)
        for share, total in zip(shares, totals, strict=True)
    ]
    before, now = (float(share) for share in shares)
    return Drift(name, kind, psi(*counts), p, 1.0, before, now, shares=((1 - before, before), (1 - now, now)))


# ---------------------------------------------------------------- tests


def homogeneity(old: Int64, new: Int64) -> float:
    """p of the chi-squared test that two histograms come from one distribution."""
    expected = (old + new) * (new.sum() / (old.sum() + new.sum()))
    starts = _starts(expected, MIN_EXPECTED)
    if len(starts) < 2:
        return 1.0
    table = np.array([np.add.reduceat(old, starts), np.add.reduceat(new, starts)], dtype=np.float64)
    fit = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    return float(special.chdtrc(len(starts) - 1, ((table - fit) ** 2 / fit).sum()))


def _starts(expected: Float64, least: float) -> Int64:
    """Where merged bins start, each with at least this much; the rest at the end joins the last."""
    starts, total = [0], 0.0
    for at, each in enumerate(expected):
        if total >= least:
            starts.append(at)
            total = 0.0
        total += float(each)
    if total < least and len(starts) > 1:
        starts.pop()
    return np.array(starts)


def share_tests(old: Int64, of_old: Int64, new: Int64, of_new: Int64) -> Float64:
    """(u,) two-sided p-values that the shares old / of_old and new / of_new are the same, by the exact distribution."""
    total, hits = of_old + of_new, old + new
    below = stats.hypergeom.cdf(new, total, hits, of_new)
    above = stats.hypergeom.sf(new - 1, total, hits, of_new)
    return np.asarray(np.minimum(2 * np.minimum(below, above), 1.0))


def psi(old: Int64, new: Int64) -> float:
    """Population stability index of two histograms; half a count is added to every bin, so that none is empty."""
    used = (old + new) > 0
    p, q = ((counts[used] + 0.5) / (counts[used] + 0.5).sum() for counts in (old, new))
    return float(np.sum((p - q) * np.log(p / q)))


def _mean_of_bins(counts: Int64, edges: Float64) -> float:
    """The mean of numbers of which only the bins are known, each taken at the middle of its bin."""
    finite = edges[np.isfinite(edges)]
    if not len(finite) or not counts.sum():
        return float("nan")
    middle = np.concatenate([finite[:1], (finite[1:] + finite[:-1]) / 2, finite[-1:]])
    return float(counts[: len(middle)] @ middle / counts.sum())
