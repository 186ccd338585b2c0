"""Tables larger than memory: files of readings, in any order, are converted to a table that is read block by block.

The files are read in pieces and their rows partitioned into buckets on disk by a hash of the sample. Each bucket then
holds whole samples and is built like a small table. The format of the times and the set of sensors are collected over
all files along the way.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError, RaindropWarning, RowError
from raindrop.files import refuse_to_overwrite
from raindrop.hardware import require_memory
from raindrop.table.buckets import ROW, Buckets
from raindrop.table.build import PartOf, SortedReadings, build_readings, left_out_notice, sensor_names
from raindrop.table.checks import Sources
from raindrop.table.constructors import check_options
from raindrop.table.data_files import separate_samples
from raindrop.table.event_pieces import column_names, estimate_rows, pieces
from raindrop.table.event_table import EventTable
from raindrop.table.frame_files import TEXT_SUFFIXES, read_frame, require_file
from raindrop.table.frames import ids_as_text, require_columns, to_name_tuple
from raindrop.table.parts import GrowingArrays, write_parts
from raindrop.table.sample_table import (
    attribute_names,
    attributes_table,
    group_attributes,
    prepare_samples,
    resolve_roles,
    warn_of_ids,
)
from raindrop.table.sensor_facts import SensorFacts
from raindrop.table.store import Roles, new_table_folder
from raindrop.table.time_columns import TimeFacts, numbers_and_text, parse_numbers, parse_times

BUCKET_ROWS = 1 << 21  # rows of a bucket on average; files with fewer are read as a small table
BYTES_PER_ROW = 400  # maximum memory for building a bucket
TEXT = "raindrop text"
DEFAULTS: dict[str, Any] = {
    **{"sample": "sample", "time": "time", "sensor": "sensor", "value": "value", "time_unit": "hours"},
    **{"label": None, "statics": None, "group": None, "cutoff": None, "reference": None, "sensors": None},
    **{"duplicates": "error", "before_reference": "error", "unlisted": "error"},
}


def prepare(
    *paths: str | os.PathLike[str],
    out: str | os.PathLike[str],
    samples: str | os.PathLike[str] | None = None,
    **options: Any,
) -> EventTable:
    """Write the table of CSV or Parquet files of readings to a new folder, and open it; they may exceed the memory.

    The rows may be in any order. samples: a file with one row per sample; by default a file called samples.csv or
    samples.parquet among `paths`. `options` are those of `EventTable.from_files`. The table is the same as from
    `from_files`, but with its samples in another order. Small files are read whole, with the same result as
    `from_files`.
    """
    check_options(EventTable, options)
    options = {name: value for name, value in options.items() if value is not None}
    unknown = sorted(set(options) - {*DEFAULTS, "missing"})
    if unknown:
        raise ConfigError(f"{unknown[0]}: has no effect on files that are read in pieces; leave it out.")
    refuse_to_overwrite(Path(out))
    events, listed = separate_samples([require_file(Path(path)) for path in paths], samples)
    if any(path.suffix in (".npy", ".npz") for path in events):
        raise DataError(f"{events[0]}: a file of arrays is read whole; use 'raindrop import' (EventTable.from_files).")
    number = -(-estimate_rows(events) // BUCKET_ROWS)
    if number <= 1:
        EventTable.from_files(*events, samples=listed, **options).write(out)
        return EventTable.read(out)
    return _Preparation(events, listed, options, number).write(Path(out))


@dataclass
class _Files:
    """Where the rows of each file begin, counted over all files."""

    paths: list[Path] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    total: int = 0

    def place(self, row: int) -> str:
        """A description of the place of a row, counted over all files."""
        at = int(np.searchsorted(self.starts, row, side="right")) - 1
        of_file = f" of {self.paths[at]}" if len(self.paths) > 1 else ""
        return f"row {row - self.starts[at] + 1:,}{of_file}"

    def explained(self, error: RowError, row: int) -> DataError:
        """The error about a part of the rows, with the place of its first `row` in the files."""
        count = f"{error.count:,} or more" if error.count < self.total else f"{error.count:,}"
        return DataError(error.message_with(f"{count} of {self.total:,} rows", self.place(row)))


class _Preparation:
    """The state of converting files to one table."""

    def __init__(self, events: Sequence[Path], listed: Path | None, options: Mapping[str, Any], number: int):
        self.events, self.number = list(events), number
        is_text = any(path.suffix.lower() in TEXT_SUFFIXES for path in events)
        self.options = {**DEFAULTS, "missing": "drop" if is_text else "error", **options}
        self.sources = Sources(
            str(events[0]) if len(events) == 1 else f"{len(events)} files", "samples" if listed is None else str(listed)
        )
        self.notices: list[str] = []
        self.times, self.sensors, self.files = TimeFacts(), SensorFacts(), _Files()
        self.marks: dict[str, TimeFacts] = {}  # of the samples' references and cutoffs
        names = (self.options[name] for name in ("label", "group", "cutoff", "reference"))
        self.named = [name for name in (*names, *to_name_tuple(self.options["statics"] or (), "statics")) if name]
        self.listed = listed

    def write(self, out: Path) -> EventTable:
        """Partition the rows into buckets, build these one by one, and write the table."""
        samples = None if self.listed is None else self._read_samples(self.listed)
        with new_table_folder(out, False, ()) as partial:
            buckets = Buckets(partial / "buckets", self.number)
            self._fill(buckets)
            self.sensors.refuse_mixed(self.options["value"], self.sources.events, self.files.total, self.files)
            samples = self._attributes(buckets) if samples is None else samples
            table = self._build(buckets, samples, partial)
            for notice in table.notices:
                warnings.warn(notice, RaindropWarning, stacklevel=3)
            write_parts(partial, table, table.info(), {})
        return EventTable.read(out)

    # ---------------------------------------------------------------- first pass

    def _read_samples(self, path: Path) -> pl.DataFrame:
        """The samples file as a checked samples table; all of it is in memory."""
        id_column = self.options["sample"]
        about = read_frame(require_file(path), ids=(id_column,))
        self.notices += about.notices
        return self._checked_samples(about.frame)

    def _checked_samples(self, frame: pl.DataFrame) -> pl.DataFrame:
        roles, reference = self._roles(frame)
        frame = prepare_samples(pl.DataFrame(), frame, self.options["sample"], self.sources, self.notices)
        for name in dict.fromkeys((reference, roles.cutoff)):
            if name is not None:
                parse_times(frame[name], self.options["time_unit"], self.sources.samples, [])  # an error gives its row
                self.marks[name] = TimeFacts.of(frame[name])
        return frame

    def _roles(self, samples: pl.DataFrame | None) -> tuple[Roles, str | None]:
        statics = to_name_tuple(self.options["statics"] or (), "statics")
        named = {role: self.options[role] for role in ("label", "group", "cutoff", "reference")}
        return resolve_roles(named, statics, samples, self.options["sample"], self.sources)

    def _fill(self, buckets: Buckets) -> None:
        """Read the files in pieces; rows keep their number, names are text, values numbers or text."""
        roles = {role: self.options[role] for role in ("sample", "time", "sensor", "value")}
        first = column_names(self.events[0])
        implied = self.options["label"] is None
        self.attributes = [] if self.listed else attribute_names(first, roles["sample"], self.named, implied=implied)
        columns = list(dict.fromkeys([*roles.values(), *self.attributes, "filled"]))
        for path in self.events:
            found = pl.DataFrame(schema=column_names(path))
            require_columns(found, roles, str(path))
            absent = [name for name in self.attributes if name not in found.columns]
            if absent:
                require_columns(found, {"column of the first file": absent[0]}, str(path))
            self.files.paths.append(path)
            self.files.starts.append(self.files.total)
            for piece in pieces(path, columns, self.notices):
                self._add(piece, buckets, str(path))

    def _add(self, piece: pl.DataFrame, buckets: Buckets, source: str) -> None:
        names = [self.options[role] for role in ("sample", "time", "sensor", "value")]
        sample, time, sensor, value = names
        ids = ids_as_text(piece[sample], "sample", source)
        self.times = TimeFacts.of(piece[time], self.times)
        if piece[value].dtype in (pl.String, pl.Categorical, pl.Enum):
            number, text = numbers_and_text(piece[value])
        else:
            number, text = parse_numbers(piece[value], "value", source), None
        rows = pl.int_range(self.files.total, self.files.total + len(piece), dtype=pl.Int64, eager=True).alias(ROW)
        piece = piece.with_columns(
            ids.alias(sample), ids_as_text(piece[sensor], "sensor", source).alias(sensor), number.alias(value), rows,
            *([] if text is None else [text.alias(TEXT)]),
        )  # fmt: skip
        text_column = pl.lit(None, pl.String) if text is None else pl.col(TEXT)
        self.sensors.add(piece.select(ROW, sensor=sensor, value=value, text=text_column), ROW, self.sources.events)
        buckets.add(piece, ids)
        self.files.total += len(piece)

    def _attributes(self, buckets: Buckets) -> pl.DataFrame | None:
        """The samples table from attribute columns of the readings; None if there are none."""
        sample, source = self.options["sample"], self.sources.events
        if self.named and not self.attributes:
            self._roles(None)  # raises: no table has these columns
        if not self.attributes:
            return None
        grouped = []
        for bucket in range(buckets.number):
            frame = buckets.read(bucket, [sample, *self.attributes])
            if frame is not None:
                of_bucket = group_attributes(frame, sample, self.attributes, source)
                if of_bucket is None:
                    return None
                grouped.append(of_bucket)
        whole = pl.concat(grouped, how="vertical_relaxed")
        found = attributes_table(whole, sample, self.attributes, self.named, source, self.notices)
        return None if found is None else self._checked_samples(found)

    # ---------------------------------------------------------------- second pass

    def _build(self, buckets: Buckets, samples: pl.DataFrame | None, partial: Path) -> EventTable:
        """Build the buckets one by one, append their readings to the arrays, and open the table on these."""
        given = self.options["sensors"]
        names = self.sensors.names() if given is None else to_name_tuple(given, "sensors")
        built: list[SortedReadings] = []
        lost, read = 0, np.zeros(len(names), dtype=bool)
        arrays = GrowingArrays(partial)
        with arrays:
            for bucket, (frame, own) in enumerate(self._bucket_frames(buckets, samples)):
                if own is None and not self._has_values(frame):
                    lost += len(frame)
                    continue
                one = self._build_bucket(frame, own, names, samples)
                buckets.remove(bucket)
                if own is not None and own.is_empty():  # all rows were dropped: their samples are not listed
                    one = replace(one, samples=one.samples.clear(), count=one.count[:0])
                arrays.append(time=one.time, sensor=one.sensor, value=one.value)
                read[np.unique(one.sensor)] = True
                nothing = np.zeros(0)
                built.append(replace(one, time=nothing, sensor=nothing.astype(np.int32), value=nothing))
        shutil.rmtree(buckets.folder)
        if not built:
            raise DataError(f"{self.sources.events}: the table is empty, and there is no samples table either.")
        dropped: dict[str, int] = {"without a value": lost} if lost else {}
        for one in built:
            dropped |= {reason: dropped.get(reason, 0) + number for reason, number in one.dropped.items()}
        kept = sensor_names([names[at] for at in np.flatnonzero(read)], given, dropped, self.sources.events)
        if given is None and len(kept) < len(names):
            arrays.recode(np.cumsum(read, dtype=np.int32) - 1)
        count = np.concatenate([one.count for one in built])
        return EventTable(
            **arrays.open(),
            start=np.cumsum(count) - count,
            count=count,
            sensors=kept,
            samples=self._joined([one.samples for one in built]),
            roles=built[0].roles,
            time_unit=built[0].time_unit,
            dropped=dropped,
            filled=None if built[0].filled is None else np.concatenate([_filled(one) for one in built]),
            notices=self._all_notices(built, dropped),
        )

    def _bucket_frames(
        self, buckets: Buckets, samples: pl.DataFrame | None
    ) -> Iterator[tuple[pl.DataFrame, pl.DataFrame | None]]:
        """The readings of each bucket, and its samples if they are known."""
        names = [self.options[role] for role in ("sample", "time", "sensor", "value")]
        empty = pl.DataFrame(schema=dict(zip(names, (pl.String, pl.Float64, pl.String, pl.Float64), strict=True)))
        bucket_of = None if samples is None else buckets.of(samples["sample"])
        for bucket in range(buckets.number):
            require_memory(
                buckets.rows[bucket] * BYTES_PER_ROW,
                f"The largest of {buckets.number} parts of the readings, with {buckets.rows[bucket]:,} rows,",
                "All readings of a sample are in one part: cut long series into several samples, or use a machine with "
                "more memory.",
            )
            frame = buckets.read(bucket)
            frame = empty if frame is None else frame
            if samples is None or bucket_of is None:
                yield frame.drop(self.attributes, strict=False), None
            else:
                yield frame, samples.filter(bucket_of == bucket)

    def _has_values(self, frame: pl.DataFrame) -> bool:
        texts = frame[TEXT].count() if TEXT in frame.columns else 0
        return bool(frame[self.options["value"]].fill_nan(None).count() or texts)

    def _build_bucket(
        self, frame: pl.DataFrame, own: pl.DataFrame | None, names: Sequence[str], samples: pl.DataFrame | None
    ) -> SortedReadings:
        """Build the readings of a bucket like a small table; errors give the row in its file."""
        if own is not None and samples is not None and own.is_empty():
            own = samples.head(1)  # at least one sample is required; it has no rows here
        try:
            return build_readings(
                frame,
                None if own is None else own.rename({"sample": self.options["sample"]}),
                **(self.options | {"sensors": names}),
                text=TEXT if TEXT in frame.columns else None,
                source=(self.sources.events, self.sources.samples),
                notices=(),
                part_of=PartOf(self.times, self.marks),
            )
        except RowError as error:
            if ROW not in frame.columns:
                raise
            raise self.files.explained(error, int(frame[ROW][error.row])) from None

    def _joined(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The samples of all buckets."""
        try:
            return pl.concat(frames, how="diagonal_relaxed")
        except pl.exceptions.PolarsError:
            raise DataError(
                f"{self.sources.events}: some times of column '{self.options['time']}' have a time zone and others "
                "have none. All of them must be of one kind."
            ) from None

    def _all_notices(self, built: Sequence[SortedReadings], dropped: Mapping[str, int]) -> tuple[str, ...]:
        """The notices without repetition; those that count rows are about all of them."""
        counted = [*self.notices, *self.sensors.notices(self.sources.events)]
        if dropped.get("without a value"):
            counted.append(left_out_notice(self.sources.events, dropped["without a value"], self.files.total))
        of_buckets = [notice for one in built for notice in one.notices]
        if built[0].roles.label is not None:
            warn_of_ids(self._joined([one.samples for one in built])[built[0].roles.label], of_buckets)
        return tuple(dict.fromkeys([*counted, *of_buckets]))


def _filled(built: SortedReadings) -> NDArray[np.bool_]:
    return np.zeros(int(built.count.sum()), dtype=bool) if built.filled is None else built.filled
