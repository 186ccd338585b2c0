"""LongFrames: the result of an adapter, ready for `EventTable.from_frames`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl


@dataclass(frozen=True)
class LongFrames:
    """Readings with the columns sample, time, sensor and value, the samples, and options that the shape implies."""

    events: pl.DataFrame
    samples: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
