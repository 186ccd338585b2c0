"""How much memory there is, and a sentence before it runs out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raindrop.errors import NotEnoughMemoryError
from raindrop.hardware import available_memory, require_memory

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from raindrop.hardware import available_memory
print(available_memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="read from files of Linux")
def test_the_available_memory_is_less_than_all_and_follows_the_limit_of_the_process() -> None:
    found = available_memory()
    assert found is not None
    assert 1 << 20 < found < 1 << 50
    limited = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert int(limited.stdout) < 4 << 30


def test_too_little_memory_is_an_error_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raindrop.hardware.available_memory", lambda: 2_000_000_000)
    require_memory(1.9e9, "It", "Nothing.")
    with pytest.raises(NotEnoughMemoryError, match=r"^It would take about 2.1 GB .*, and 2.0 GB are available.\nAsk f"):
        require_memory(2.1e9, "It", "Ask for less.")


def test_where_the_memory_is_not_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raindrop.hardware.available_memory", lambda: None)
    require_memory(1e30, "It", "Nothing.")
