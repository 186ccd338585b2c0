"""Bounds of large tables made small, so that a few readings are worked on as millions would be."""

from __future__ import annotations

import pytest

from raindrop.table import blocks, event_pieces, parts, prepare


def make_small(patch: pytest.MonkeyPatch, *, large: int = 60, block: int = 25, ranges: int = 3) -> None:
    """Tables of more than `large` readings are large, and worked on in blocks of about `block`."""
    patch.setattr(blocks, "LARGE", large)
    patch.setattr(blocks, "BLOCK", block)
    patch.setattr(blocks, "NEARBY", 2)
    patch.setattr(blocks, "RANGES", ranges)
    patch.setattr(parts, "BLOCK", block)


def read_in_small_pieces(patch: pytest.MonkeyPatch) -> None:
    """Files of more than a few rows are sorted into buckets, from pieces of a few rows."""
    patch.setattr(prepare, "BUCKET_ROWS", 6)
    patch.setattr(event_pieces, "PIECE_ROWS", 5)
    patch.setattr(event_pieces, "PIECE_BYTES", 90)
