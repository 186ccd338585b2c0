"""Monitor: counts new samples as they arrive, and reports changes since training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError
from raindrop.monitor.drift import ALPHA, Drift, Findings, adjust, compare, explain
from raindrop.monitor.pieces import Float64, Pieces
from raindrop.monitor.reference import Counts, Reference
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns
from raindrop.tasks.base import Watched

KEPT_LEVELS = 256  # random sample of median values kept for each sensor
MAX_GROUPS = 100


class Monitor:
    """Compares samples with the reference of a model, incrementally, in bounded memory.

    window: after about this many samples the oldest half of them is forgotten; None keeps all counts.
    """

    def __init__(self, reference: Reference, *, window: int | None = None, seed: int = 0):
        if window is not None and window < 2:
            raise ConfigError(f"window={window}: must be a number of samples of at least 2, or None.")
        self.reference, self.window = reference, window
        self._rng = np.random.default_rng(seed)
        self._new_sensors: dict[str, None] = {}
        self._blocks = [self._empty()]

    def update(self, table: EventTable, watched: Sequence[Watched] = ()) -> None:
        """Count whole samples: their readings and, if given, their scores (`Task.watched`)."""
        reference = self.reference
        known = set(reference.sensors)
        if len(self._new_sensors) < 1000:
            self._new_sensors |= dict.fromkeys(name for name in table.sensors if name not in known)
        first = 0
        for block in table.blocks():
            rows = np.arange(first, first + len(block))
            in_unit = block.in_memory().in_unit(reference.time_unit)
            pieces = Pieces.of(in_unit, reference.sensors, reference.piece_length)
            self.count(pieces, [column[rows] for column in watched])
            first += len(block)

    def count(self, pieces: Pieces, watched: Sequence[Watched] = ()) -> None:
        """Count pieces of a table."""
        reference = self.reference
        if watched and tuple(column.name for column in watched) != reference.columns:
            raise ConfigError("The scores are not those of the model that the reference belongs to.")
        block = self._blocks[-1]
        block.add(reference.bins.count(pieces, watched), pieces, self._rng)
        if self.window is not None and int(block.counts.pieces) >= self.window // 2:
            self._blocks = [block, self._empty()]

    def findings(self, *, alpha: float = ALPHA) -> Findings:
        """Changes since training, over all samples that are counted."""
        tests, levels = adjust(list(self._tests()), alpha), self.levels()
        return self._findings([explain(test, self.reference, levels) for test in tests], alpha)

    def levels(self) -> list[Float64]:
        """Median values of each sensor in new samples; a random subset if there are many."""
        return [
            np.concatenate([block.levels[at, : min(block.seen[at], KEPT_LEVELS)] for block in self._blocks])
            for at in range(len(self.reference.sensors))
        ]

    @property
    def counts(self) -> Counts:
        """The counts of the new samples."""
        total = self._blocks[0].counts
        for block in self._blocks[1:]:
            total = total + block.counts
        return total

    def metrics(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Name, labels and value of each gauge, for Prometheus."""
        found = self.findings()
        yield "raindrop_drift_samples", {}, float(found.pieces)
        yield "raindrop_drift_alarms", {}, float(len(found.alarms))
        for test in found.tests:
            labels = {"name": test.name, "kind": test.kind}
            yield "raindrop_drift_psi", labels, test.psi
            yield "raindrop_drift_p_adjusted", labels, test.q
            yield "raindrop_drift_alarm", labels, float(test.is_alarm)

    def _tests(self) -> Iterator[Drift]:
        yield from compare(self.reference, self.counts, self.levels())

    def _findings(self, tests: Sequence[Drift], alpha: float) -> Findings:
        reference, tested = self.reference, {test.name for test in tests}
        return Findings(
            tuple(tests),
            int(self.counts.pieces),
            tuple(self._new_sensors),
            tuple(name for name in reference.sensors if name not in tested),
            alpha,
        )

    def _empty(self) -> _Block:
        return _Block(len(self.reference.sensors), len(self.reference.columns))


