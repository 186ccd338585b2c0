"""The small table that most models are checked on, and its batch; a test file may have a `table` of its own."""

from __future__ import annotations

import pytest


@pytest.fixture
def table(make_table):
    return make_table(samples=5, sensors=4, times=6)


@pytest.fixture
def batch(table, make_batch):
    return make_batch(table)
