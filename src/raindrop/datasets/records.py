"""Many small text files parsed as one, because a frame per file costs a hundred times more than its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.datasets.archives import Member
from raindrop.errors import DataError

BLOCK = 1 << 24  # bytes looked at in one go when separators are counted
NEWLINE = ord("\n")


@dataclass
class Records:
    """The lines of many files with the same columns."""

    columns: Mapping[str, Any]
    """Names and polars types of the columns, in the order of the file."""
    separator: str
    has_header: bool = True
    members: list[Member] = field(default_factory=list)
    """The files, without their content."""
    bodies: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, member: Member) -> None:
        """Take one file, after a look at its header."""
        body = member.content
        if self.has_header:
            header, _, body = body.partition(b"\n")
            names = header.decode("utf-8", "replace").strip().split(self.separator)
            if names != list(self.columns):
                raise DataError(
                    f"{member.where}: the first line is '{_short(names, self.separator)}', but it must be "
                    f"'{_short(list(self.columns), self.separator)}'.\nThis file is of another kind or damaged."
                )
        body = body.rstrip(b"\r\n")
        self.members.append(Member(member.where, member.name, b""))
        self.counts.append(body.count(b"\n") + 1 if body else 0)
        if body:
            self.bodies += [body, b"\n"]
        self.size += len(body)

    def frame(self) -> pl.DataFrame:
        """All lines as rows, with `file`: which of `members` each is from.

        Every line has every column, and what should be a number is one (`NaN` counts as one); otherwise a DataError
        names the file and the line.
        """
        text = b"".join(self.bodies)
        self.bodies.clear()
        file = np.repeat(np.arange(len(self.members), dtype=np.int32), self.counts)
        if not len(file):
            return pl.DataFrame(schema={**self.columns, "file": pl.Int32})
        self._check_separators(text)
        try:
            rows = self._parse(text, self.columns)
        except pl.exceptions.PolarsError:  # without saying where: read as text, to find the line
            rows = self._parse(text, dict.fromkeys(self.columns, pl.String))
        for name, kind in self.columns.items():
            if kind != pl.String:
                number = rows[name].cast(kind, strict=False)
                if number.null_count():
                    wrong = int(number.is_null().arg_max() or 0)
                    self._refuse(text, wrong, number.null_count(), f"{name} is not a number")
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
        """Polars fills short lines with nulls; here they are errors."""
        codes = np.frombuffer(text, dtype=np.uint8)
        expected, line, carried = len(self.columns) - 1, 0, 0
        wrong: list[NDArray[np.int64]] = []
        for begin in range(0, len(codes), BLOCK):
            block = codes[begin : begin + BLOCK]
            ends = np.flatnonzero(block == NEWLINE)
            separators = np.flatnonzero(block == ord(self.separator))
            until = np.searchsorted(separators, ends)
            found = np.diff(until, prepend=0)
            if len(found):
                found[0] += carried
                carried = len(separators) - int(until[-1])
            else:
                carried += len(separators)
            wrong.append(np.flatnonzero(found != expected) + line)
            line += len(ends)
        lines = np.concatenate(wrong)
        if len(lines):
            self._refuse(text, int(lines[0]), len(lines), f"there must be {expected} '{self.separator}'")

    def _refuse(self, text: bytes, line: int, number: int, fault: str) -> None:
        content = text.split(b"\n", line + 1)[line].decode("utf-8", "replace")
        raise self._broken(line, content, number, fault)

    def refuse_rows(self, rows: pl.DataFrame, wrong: pl.Series, fault: str) -> None:
        """Raise if any row of `frame()` (all of them, in order) is `wrong`."""
        if wrong.any():
            line = int(wrong.arg_max() or 0)
            content = self.separator.join(str(rows[name][line]) for name in rows.columns if name in self.columns)
            raise self._broken(line, content, int(wrong.sum()), fault)

    def _broken(self, line: int, content: str, number: int, fault: str) -> DataError:
        """Name the file and the line of the first fault."""
        last = np.cumsum(self.counts)
        file = int(np.searchsorted(last, line, side="right"))
        within = line - int(last[file] - self.counts[file]) + 1 + self.has_header
        return DataError(
            f"{self.members[file].where}: line {within:,} is broken, {fault}: '{content[:80]}' "
            f"(so are {number:,} of the {int(last[-1]):,} lines read with it).\n"
            "Published files have no such line; download or copy this file again."
        )


def in_batches(
    found: Iterable[Member], columns: Mapping[str, Any], separator: str, *, size: int = 48 << 20
) -> Iterator[Records]:
    """The files of `found`, as many at a time as hold about `size` bytes."""
    records = Records(columns, separator)
    for member in found:
        records.add(member)
        if records.size >= size:
            yield records
            records = Records(columns, separator)
    if records.members:
        yield records


def _short(names: Sequence[str], separator: str) -> str:
    text = separator.join(names)
    return text if len(text) <= 60 else text[:57] + "..."
