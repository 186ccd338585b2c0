"""A few hundred hostile inputs with fixed seeds; `make fuzz MINUTES=60` tries more."""

from __future__ import annotations

import time
import warnings

import pytest
from entries import ENTRIES, SHARES, Home, attempt

INPUTS = 24


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Home(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_hostile_input_is_answered_or_refused_in_a_sentence(name: str, home: Home) -> None:
    results = []
    for seed in range(max(3, round(INPUTS * SHARES.get(name, 1.0)))):
        started = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes for people, and numpy's about odd numbers
            outcome, why = attempt(name, seed, home)
        assert outcome in ("right", "refused"), f"input {seed}: {outcome}: {why}"
        assert time.monotonic() - started < 30
        results.append(outcome)
    assert "refused" in results, "not one of them was hostile"
