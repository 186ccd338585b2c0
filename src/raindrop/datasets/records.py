"""Parse many small text files as one: a frame per file would cost a hundred times more than its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.datasets.archives import Member
from raindrop.errors import DataError

BLOCK = 1 << 24  # bytes per pass when separators are counted
NEWLINE = ord("\n")


@dataclass
class Records:
    """The lines of many files with the same columns."""

    columns: Mapping[str, Any]
    """Names and polars types of the columns, in file order."""
    separator: str
    has_header: bool = True
    members: list[Member] = field(default_factory=list)
    """The files, without their content."""
    bodies: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, member: Member) -> None:
        """Add a file, whose header must match the columns."""
        body = member.content
        if self.has_header:
            header, _, body = body.partition(b"\n")
            names = header.decode("utf-8", "replace").strip().split(self.separator)
            if names != list(self.columns):
                raise DataError(
                    f"{member.path}: the first line is '{_shorten(names, self.separator)}', but it must be "
                    f"'{_shorten(list(self.columns), self.separator)}'.\nThis file is of another kind or damaged."
                )
        body = body.rstrip(b"\r\n")
        self.members.append(Member(member.path, member.name, b""))
        self.counts.append(body.count(b"\n") + 1 if body else 0)
        if body:
            self.bodies += [body, b"\n"]
        self.size += len(body)

    def frame(self) -> pl.DataFrame:
        """All lines as rows; the column `file` is the position of their file in `members`.

        A line with missing columns, or with text in a numeric column (`NaN` is allowed), raises a DataError that names
        the file and the line.
        """
        text = b"".join(self.bodies)
        self.bodies.clear()
        file = np.repeat(np.arange(len(self.members), dtype=np.int32), self.counts)
        if not len(file):
            return pl.DataFrame(schema={**self.columns, "file": pl.Int32})
        self._check_separators(text)
        try:
            rows = self._parse(text, self.columns)
        except pl.exceptions.PolarsError:  # it does not say where: parse as text to find the line
            rows = self._parse(text, dict.fromkeys(self.columns, pl.String))
        for name, kind in self.columns.items():
            if kind != pl.String:
                number = rows[name].cast(kind, strict=False)
                if number.null_count():
                    wrong = int(number.is_null().arg_max() or 0)
                    self._reject_line(text, wrong, number.null_count(), f"{name} is not a number")
                rows = rows.with_columns(number)
        return rows.with_columns(file=file)

    def _parse(self, text: bytes, kinds: Mapping[str, Any]) -> pl.DataFrame:
        return pl.read_csv(
            text,
            has_header=False,
            separator=self.separator,
            quote_char=None,
            schema=dict(kinds),
            encoding="utf8-lossy",
        ).with_columns(pl.col(pl.String).fill_null(""))

    def _check_separators(self, text: bytes) -> None:
        """Raise if a line has too few or too many columns; polars would fill short lines with nulls."""
        codes = np.frombuffer(text, dtype=np.uint8)
        expected, line, carried_over = len(self.columns) - 1, 0, 0
        wrong: list[NDArray[np.int64]] = []
        for begin in range(0, len(codes), BLOCK):
            block = codes[begin : begin + BLOCK]
            ends = np.flatnonzero(block == NEWLINE)
            separators = np.flatnonzero(block == ord(self.separator))
            before_end = np.searchsorted(separators, ends)
            per_line = np.diff(before_end, prepend=0)
            if len(per_line):
                per_line[0] += carried_over
                carried_over = len(separators) - int(before_end[-1])
            else:
                carried_over += len(separators)
            wrong.append(np.flatnonzero(per_line != expected) + line)
            line += len(ends)
        lines = np.concatenate(wrong)
        if len(lines):
            self._reject_line(text, int(lines[0]), len(lines), f"there must be {expected} '{self.separator}'")

    def _reject_line(self, text: bytes, line: int, number: int, fault: str) -> None:
        content = text.split(b"\n", line + 1)[line].decode("utf-8", "replace")
        raise self._line_error(line, content, number, fault)

    def reject_rows(self, rows: pl.DataFrame, wrong: pl.Series, fault: str) -> None:
        """Raise if any row of `frame()` is `wrong`; both have one entry per line, in order."""
        if wrong.any():
            line = int(wrong.arg_max() or 0)
            content = self.separator.join(str(rows[name][line]) for name in rows.columns if name in self.columns)
            raise self._line_error(line, content, int(wrong.sum()), fault)

    def _line_error(self, line: int, content: str, number: int, fault: str) -> DataError:
        """The error that names the file and the line of the first fault."""
        last = np.cumsum(self.counts)
        file = int(np.searchsorted(last, line, side="right"))
        within = line - int(last[file] - self.counts[file]) + 1 + self.has_header
        return DataError(
            f"{self.members[file].path}: line {within:,} is broken, {fault}: '{content[:80]}' "
            f"(so are {number:,} of the {int(last[-1]):,} lines read with it).\n"
            "Published files have no such line; download or copy this file again."
        )


def batch_records(
    members: Iterable[Member], columns: Mapping[str, Any], separator: str, *, size: int = 48 << 20
) -> Iterator[Records]:
    """The files in batches of about `size` bytes."""
    records = Records(columns, separator)
    for member in members:
        records.add(member)
        if records.size >= size:
            yield records
            records = Records(columns, separator)
    if records.members:
        yield records


def _shorten(names: Sequence[str], separator: str) -> str:
    text = separator.join(names)
    return text if len(text) <= 60 else text[:57] + "..."
