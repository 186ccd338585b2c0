"""Numbers as the page shows them."""

from __future__ import annotations

import pytest

from raindrop.report.numbers import size_text


@pytest.mark.parametrize(
    ("samples", "readings", "text"),
    [(1, 12_455, "1 sample with 12,455 readings"), (1200, 7, "1,200 samples with 7 readings")],
)
def test_the_size_of_a_table(samples, readings, text):
    assert size_text(samples, readings) == text