class _Block:
    """Counts, and a uniform random sample of the median values of each sensor (reservoir sampling)."""

    def __init__(self, sensors: int, columns: int):
        self.counts = Counts.zero(sensors, columns)
        self.levels = np.zeros((sensors, KEPT_LEVELS))
        self.seen = np.zeros(sensors, dtype=np.int64)

    def add(self, counts: Counts, pieces: Pieces, rng: np.random.Generator) -> None:
        self.counts = self.counts + counts
        order = rng.permutation(len(pieces.sensor))
        order = order[np.argsort(pieces.sensor[order], kind="stable")]
        sensor = pieces.sensor[order]
        first = np.searchsorted(sensor, np.arange(len(self.seen)))
        rank = self.seen[sensor] + np.arange(len(sensor)) - first[sensor]  # how many came before, over all calls
        place = np.where(rank < KEPT_LEVELS, rank, (rng.random(len(rank)) * (rank + 1)).astype(np.int64))
        kept = place < KEPT_LEVELS
        self.levels[sensor[kept], place[kept]] = pieces.level[order][kept]
        self.seen += np.bincount(sensor, minlength=len(self.seen))


def reference_of(model: Any) -> Reference:
    """The reference that was saved with a fitted model; raises if there is none."""
    reference: Reference | None = getattr(model, "reference_", None)
    if reference is None:
        raise ConfigError(
            "The model was saved without reference statistics, by an earlier version. Give the training table with "
            "--reference-data DATA (in Python reference=reference_from(model, table)), or train it again."
        )
    return reference


def reference_from(model: Any, table: EventTable) -> Reference:
    """The reference for a model that was saved without one, from a table that represents training."""
    table = table.in_unit(model.time_unit_)
    return Reference.learn(table, model.scaler_.sensors, watched_by(model, table), seed=int(model.seed))


def monitor_table(
    model: Any,
    table: EventTable,
    *,
    reference: Reference | None = None,
    labelled: bool = False,
    by: str | None = None,
    alpha: float = ALPHA,
) -> Findings:
    """Compare a table with what a fitted model saw in training.

    labelled: the table has true labels, so calibration is compared too. by: a column of the samples table, such as the
    site; each of its values is then compared separately, with p-values adjusted for all of them.
    """
    reference = reference_of(model) if reference is None else reference
    watched = watched_by(model, table, labelled=labelled) if reference.columns else []
    if by is not None:
        return findings_by_group(reference, table, by, watched, alpha=alpha)
    monitor = Monitor(reference)
    monitor.update(table, watched)
    return monitor.findings(alpha=alpha)


def watched_by(model: Any, table: EventTable, *, labelled: bool = False) -> list[Watched]:
    """The monitored scores of a table, with the outcomes if the table has them."""
    if not hasattr(model, "predictions"):
        return []
    known = set(model.scaler_.observed_sensors)
    is_known = np.array([name in known for name in table.sensors], dtype=bool)
    parts: list[list[Watched]] = []
    for block in table.blocks():
        seen = is_known[np.asarray(block.sensor[block.rows()])]
        visible = block if seen.all() else block.where(seen)
        parts.append(model.task_.watched(model.predictions(visible), model.truth(visible) if labelled else None))
    return [Watched.joined(columns) for columns in zip(*parts, strict=True)]


def findings_by_group(
    reference: Reference, table: EventTable, by: str, watched: Sequence[Watched] = (), *, alpha: float = ALPHA
) -> Findings:
    """Each value of a column of the samples table separately, with p-values adjusted for all tests together."""
    require_columns(table.samples, {"by": by}, "samples")
    names = np.array([str(value) for value in table.samples[by].to_list()])
    groups = np.unique(names)
    if len(groups) > MAX_GROUPS:
        raise DataError(f"samples: '{by}' has {len(groups):,} different values; at most {MAX_GROUPS} can be compared.")
    monitors: dict[str, Monitor] = {}
    tests: list[Drift] = []
    for group in groups.tolist():
        rows: NDArray[np.int64] = np.flatnonzero(names == group)
        monitors[group] = Monitor(reference)
        monitors[group].update(table[rows], [column[rows] for column in watched])
        tests += [replace(test, group=f"{by} {group}") for test in monitors[group]._tests()]
    levels = {f"{by} {group}": monitor.levels() for group, monitor in monitors.items()}
    explained = [explain(test, reference, levels[test.group]) for test in adjust(tests, alpha)]
    whole = next(iter(monitors.values()))._findings(explained, alpha)
    return replace(whole, pieces=sum(int(monitor.counts.pieces) for monitor in monitors.values()))
