"""Readings that are text, such as the state of a machine, become sensors that read 1 or 0."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from raindrop.errors import DataError

YES_NO = {"on": 1.0, "off": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "open": 1.0, "closed": 0.0}
MAX_TEXTS = 50
"""A sensor with more distinct texts than this holds free text, not states."""


def text_to_sensors(rows: pl.DataFrame, source: str, notices: list[str]) -> pl.DataFrame:
    """Rows (row, sample, time, sensor, value, text) without `text`: each text becomes readings of 1 and 0.

    on/off, true/false, yes/no and open/closed are the readings 1 and 0 of the sensor itself. Any other text becomes a
    sensor 'SENSOR=TEXT', which reads 1 when the text is read and 0 at the sensor's next reading if that has another
    text. The result for a sample depends only on its own readings up to that time.
    """
    has_text = rows["text"].is_not_null()
    text = rows.filter(has_text)
    names = text["sensor"].unique().sort().to_list()
    lower = pl.col("text").str.to_lowercase()
    answers = text.filter(lower.is_in(list(YES_NO)))
    answers = answers.with_columns(lower.replace_strict(YES_NO, return_dtype=pl.Float64).alias("value"))
    states = text.filter(~lower.is_in(list(YES_NO)))
    require_few_texts(states, source)
    example = None if states.is_empty() else f"{states['sensor'][0]}={states['text'][0]}"
    notices.append(text_notice(source, len(text), names, example))
    entered = _with_state_name(states).with_columns(value=pl.lit(1.0))
    parts = [rows.filter(~has_text), answers, entered, _left_states(rows, states)]
    return pl.concat([part.select("row", "sample", "time", "sensor", "value") for part in parts])


def text_notice(source: str, readings: int, names: Sequence[str], example: str | None) -> str:
    """The notice about text readings of these sensors; `example` is a sensor made from one of them."""
    here = "" if example is None else f", here for example '{example}'"
    return (
        f"{source}: {readings:,} readings of {len(names):,} sensors are text ({', '.join(map(repr, names[:5]))}"
        f"{', ...' if len(names) > 5 else ''}). on/off, true/false, yes/no and open/closed are read as 1/0; any other "
        f"text makes a sensor SENSOR=TEXT that reads 1 or 0{here}."
    )


def sensor_of_text(sensor: str, text: str) -> str:
    """The name of the sensor for one text of a sensor."""
    return sensor if text.lower() in YES_NO else f"{sensor}={text}"


def _with_state_name(states: pl.DataFrame) -> pl.DataFrame:
    whole = states.rechunk()  # polars 2.1 can panic in `format` where the chunks of two columns differ
    return whole.with_columns(sensor=pl.format("{}={}", "sensor", "text"))


def _left_states(rows: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """A reading of 0 for each state, at the time of the sensor's next reading, unless that is the same state."""
    series = ["sample", "sensor"]
    of_interest = rows.join(states.select("sensor").unique(), on="sensor", how="semi")
    times = of_interest.group_by(*series, "time").agg(pl.col("row").min()).sort(*series, "time")
    following = times.with_columns(
        pl.col("time").shift(-1).over(series).alias("next"), pl.col("row").shift(-1).over(series).alias("next row")
    ).select(*series, "time", "next", "next row")
    left = states.select(*series, "time", "text").unique().join(following, on=[*series, "time"], how="inner")
    left = left.filter(pl.col("next").is_not_null())
    left = left.select(pl.col("next row").alias("row"), *series, pl.col("next").alias("time"), "text")
    left = left.join(states.select(*series, "time", "text"), on=[*series, "time", "text"], how="anti")
    return _with_state_name(left).with_columns(value=pl.lit(0.0))


def require_few_texts(states: pl.DataFrame, source: str) -> None:
    """Raise if a sensor has too many distinct texts for them to be states."""
    counts = states.group_by("sensor").agg(pl.col("text").n_unique(), pl.col("text").first().alias("first"))
    many = counts.filter(pl.col("text") > MAX_TEXTS).sort("text", descending=True)
    if len(many):
        raise DataError(
            f"{source}: sensor '{many['sensor'][0]}' has {many['text'][0]:,} different texts as values (such as "
            f"'{many['first'][0]}'); {MAX_TEXTS} are the most that can be states of a sensor.\n"
            "Turn them into numbers or into fewer states, drop the sensor, or name another column of values with "
            "value='NAME' (--value NAME)."
        )
