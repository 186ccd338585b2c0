"""Drift on P12: false alarms on untouched samples, and planted changes that should be found.

    python benchmarks/drift.py P12_TABLE --draws 200 [--run RUN]

False alarms: the samples are split at random, 80 % are the reference, and of the others 100, 300 and 1,000 drawn at
random are compared with it; a draw counts if there is any alarm. There is a new split after every ten draws. With
--run, the scores and outcomes of the run's validation and test samples take part: a random half of them is the
reference, and the new samples are of the other half.
Planted changes, each in 500 other samples: every sensor in turn multiplied by 10, and dead; and half of the samples of
one of two sites with every second reading of five sensors left out.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import raindrop as rd
from raindrop.monitor import Monitor, Reference, findings_by_group
from raindrop.monitor.monitor import watched_by
from raindrop.monitor.pieces import Pieces
from raindrop.tasks.base import Watched

SIZES = (100, 300, 1000)
THINNED = ("HR", "Temp", "SysABP", "Urine", "GCS")


def findings_of(reference: Reference, pieces: Pieces, watched: list[Watched]) -> Any:
    """What is found in these pieces."""
    monitor = Monitor(reference)
    monitor.count(pieces, watched)
    return monitor.findings()


def false_alarms(pieces: Pieces, sensors: Any, unit: str, watched: list[Watched], draws: int, scored: bool) -> None:
    """The share of untouched draws with any alarm."""
    alarms: dict[int, list[Any]] = {size: [] for size in SIZES}
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        if draw % 10 == 0:
            order = rng.permutation(pieces.count)
            old, new = np.split(order, [pieces.count // 2 if scored else int(0.8 * pieces.count)])
            reference = Reference.of_pieces(pieces[old], sensors, [column[old] for column in watched], unit)
        for size in SIZES:
            chosen = rng.choice(new, size, replace=False)
            alarms[size].append(findings_of(reference, pieces[chosen], [column[chosen] for column in watched]).alarms)
    for size, found in alarms.items():
        some = [each for each in found if each]
        kinds = sorted({alarm.kind for each in some for alarm in each})
        print(f"untouched, {size} samples: {len(some)} of {draws} draws with an alarm {kinds or ''}")


def planted(table: rd.EventTable, reference: Reference, pieces: Pieces) -> None:
    """Which planted changes are found by name."""
    sensors = reference.sensors
    scaled, dead, other = [], [], []
    for at, name in enumerate(sensors):
        own = pieces.sensor == at
        level: NDArray[Any] = np.where(own, pieces.level * 10, pieces.level)
        found = findings_of(reference, replace(pieces, level=level), []).alarms
        scaled.append(next((a.note for a in found if a.name == name and a.kind == "level"), None))
        other.append([a.name for a in found if a.name != name])
        columns = {
            field: getattr(pieces, field)[~own]
            for field in ("piece", "sensor", "level", "readings", "repeated", "constant", "low", "high")
        }
        found = findings_of(reference, replace(pieces, **columns), []).alarms
        dead.append(any(a.name == name and a.is_dead for a in found))
        other.append([a.name for a in found if a.name != name])
    tested = [reference.counts.present[at] / int(reference.counts.pieces) for at in range(len(sensors))]
    shifted = [name for name, note in zip(sensors, scaled, strict=True) if note is not None]
    units = [name for name, note in zip(sensors, scaled, strict=True) if note and "10 times" in note]
    print(f"times 10: {len(shifted)} of {len(sensors)} sensors found, {len(units)} of them as a change of unit by 10")
    print("  not found:", [(n, round(t, 3)) for n, t in zip(sensors, tested, strict=True) if n not in shifted])
    print("  found, but not as times 10:", [n for n in shifted if n not in units])
    alive = [(n, round(t, 3)) for n, t, d in zip(sensors, tested, dead, strict=True) if not d]
    print(f"dead: {sum(dead)} of {len(sensors)} sensors found; not found: {alive}")
    print(f"alarms about other sensors: {sum(map(len, other))} in {len(other)} comparisons")
    rng = np.random.default_rng(1)
    rows = table.rows()
    owner = np.repeat(np.arange(len(table)), table.count)
    site = np.where(rng.random(len(table)) < 0.5, "north", "south")
    thinned = np.isin(np.asarray(table.sensor[rows]), [table.sensors.index(name) for name in THINNED])
    keep = ~((site[owner] == "south") & thinned & (rng.random(len(rows)) < 0.5))
    changed = table.where(keep)
    changed = replace(changed, samples=changed.samples.with_columns(site=site))
    findings = findings_by_group(reference, changed, "site")
    found = {(alarm.name, alarm.group) for alarm in findings.alarms if alarm.kind == "rate"}
    right = [name for name in THINNED if (name, "site south") in found]
    print(f"site with half the rate: {right} of {list(THINNED)} found at site south")
    print("  other alarms:", [a.sentence() for a in findings.alarms if (a.name, a.group) not in
                              {(name, "site south") for name in THINNED}])  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    table = rd.EventTable.read(options.table)
    if options.run is None:
        pieces = Pieces.of(table, table.sensors)
        false_alarms(pieces, table.sensors, table.time_unit, [], options.draws, scored=False)
        order = np.random.default_rng(0).permutation(len(table))
        reference = Reference.of_pieces(pieces[order[500:]], table.sensors, [], table.time_unit)
        planted(table[np.sort(order[:500])], reference, pieces[np.sort(order[:500])])
    else:
        model = rd.load(options.run)
        table = table[model.split_.find(table).is_in("val", "test")]
        watched = watched_by(model, table, labelled=True)
        pieces = Pieces.of(table, table.sensors)
        false_alarms(pieces, table.sensors, table.time_unit, watched, options.draws, scored=True)
