"""Tables for the tests of the table room."""

import numpy as np
import pytest
from hand_made import EVENTS, SAMPLES

from raindrop.table.event_table import EventTable


@pytest.fixture
def table():
    return EventTable.from_frames(EVENTS, SAMPLES, statics=["age"])


@pytest.fixture(scope="session")
def large():
    """200 samples of 0 to 60 readings."""
    rng = np.random.default_rng(0)
    count = rng.integers(0, 60, 200)
    owner = np.repeat(np.arange(200), count)
    return EventTable.from_columns(
        owner,
        np.arange(len(owner)) / 7,
        rng.integers(0, 5, len(owner)).astype(str),
        rng.normal(size=len(owner)),
        {"sample": np.arange(200), "label": rng.random(200) < 0.3, "site": np.arange(200) // 4},
    )
