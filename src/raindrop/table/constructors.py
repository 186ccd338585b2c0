"""The `from_...` methods of EventTable. Frames of readings are built here, other shapes by adapters."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import polars as pl
from numpy.typing import ArrayLike

from raindrop.errors import DataError, RaindropWarning, suggest
from raindrop.table.adapters import arrays, meds, sktime, wide
from raindrop.table.adapters.long_frames import LongFrames
from raindrop.table.build import Duplicates, Missing, SortedReadings, Unlisted, build_readings
from raindrop.table.data_files import read_files
from raindrop.table.frames import require_columns, to_polars
from raindrop.table.relative_time import BeforeReference
from raindrop.table.sensor_info import check_sensor_info
from raindrop.table.time_columns import TimeUnit

ROLES = ("label", "group", "cutoff", "reference")


class Constructors:
    """The class methods that build an EventTable."""

    @classmethod
    def _from_built(cls, built: SortedReadings) -> Self:
        raise NotImplementedError

    @classmethod
    def from_frames(
        cls,
        events: Any,
        samples: Any = None,
        *,
        sample: str = "sample",
        time: str = "time",
        sensor: str = "sensor",
        value: str = "value",
        text: str | None = None,
        label: str | None = None,
        statics: Sequence[str] | None = None,
        group: str | None = None,
        cutoff: str | None = None,
        reference: str | None = None,
        time_unit: TimeUnit = "hours",
        sensors: Any = None,
        duplicates: Duplicates = "error",
        missing: Missing = "error",
        before_reference: BeforeReference = "error",
        unlisted: Unlisted = "error",
        source: str | tuple[str, str] | None = None,
        notices: Sequence[str] = (),
    ) -> Self:
        """A table from frames of readings: polars, pandas, Arrow, DuckDB relations, mappings of columns.

        `label`, `group`, `cutoff` and `reference` are columns of `samples`. A column called 'label', 'group', 'cutoff'
        or 'reference' is used by default; pass '' to prevent that. `statics` must always be named: no other column is
        an input of a model. Without `samples`, named columns of `events` are used if they have one value per sample.
        Date times become hours (or another `time_unit`) since the sample's `reference`, or since its first reading if
        there is no reference. Values that are text become sensors that read 1 or 0; `text` is the column of such values
        if they have a separate one. `source` is the name of the tables in messages: one name for both, or one each.
        `notices` are kept with the table, before its own. `sensors` are the names in order, or a frame with the column
        `sensor` and further columns, such as a position in `x` and `y` (`sensor_columns`).
        """
        about = to_polars(sensors, "sensors") if isinstance(sensors, Mapping) or hasattr(sensors, "columns") else None
        if about is not None:
            require_columns(about, {"sensor": "sensor"}, "sensors")
            sensors = about["sensor"].cast(pl.String).to_list()
            about = check_sensor_info(about, sensors)
        built = build_readings(
            events,
            samples,
            sample=sample,
            time=time,
            sensor=sensor,
            value=value,
            text=text,
            label=label,
            statics=statics,
            group=group,
            cutoff=cutoff,
            reference=reference,
            time_unit=time_unit,
            sensors=sensors,
            duplicates=duplicates,
            missing=missing,
            before_reference=before_reference,
            unlisted=unlisted,
            source=source,
            notices=notices,
        )
        for notice in built.notices:
            warnings.warn(notice, RaindropWarning, stacklevel=2)
        return cls._from_built(replace(built, sensor_info=about))

    @classmethod
    def from_columns(cls, sample: Any, time: Any, sensor: Any, value: Any, samples: Any = None, **options: Any) -> Self:
        """A table from four lists or arrays of equal length; `options` are those of `from_frames`."""
        columns = {"sample": sample, "time": time, "sensor": sensor, "value": value}
        for name, column in columns.items():
            if isinstance(column, str) or not hasattr(column, "__len__"):
                raise DataError(f"{name} must be a list or array with one entry per reading, not {column!r}.")
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"The columns must be equally long, but have {lengths}.")
        check_options(cls, options)
        return cls.from_frames(columns, samples, **options)

    @classmethod
    def from_wide(
        cls,
        frame: Any,
        samples: Any = None,
        *,
        sample: str | None = None,
        time: str = "time",
        sensors: Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """A table from a frame with one row per time and a column for each sensor; null or NaN if it was not read.

        sample: the column of sample ids; without one (and no column called 'sample') the frame is one long series.
        sensors: the columns of sensors; by default all except those that `options` give as label, statics, group,
        cutoff or reference, or that have these names. Without `samples`, these describe the samples and must have one
        value for all rows of a sample. `options` are those of `from_frames`.
        """
        check_options(cls, options)
        for name in ("sensor", "value", "text"):
            if options.get(name):
                raise DataError(f"{name}='{options[name]}': a wide frame has a column for each sensor; leave this out.")
        source = options.get("source") or "frame"
        source = source if isinstance(source, str) else source[0]
        named = [options.get(role) or role for role in ROLES] + list(options.get("statics") or ())
        content = to_polars(frame, source)
        if sensors is None and samples is not None:
            sensors = [name for name in content.columns if name not in (sample or "sample", time, *named)]
        attributes = named if samples is None else []
        long = wide.from_wide(content, sample, time, sensors, attributes, source)
        if samples is not None and sample not in (None, "sample"):
            samples = to_polars(samples, "samples").rename({str(sample): "sample"}, strict=False)
        return cls._from_long(long, {"source": (source, source), **options}, samples)

    @classmethod
    def from_arrays(
        cls,
        values: Any,
        times: Any = None,
        samples: Any = None,
        *,
        sensors: Sequence[str] | None = None,
        labels: ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """A table from arrays with NaN for missing values: (sample, time, sensor), or (time, sensor) for each sample.

        values: one array with three axes; one with two, for a single long series; or a list, or a dict by sample id, of
        arrays (time, sensor) of any length. times: one array for all samples, one for each, or a dict; by default 0, 1,
        2, .... samples: ids, or a frame with one row per sample. `options` are those of `from_frames`.
        """
        check_options(cls, options)
        return cls._from_long(arrays.from_arrays(values, times, samples, sensors, labels), options)

    @classmethod
    def from_pypots(cls, data: Mapping[str, Any], **options: Any) -> Self:
        """A table from a PyPOTS dictionary: "X" (sample, time, sensor) with NaN, and optionally "y"."""
        check_options(cls, options)
        return cls._from_long(arrays.from_pypots(data), options)

    @classmethod
    def from_aeon(cls, values: Any, labels: ArrayLike | None = None, **options: Any) -> Self:
        """A table from aeon's arrays (sample, channel, time), or its list of arrays (channel, time)."""
        check_options(cls, options)
        return cls._from_long(arrays.from_aeon(values, labels, options.pop("sensors", None)), options)

    @classmethod
    def from_sktime(cls, frame: Any, labels: ArrayLike | None = None, **options: Any) -> Self:
        """A table from a pandas frame with the index (instance, time), or from sktime's nested frame."""
        check_options(cls, options)
        return cls._from_long(sktime.from_sktime(frame, labels), options)

    @classmethod
    def from_meds(
        cls,
        folder: str | os.PathLike[str],
        labels: str | os.PathLike[str] | None = None,
        *,
        codes: Sequence[str] | None = None,
        window: float | None = None,
        **options: Any,
    ) -> Self:
        """A table from a folder in the MEDS format (version 0.4).

        labels: a Parquet file, or a folder of them, with subject_id, prediction_time and a value. There is one sample
        for each label, with nothing after its prediction time; without labels, one for each subject. codes: read only
        these. window: only the hours before the prediction time; times then count from its start, else from the first
        reading. `options` are those of `from_frames`.
        """
        check_options(cls, options)
        return cls._from_long(meds.from_meds(Path(folder), labels, codes, window), {"source": str(folder), **options})

    @classmethod
    def from_files(
        cls,
        *paths: str | os.PathLike[str],
        samples: str | os.PathLike[str] | None = None,
        wide: bool = False,
        **options: Any,
    ) -> Self:
        """A table from files: CSV or Parquet with a row per reading (or `wide`), or .npy and .npz with arrays.

        Several files are read as one table. samples: a file with one row per sample; by default a file called
        samples.csv or samples.parquet among `paths`. `options` are those of `from_frames`, or of `from_wide`.
        """
        check_options(cls, options)
        content = read_files([Path(path) for path in paths], samples, options.get("sample"), wide=wide)
        if content.arrays is not None:
            return cls.from_arrays(**content.arrays, **options)
        named: dict[str, Any] = {"source": content.source, "notices": content.notices}
        if content.is_text:
            named["missing"] = "drop"
        build = cls.from_wide if wide else cls.from_frames
        return build(content.events, content.samples, **(named | options))

    @classmethod
    def _from_long(cls, long: LongFrames, options: Mapping[str, Any], samples: Any = None) -> Self:
        """A table from the result of an adapter; the user's `options` take precedence."""
        given = {name: value for name, value in options.items() if value is not None}
        notices = (*options.get("notices", ()), *long.notices)
        samples = long.samples if samples is None else samples
        return cls.from_frames(long.events, samples, **{**long.options, **given, "notices": notices})


def check_options(cls: type[Constructors], options: Mapping[str, Any]) -> None:
    """Raise unless every option is one of `from_frames`."""
    known = list(inspect.signature(cls.from_frames).parameters)[2:]
    for name in options:
        if name not in known:
            raise DataError(f"There is no option '{name}': {suggest(name, known)}")
