"""Read CSV and Parquet files. A CSV's separator, decimal sign and encoding are guessed, and reported in notices."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.errors import DataError, suggest
from raindrop.table.cells import clean_columns, infer_type

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
HEAD_BYTES = 2**16
WINDOWS = "cp1252"
DECIMAL_COMMA = r"^\s*[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?\s*$"
DECIMAL_POINT = r"^\s*[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?\s*$"


@dataclass(frozen=True)
class FileFrame:
    """The content of a file, and the guesses made to read it."""

    frame: pl.DataFrame
    notices: tuple[str, ...] = ()
    is_text: bool = False
    """Whether every column was read as text, so that text among numbers can be reported with its row."""


def read_frame(path: Path, *, all_text: bool = False, ids: Collection[str] = ("sample",)) -> FileFrame:
    """A Parquet or CSV file. In a CSV the `ids` are read as text (007 is not 7), with `all_text` every column is."""
    if path.suffix.lower() not in TEXT_SUFFIXES:
        with readable(path, "Parquet"):
            return FileFrame(pl.read_parquet(path, glob=False))
    notices: list[str] = []
    with readable(path, "CSV"):
        frame = _read_csv(path, notices)
    if all_text:
        return FileFrame(frame, tuple(notices), is_text=True)
    frame = clean_columns(frame, [name for name in frame.columns if name not in ids], str(path), notices)
    frame = frame.with_columns(infer_type(frame[name]) for name in frame.columns if name not in ids)
    return FileFrame(frame, tuple(notices))


def read_frames(paths: Sequence[Path]) -> FileFrame:
    """Files of readings with the same columns as one frame, CSV as text so that text among numbers has its row."""
    read = [read_frame(path, all_text=True) for path in paths]
    if len(read) == 1:
        return read[0]
    notices = tuple(notice for each in read for notice in each.notices)
    return FileFrame(pl.concat([each.frame for each in read]), notices, is_text=any(each.is_text for each in read))


def find_file(folder: Path, name: str) -> Path:
    """The path of `name`.parquet or `name`.csv in a folder, whichever exists; `name`.parquet if neither does."""
    parquet, csv = folder / f"{name}.parquet", folder / f"{name}.csv"
    if parquet.exists() and csv.exists():
        raise DataError(f"{folder}: both {parquet.name} and {csv.name} exist; remove one of them.")
    return csv if csv.exists() else parquet


def require_file(path: Path) -> Path:
    """The path; raises unless it is a file of a supported type."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file.")
    if path.suffix.lower() not in (*SUFFIXES, ".npy", ".npz"):
        raise DataError(f"{path}: files of this kind cannot be read; {suggest(path.suffix, (*SUFFIXES, '.npz'))}")
    return path


@contextmanager
def readable(path: Path, kind: str) -> Iterator[None]:
    """Turn any exception of a reader on a damaged file into one message."""
    try:
        yield
    except BaseException as error:
        known = (pl.exceptions.PolarsError, OSError, UnicodeError)
        if not isinstance(error, known) and type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{path}: not a readable {kind} file; it is empty, damaged, truncated or of another kind "
            f"({str(error).splitlines()[0]}).\nExport or copy it again."
        ) from None


@dataclass(frozen=True)
class CsvForm:
    """The format of a CSV, guessed from its beginning."""

    encoding: str | None
    """None means UTF-8."""
    separator: str

    @classmethod
    def guess(cls, head: bytes) -> CsvForm:
        """From the first bytes of a file."""
        encoding = _guess_encoding(head)
        return cls(encoding, _guess_separator(head.decode(encoding or "utf-8", errors="replace")))

    def read(self, source: Path | bytes) -> pl.DataFrame:
        """All columns as text, with stripped names. Bytes are UTF-8, whatever the encoding."""
        encoding = self.encoding if isinstance(source, Path) and self.encoding else "utf8"
        options: dict[str, Any] = {"glob": False, "infer_schema": False, "separator": self.separator}
        frame = pl.read_csv(source, encoding=encoding, **options)
        names = [name.strip().removeprefix("\ufeff") for name in frame.columns]
        if len(set(names)) == len(names):
            frame.columns = names
        return frame

    def notices(self, path: Path, with_commas: Sequence[str]) -> list[str]:
        """The guesses, one sentence each; `with_commas` are the columns whose numbers have a decimal comma."""
        said = [f"{path}: the text is not UTF-8; read as {self.encoding}."] if self.encoding else []
        if self.separator != ",":
            said.append(f"{path}: the columns are separated by {SEPARATORS[self.separator]}.")
        if with_commas:
            listed = ", ".join(f"'{name}'" for name in with_commas)
            said.append(f"{path}: numbers with a decimal comma, such as 36,5, in {listed}.")
        return said


def _read_csv(path: Path, notices: list[str]) -> pl.DataFrame:
    """All columns as text."""
    with open(path, "rb") as file:
        form = CsvForm.guess(file.read(HEAD_BYTES))
    try:
        frame = form.read(path)
    except pl.exceptions.PolarsError as error:
        if form.encoding or "utf-8" not in str(error).lower():
            raise
        form = replace(form, encoding=WINDOWS)
        frame = form.read(path)
    with_commas: list[str] = []
    if form.separator != ",":
        with_commas = [
            name for name in frame.columns if has_decimal_commas(frame[name]) and not has_points(frame[name])
        ]
        frame = with_decimal_points(frame, with_commas)
    notices += form.notices(path, with_commas)
    return frame


def _guess_encoding(head: bytes) -> str | None:
    """UTF-16 if there is a byte order mark, Windows-1252 if the text is not UTF-8; None for UTF-8."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # a character cut off at the end is not an error
    except UnicodeDecodeError:
        return WINDOWS
    return None


def _guess_separator(head: str) -> str:
    """The most frequent separator outside quotes in the first line; a comma if there is none."""
    line = next(iter(head.splitlines()), "")
    outside = "".join(line.split('"')[::2])
    return max(SEPARATORS, key=outside.count)


def has_decimal_commas(column: pl.Series) -> bool:
    """Whether some text is a number such as 36,5."""
    return bool(column.str.contains(DECIMAL_COMMA).any())


def has_points(column: pl.Series) -> bool:
    """Whether some text is a number such as 36.5."""
    return bool(column.str.contains(DECIMAL_POINT).any())


def with_decimal_points(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Numbers such as 36,5 as 36.5 in these columns."""
    commas = {name: frame[name].str.contains(DECIMAL_COMMA).fill_null(False) for name in names}
    return frame.with_columns(
        frame[name].str.replace(",", ".", literal=True).zip_with(found, frame[name]) for name, found in commas.items()
    )
