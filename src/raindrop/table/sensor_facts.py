"""Collect, piece by piece, which sensors a table has and which of them have text readings."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from raindrop.errors import DataError, RowError
from raindrop.table.categories import YES_NO, require_few_texts, sensor_of_text, text_notice
from raindrop.table.cells import natural_key
from raindrop.table.time_columns import text_sentence


class Rows(Protocol):
    """The files that rows come from."""

    def explained(self, error: RowError, row: int) -> DataError:
        """The error with the place of its first row."""


class SensorFacts:
    """Sensors with numbers, and the texts of those with text: how many rows, and the first of them."""

    def __init__(self) -> None:
        self.with_numbers: set[str] = set()
        self.texts = pl.DataFrame(schema={"sensor": pl.String, "text": pl.String, "rows": pl.Int64, "first": pl.Int64})

    def add(self, rows: pl.DataFrame, row: str, source: str) -> None:
        """Learn from rows with the columns sensor, value and text, and the number of each row in the column `row`."""
        numbers = rows.filter(pl.col("value").is_not_null())["sensor"].unique()
        self.with_numbers |= set(numbers.drop_nulls().to_list())
        found = rows.filter(pl.col("text").is_not_null() & pl.col("sensor").is_not_null())
        if found.is_empty():
            return
        counted = found.group_by("sensor", "text").agg(
            pl.len().cast(pl.Int64).alias("rows"), pl.col(row).min().alias("first")
        )
        together = pl.concat([self.texts, counted]).group_by("sensor", "text")
        self.texts = together.agg(pl.col("rows").sum(), pl.col("first").min()).sort("first", "sensor")
        states = self.texts.filter(~pl.col("text").str.to_lowercase().is_in(list(YES_NO)))
        require_few_texts(states.filter(~pl.col("sensor").is_in(list(self.with_numbers))), source)

    def refuse_mixed(self, column: str, source: str, total: int, files: Rows) -> None:
        """Raise if a sensor has both numbers and text."""
        mixed = self.texts.filter(pl.col("sensor").is_in(list(self.with_numbers)))
        if len(mixed):
            row = int(mixed["first"][0])
            sentence = text_sentence(column, mixed["text"][0], "value", source)
            raise files.explained(RowError(sentence, int(mixed["rows"].sum()), total, row), row)

    def names(self) -> tuple[str, ...]:
        """All sensors in order, including those made from text."""
        of_texts = {sensor_of_text(sensor, text) for sensor, text in self.texts.select("sensor", "text").iter_rows()}
        return tuple(sorted(self.with_numbers | of_texts, key=natural_key))

    def notices(self, source: str) -> list[str]:
        """The notices about readings that are text."""
        if self.texts.is_empty():
            return []
        states = self.texts.filter(~pl.col("text").str.to_lowercase().is_in(list(YES_NO)))
        example = None if states.is_empty() else f"{states['sensor'][0]}={states['text'][0]}"
        names = self.texts["sensor"].unique().sort().to_list()
        return [text_notice(source, int(self.texts["rows"].sum()), names, example)]
