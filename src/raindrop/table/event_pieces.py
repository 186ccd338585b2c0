"""Read files of readings of any size in pieces: the same frames as from `read_frame`, a part at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from raindrop.errors import DataError
from raindrop.table.frame_files import (
    HEAD_BYTES,
    TEXT_SUFFIXES,
    WINDOWS,
    CsvForm,
    has_decimal_commas,
    has_points,
    readable,
    with_decimal_points,
)

PIECE_BYTES = 48 << 20  # bytes of a CSV read at a time,
PIECE_ROWS = 1 << 21  # and rows of a Parquet file read at a time
MAX_LINES_OF_A_CELL = 1000
BYTES_PER_ROW = 24  # to estimate the number of rows of a CSV


def estimate_rows(paths: Sequence[Path]) -> int:
    """The approximate number of rows: exact for Parquet files, estimated from the size of CSV files."""
    rows = 0
    for path in paths:
        if path.suffix.lower() in TEXT_SUFFIXES:
            rows += path.stat().st_size // BYTES_PER_ROW
        else:
            rows += _parquet_rows(path)
    return rows


def pieces(path: Path, columns: Sequence[str], notices: list[str]) -> Iterator[pl.DataFrame]:
    """The rows of a file, a piece at a time, with those of these columns that it has; a CSV as text."""
    if path.suffix.lower() in TEXT_SUFFIXES:
        yield from _csv_pieces(path, columns, notices)
        return
    total = _parquet_rows(path)
    with readable(path, "Parquet"):
        known = [name for name in columns if name in pl.read_parquet_schema(path)]
        scan = pl.scan_parquet(path, glob=False).select(known)
    for start in range(0, total, PIECE_ROWS):
        with readable(path, "Parquet"):
            piece = scan.slice(start, PIECE_ROWS).collect()
        yield piece


def column_names(path: Path) -> list[str]:
    """The columns of a file."""
    if path.suffix.lower() in TEXT_SUFFIXES:
        with readable(path, "CSV"):
            text = _Text(path)
            header, _ = _split_header(next(iter(text), ""))
            return text.form.read(header.encode()).columns
    with readable(path, "Parquet"):
        return list(pl.read_parquet_schema(path))


def _parquet_rows(path: Path) -> int:
    with readable(path, "Parquet"):
        return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())


def _csv_pieces(path: Path, columns: Sequence[str], notices: list[str]) -> Iterator[pl.DataFrame]:
    """A CSV cut between rows. Its format is guessed from its beginning, as for a file that is read whole."""
    header, commas, points = "", set[str](), set[str]()
    with readable(path, "CSV"):
        text = _Text(path)
        for rows in text:
            first_line, body = ("", rows) if header else _split_header(rows)
            header = header or first_line
            frame = text.form.read((header + body).encode())
            frame = frame.select(name for name in columns if name in frame.columns)
            if text.form.separator != ",":
                points |= {name for name in frame.columns if has_points(frame[name])}
                commas |= {name for name in frame.columns if has_decimal_commas(frame[name])}
                frame = with_decimal_points(frame, sorted(commas))
            yield frame
    both = sorted(commas & points)
    if both:
        raise DataError(
            f"{path}: column '{both[0]}' has numbers with a decimal comma and others with a decimal point.\n"
            "Write all of them the same way."
        )
    notices += text.form.notices(path, sorted(commas))


class _Text:
    """The text of a CSV in pieces of whole rows."""

    def __init__(self, path: Path):
        self.path = path
        with open(path, "rb") as file:
            self.form = CsvForm.guess(file.read(HEAD_BYTES))

    def __iter__(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.form.encoding or "utf-8")()
        rest, plain, read = "", True, b"-"
        with open(self.path, "rb") as file:
            while read:
                read = file.read(PIECE_BYTES)
                try:
                    rest += decoder.decode(read, final=not read)
                except UnicodeDecodeError:
                    if not plain or self.form.encoding:
                        raise
                    self.form = replace(self.form, encoding=WINDOWS)  # so far all ASCII, the same in both
                    decoder = codecs.getincrementaldecoder(WINDOWS)("replace")
                    rest += decoder.decode(read, final=not read)
                plain = plain and read.isascii()
                end = _end_of_rows(rest) if read else len(rest)
                if end:
                    yield rest[:end]
                rest = rest[end:]


def _end_of_rows(text: str) -> int:
    """The position after the last line break outside quotes: the number of quotes before it is even."""
    last = end = text.rfind("\n")
    quotes = text.count('"', 0, max(end, 0))
    for _ in range(MAX_LINES_OF_A_CELL):
        if end < 0:
            break
        if quotes % 2 == 0:
            return end + 1
        before = text.rfind("\n", 0, end)
        quotes -= text.count('"', max(before, 0), end)
        end = before
    return last + 1  # the quote is never closed: treat each line as a row


def _split_header(text: str) -> tuple[str, str]:
    """The first row, with its line break, and the others."""
    end = 0
    while (end := text.find("\n", end) + 1) and text.count('"', 0, end) % 2:
        pass
    return (text[:end], text[end:]) if end else (text, "")
