"""A large table is monitored block by block: the same counts, scores and tests."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from closeness import assert_close
from learnable import easy_table
from small_blocks import make_small

from raindrop import Classifier, EventTable
from raindrop.monitor import Monitor, monitor_table
from raindrop.monitor.monitor import watched_by
from raindrop.monitor.pieces import Pieces
from raindrop.monitor.reference import Counts


@pytest.fixture(scope="module")
def model() -> Classifier:
    return Classifier("trees", config={"model.rounds": 5}).fit(easy_table(60))


@pytest.fixture(scope="module")
def new() -> EventTable:
    """Other samples in another unit of time, in random order, with a sensor that the model does not know."""
    table = easy_table(40, seed=1)
    events = table.events().to_dict(as_series=False)
    events["sensor"] = ["new" if at % 7 == 0 else name for at, name in enumerate(events["sensor"])]
    table = EventTable.from_frames(events, table.samples, label="label")
    return table.in_unit("minutes")[np.random.default_rng(0).permutation(40)]


def test_counts_scores_and_tests_are_those_of_the_whole_table(model, new, monkeypatch):
    whole, watched, found = counts_of(model, new), watched_by(model, new, labelled=True), monitor_table(model, new)
    make_small(monkeypatch, large=60, block=40)
    sizes, of = [], Pieces.of
    monkeypatch.setattr(Pieces, "of", lambda table, *rest: (sizes.append(len(table.time)), of(table, *rest))[1])
    blocks = counts_of(model, new)
    assert len(sizes) > 5
    assert max(sizes) <= 40
    for name in (field.name for field in fields(Counts)):
        assert_close(getattr(blocks, name), getattr(whole, name))
    for one, other in zip(watched_by(model, new, labelled=True), watched, strict=True):
        assert_close(one.score, other.score)
        assert one.outcome.tolist() == other.outcome.tolist()
    again = monitor_table(model, new)
    assert again.new_sensors == found.new_sensors == ("new",)
    assert_close(np.array([test.p for test in again.tests]), np.array([test.p for test in found.tests]))


def counts_of(model: Classifier, table: EventTable) -> Counts:
    monitor = Monitor(model.reference_)
    monitor.update(table, watched_by(model, table, labelled=True))
    return monitor.counts
