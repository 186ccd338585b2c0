"""Sensors by what each alone tells about the label."""

from __future__ import annotations

import numpy as np
import pytest
from learnable import easy_table

from raindrop.benchmark.ranking import rank_sensors
from raindrop.table.event_table import EventTable


def planted(classes: int = 2, samples: int = 240, seed: int = 0) -> EventTable:
    """Sensors from clear to none: strong, weak, noise, constant, silent (never read), sparse (in few samples)."""
    rng = np.random.default_rng(seed)
    names = ("noise", "constant", "weak", "silent", "strong", "sparse")
    rows = []
    for sample in range(samples):
        label = sample % classes
        for time in range(4):
            rows.append((f"s{sample}", time, "strong", rng.normal(3 * label, 1)))
            rows.append((f"s{sample}", time, "weak", rng.normal(0.5 * label, 1)))
            rows.append((f"s{sample}", time, "noise", rng.normal(0, 1)))
            rows.append((f"s{sample}", time, "constant", 7.0))
        if sample // classes % 10 == 0:
            rows.append((f"s{sample}", 0, "sparse", rng.normal(0, 1)))
    about = {"sample": [f"s{at}" for at in range(samples)], "label": [at % classes for at in range(samples)]}
    return EventTable.from_columns(*zip(*rows, strict=True), about, label="label", sensors=names)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_order_is_that_in_which_sensors_tell_the_label(classes):
    ranking = rank_sensors(planted(classes))
    scores = dict(ranking)
    assert [sensor for sensor, _ in ranking[:2]] == ["strong", "weak"]
    assert scores["strong"] > 0.9
    assert scores["constant"] == scores["silent"] == 0.5
    assert abs(scores["noise"] - 0.5) < 0.12
    assert [score for _, score in ranking] == sorted(scores.values(), reverse=True)


def test_equal_sensors_keep_the_order_of_the_table():
    names = [sensor for sensor, score in rank_sensors(planted()) if score == 0.5]
    assert names == ["constant", "silent"]


def test_a_sensor_that_is_mostly_absent_is_not_ranked_backwards():
    """Out-of-bag votes do that: for a rare class and a sensor in every tenth sample they give about 0.34, not 0.5."""
    scores = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        there = [f"s{at}" for at in np.flatnonzero(rng.random(400) < 0.1)]
        about = {"sample": [f"s{at}" for at in range(400)], "label": [int(at % 20 == 0) for at in range(400)]}
        columns = there, np.zeros(len(there)), ["sparse"] * len(there), rng.normal(size=len(there))
        scores.append(rank_sensors(EventTable.from_columns(*columns, about, label="label"))[0][1])
    assert 0.44 < np.mean(scores) < 0.56


def test_missing_readings_alone_can_tell_the_label():
    table = planted()
    events = table.events()
    label = dict(zip(table.ids, table.labels.tolist(), strict=True))
    odd = np.array([label[name] for name in events["sample"]]) == 1
    gone = table.where(~(odd & (events["sensor"] == "noise").to_numpy()))
    assert dict(rank_sensors(gone))["noise"] > 0.99


def test_the_seed_decides_and_other_samples_do_not():
    table = planted()
    assert rank_sensors(table, seed=1) == rank_sensors(table, seed=1) != rank_sensors(table, seed=2)
    assert rank_sensors(table[np.arange(120)]) == rank_sensors(planted(samples=240)[np.arange(120)])


def test_labels_may_be_words():
    table = easy_table(48, classes=("apart", "coupled"))
    assert {sensor for sensor, _ in rank_sensors(table)[:2]} == {"heart rate", "pressure"}
