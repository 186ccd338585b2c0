"""Data sets by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from raindrop.datasets import convert
from raindrop.errors import DataError


def test_a_data_set_is_converted_by_its_short_name(p12_folder: Path) -> None:
    conversion = convert("p12", p12_folder, label="length_of_stay_gt_3")
    assert conversion.table.roles.label == "length_of_stay_gt_3"


def test_an_unknown_name_is_an_error_with_the_closest_one(p12_folder: Path) -> None:
    with pytest.raises(DataError, match=r"There is no data set 'P12': did you mean 'p12'"):
        convert("P12", p12_folder)


def test_a_report_as_text_lists_what_was_read_and_left_out(p12_folder: Path) -> None:
    text = str(convert("p12", p12_folder).report)
    assert text.startswith("P12: read 5 files, 48 rows, 5 outcomes")
    assert "2 rows      empty variable name" in text
    assert "1 samples   no reading of any sensor, excluded" in text
