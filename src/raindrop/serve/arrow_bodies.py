"""Check the structure of an Arrow IPC stream before a reader allocates memory for it.

A stream is a sequence of messages: a length, a flatbuffer that describes the message, and its body. Only the fields
that determine how much a reader would allocate are read here: numbers of rows, and the positions of the buffers in a
body. Compressed buffers are rejected, so a small body cannot expand into a large one.
"""

from __future__ import annotations

import struct

from raindrop.serve.failures import RequestError
from raindrop.serve.limits import Limits

CONTINUATION = 0xFFFFFFFF
SCHEMA, DICTIONARY, RECORDS = 1, 2, 3  # types of messages
MAX_MESSAGES = 10_000


class Damaged(Exception):
    """The bytes are not an Arrow stream."""


def check_arrow(body: bytes, limits: Limits) -> int:
    """The number of rows of an Arrow IPC stream; raises if it is damaged, compressed or too large."""
    try:
        return _check(memoryview(body), limits)
    except (Damaged, struct.error, IndexError, ValueError) as error:
        raise RequestError(
            "bad_request",
            f"readings: not a sound Arrow IPC stream ({error}). Write one with polars' write_ipc_stream(compression="
            "'uncompressed') or with pyarrow.ipc.new_stream.",
        ) from None


def _check(body: memoryview, limits: Limits) -> int:
    rows, at, messages, schema_seen = 0, 0, 0, False
    while at + 4 <= len(body):
        (length,) = struct.unpack_from("<I", body, at)
        at += 4
        if length == CONTINUATION:
            (length,) = struct.unpack_from("<I", body, at)
            at += 4
        if length == 0:
            break
        if length % 4 or at + length > len(body):
            raise Damaged("a message is longer than the body")
        message = Table(body[at : at + length])
        at += length
        kind, size = message.byte(1), message.long(3)
        if size < 0 or at + size > len(body):
            raise Damaged("the content of a message is longer than the body")
        messages += 1
        if messages > MAX_MESSAGES:
            raise Damaged(f"it has more than {MAX_MESSAGES:,} messages")
        if kind == SCHEMA:
            schema_seen = True
        elif kind in (DICTIONARY, RECORDS) and schema_seen:
            records = message.table(2)
            records = records.table(1) if kind == DICTIONARY else records
            rows += _check_records(records, size)
        else:
            raise Damaged("a message of an unknown kind, or without a schema before it")
        if rows > limits.readings:
            raise RequestError(
                "too_large", f"The request has more than {limits.readings:,} readings. Send fewer at a time."
            )
        at += size
    if not schema_seen:
        raise Damaged("there is no schema")
    return rows


def _check_records(records: Table, size: int) -> int:
    """The number of rows of a record batch; raises unless its buffers lie within its body of `size` bytes."""
    if records.present(3):
        raise RequestError(
            "unsupported_format", "readings: compressed Arrow buffers are not read. Write it uncompressed."
        )
    rows = records.long(0)
    if rows < 0:
        raise Damaged("a negative number of rows")
    for length, nulls in records.pairs(1):
        if not 0 <= nulls <= length or length > max(rows, 0):
            raise Damaged("a column has another length than its batch")
    for offset, length in records.pairs(2):
        if offset < 0 or length < 0 or offset + length > size:
            raise Damaged("a buffer lies outside of its message")
    return rows


class Table:
    """A table of a flatbuffer; fields are looked up by number, and every position is checked to lie inside."""

    def __init__(self, buffer: memoryview, place: int | None = None):
        self.buffer = buffer
        self.place = self._read("<I", 0) if place is None else place
        self.fields = self.place - self._read("<i", self.place)
        self.size = self._read("<H", self.fields)

    def _read(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self.buffer):
            raise Damaged("a description points outside of itself")
        return int(struct.unpack_from(form, self.buffer, at)[0])

    def _offset(self, field: int) -> int:
        entry = 4 + 2 * field
        return self._read("<H", self.fields + entry) if entry + 2 <= self.size else 0

    def present(self, field: int) -> bool:
        """Whether the field is present."""
        return self._offset(field) != 0

    def byte(self, field: int) -> int:
        """A field of one byte; 0 if it is absent."""
        return self._read("<B", self.place + self._offset(field)) if self.present(field) else 0

    def long(self, field: int) -> int:
        """A field of eight bytes; 0 if it is absent."""
        return self._read("<q", self.place + self._offset(field)) if self.present(field) else 0

    def table(self, field: int) -> Table:
        """A field that is a table."""
        if not self.present(field):
            raise Damaged("a message has no content")
        at = self.place + self._offset(field)
        return Table(self.buffer, at + self._read("<I", at))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A field that is a list of pairs of eight-byte numbers."""
        if not self.present(field):
            return []
        at = self.place + self._offset(field)
        at += self._read("<I", at)
        number = self._read("<I", at)
        if number > 10_000 or at + 4 + 16 * number > len(self.buffer):
            raise Damaged("a description has too many parts")
        flat = struct.unpack_from(f"<{2 * number}q", self.buffer, at + 4)
        return list(zip(flat[::2], flat[1::2], strict=True))
