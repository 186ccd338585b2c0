"""Property tests: any input gives a valid table or an error message."""

import datetime as dt
import tempfile
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from refusal import is_sound, outcome, write_csv

from raindrop.batch.scaling import Scaler
from raindrop.errors import RaindropError
from raindrop.table.event_table import EventTable

pytestmark = pytest.mark.slow

MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
TEXT = st.one_of(
    st.text(max_size=4),
    st.sampled_from(
        ["", " ", "nan", "inf", "1e5", "-3", "1_0", "2024-01-31", "2024-01-31T08:15:00Z", "01/02/2024", "\0", "é"]
    ),
)
ODD = [
    st.floats(),
    st.integers(-(2**70), 2**70),
    TEXT,
    st.booleans(),
    MOMENTS,
    st.dates(),
    st.times(),
    st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)),
    st.lists(st.integers(0, 3), max_size=2),
    st.fixed_dictionaries({"a": st.integers(0, 3)}),
    st.binary(max_size=3),
    st.decimals(-1000, 1000, places=2),
    st.none(),
]
TAME = {
    "sample": st.sampled_from(["a", "b", "c"]),
    "time": st.one_of(st.floats(0, 10), st.integers(0, 3)),
    "sensor": st.sampled_from(["x", "y"]),
    "value": st.floats(-10, 10),
    "reference": st.sampled_from([0.0, 0.0, 1.0]),
    "cutoff": st.sampled_from([None, 0.0, 5.0]),
    "label": st.sampled_from([0, 1]),
    "static": st.sampled_from([1.5, 2.5]),
    "group": st.sampled_from(["g", "h"]),
}


@st.composite
def columns(draw, names, size, wild):
    """A frame of mostly valid columns; the `wild` ones hold other types, or valid values mixed with other types."""
    frame = {}
    for name in names:
        kind = TAME[name]
        if name in wild:
            odd = draw(st.sampled_from(ODD))
            kind = draw(st.sampled_from([odd, st.one_of(kind, odd), st.one_of(odd, st.none())]))
        frame[name] = draw(st.lists(kind, min_size=size, max_size=size))
    renamed = draw(st.sampled_from([*[None] * 9, *names]))
    return {(draw(TEXT) if name == renamed else name): content for name, content in frame.items()}


@st.composite
def pairs(draw):
    """Events, samples and options."""
    roles = draw(st.lists(st.sampled_from(["reference", "cutoff", "label", "static", "group"]), unique=True))
    wild = draw(st.lists(st.sampled_from(sorted(TAME)), max_size=2))
    events = draw(columns(["sample", "time", "sensor", "value"], draw(st.integers(0, 6)), wild))
    samples = draw(st.none() | columns(["sample", *roles], draw(st.integers(0, 4)), wild))
    if samples is not None and "sample" in samples and "sample" not in wild and draw(st.booleans()):
        samples["sample"] = ["a", "b", "c", "d"][: len(samples["sample"])]
    options = {
        "duplicates": draw(st.sampled_from(["error", "last", "mean"])),
        "before_reference": draw(st.sampled_from(["error", "keep", "drop"])),
        "unlisted": draw(st.sampled_from(["error", "drop", "drop"])),
        "time_unit": draw(st.sampled_from(["seconds", "hours"])),
        "sensors": draw(st.sampled_from([None, None, ["x", "y"], [], ["x", "x"]])),
        "statics": ["static"] if "static" in roles and samples is not None else None,
    }
    return events, samples, options


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(pair=pairs(), frame=st.sampled_from([dict, pl.DataFrame, pd.DataFrame]))
def test_any_frames_give_a_valid_table_or_an_error_message(pair, frame):
    events, samples, options = pair
    try:
        events, samples = frame(events), None if samples is None else frame(samples)
    except Exception:  # its own library refuses it
        return
    table = outcome(EventTable.from_frames, events, samples, **options)
    if isinstance(table, RaindropError):
        event("refused")
        assert len(str(table)) > 20
        return
    event("a table")
    assert is_sound(table)
    outcome(lambda: table.labels)
    outcome(table.split, (0.5, 0.5))
    outcome(lambda: Scaler.fit(table).encode_statics(table))
    with tempfile.TemporaryDirectory() as folder:
        assert EventTable.read(table.write(Path(folder) / "data")).fingerprint == table.fingerprint


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.lists(st.one_of(TEXT, st.sampled_from(["a", "1", "0.5"])), min_size=4, max_size=4), max_size=4),
    listed=st.booleans(),
)
def test_any_text_in_a_csv_gives_a_valid_table_or_an_error_message(lines, listed):
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(",".join(cell.replace("\n", " ") for cell in line) + "\n" for line in lines)
        write_csv(Path(folder), "sample,time,sensor,value\n" + text, "sample,label\na,0\n1,1\n" if listed else None)
        table = outcome(EventTable.read, folder, unlisted="drop")
        assert folder in str(table) if isinstance(table, RaindropError) else is_sound(table)


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), frame=st.sampled_from([dict, pl.DataFrame, pd.DataFrame]))
def test_any_wide_frame_gives_a_valid_table_or_an_error_message(data, frame):
    names = data.draw(st.lists(st.sampled_from(["sample", "time", "x", "y", "label", "", "cutoff"]), unique=True))
    size = data.draw(st.integers(0, 5))
    kinds = [st.floats(), st.sampled_from([None, 1.0, 2.0]), *ODD]
    wide = {
        name: data.draw(st.lists(data.draw(st.sampled_from(kinds)), min_size=size, max_size=size)) for name in names
    }
    wide |= {"time": list(range(size))} if data.draw(st.booleans()) else {}
    try:
        wide = frame(wide)
    except Exception:  # its own library refuses it
        return
    table = outcome(EventTable.from_wide, wide)
    assert len(str(table)) > 20 if isinstance(table, RaindropError) else is_sound(table)


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    values=st.one_of(
        arrays(float, array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3)),
        st.lists(arrays(float, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)), max_size=3),
        st.dictionaries(TEXT, arrays(float, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=3)), max_size=3),
        st.sampled_from([None, 5, "text", object()]),
    ),
    times=st.one_of(st.none(), st.lists(st.floats(), max_size=3), st.lists(st.lists(MOMENTS, max_size=3), max_size=3)),
    labels=st.one_of(st.none(), st.lists(st.one_of(st.integers(0, 1), TEXT), max_size=3)),
)
def test_any_arrays_give_a_valid_table_or_an_error_message(values, times, labels):
    table = outcome(EventTable.from_arrays, values, times, labels=labels)
    assert len(str(table)) > 20 if isinstance(table, RaindropError) else is_sound(table)


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
@settings(max_examples=150, deadline=None)
@given(content=st.one_of(st.binary(max_size=60), st.text(";,\t|\n\"0123.xNA-é", max_size=60).map(str.encode)),
       header=st.sampled_from([b"", b"sample,time,sensor,value\n", b"sample;time;sensor;value\n", b"time,x,y\n"]),
       wide=st.booleans(), suffix=st.sampled_from([".csv", ".tsv", ".parquet", ".npy", ".npz"]))  # fmt: skip
def test_any_bytes_in_a_file_give_a_valid_table_or_an_error_message(content, header, wide, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{suffix}"
        path.write_bytes(header + content)
        table = outcome(EventTable.from_files, path, wide=wide)
        assert len(str(table)) > 20 if isinstance(table, RaindropError) else is_sound(table)
