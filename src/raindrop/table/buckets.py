"""Readings partitioned into buckets on disk by a hash of their sample, so that each sample is in one bucket."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from raindrop.errors import DataError

ROW = "raindrop row"
"""The column of a bucket with the row number over all files."""


class Buckets:
    """Append-only files in a folder; each holds a sequence of frames, each preceded by its length."""

    def __init__(self, folder: Path, number: int):
        folder.mkdir()
        self.folder, self.number = folder, number
        self.rows = [0] * number

    def of(self, ids: pl.Series) -> pl.Series:
        """The bucket of each sample id."""
        return ids.cast(pl.String).hash(seed=0) % self.number

    def add(self, frame: pl.DataFrame, ids: pl.Series) -> None:
        """Add the rows of a frame to the buckets of their sample `ids`."""
        for (bucket,), rows in (
            frame.with_columns(self.of(ids).alias("bucket"))
            .partition_by("bucket", as_dict=True, include_key=False, maintain_order=True)
            .items()
        ):
            content = io.BytesIO()
            rows.write_ipc(content, compression="lz4")
            with open(self._path(int(bucket)), "ab") as file:
                file.write(len(content.getbuffer()).to_bytes(8, "little"))
                file.write(content.getbuffer())
            self.rows[int(bucket)] += len(rows)

    def read(self, bucket: int, columns: list[str] | None = None) -> pl.DataFrame | None:
        """The rows of a bucket, in the order in which they were added; None if there are none."""
        frames = list(self._frames(bucket, columns))
        if len(frames) < 2:
            return frames[0] if frames else None
        try:
            return pl.concat(frames, how="diagonal_relaxed", rechunk=True)
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"The files cannot be one table ({str(error).splitlines()[0]}).\n"
                "The same column must have the same type in all of them."
            ) from None

    def remove(self, bucket: int) -> None:
        """Delete a bucket that is no longer needed."""
        self._path(bucket).unlink(missing_ok=True)

    def _frames(self, bucket: int, columns: list[str] | None) -> Iterator[pl.DataFrame]:
        if not self._path(bucket).exists():
            return
        with open(self._path(bucket), "rb") as file:
            while length := file.read(8):
                yield pl.read_ipc(io.BytesIO(file.read(int.from_bytes(length, "little"))), columns=columns)

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{bucket}.frames"
