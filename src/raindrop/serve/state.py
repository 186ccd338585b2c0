"""The state of a stream as one safetensors file: arrays of readings, and JSON about the samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from raindrop.errors import DataError, first_line
from raindrop.files import atomic_file
from raindrop.serve.live_sample import LiveSample

STATE = "state.safetensors"
FORMAT = "raindrop stream 1"


@dataclass(frozen=True)
class State:
    """The saved state of a stream."""

    model: str
    """Identifies the model it belongs to."""
    settings: dict[str, Any]
    generation: int
    """The journal with what arrived after it."""
    offsets: dict[str, int]
    clock: str
    now: float
    sensors: list[str]
    live: dict[str, LiveSample]
    gone: dict[str, float]
    changed: list[str]

    def write(self, folder: Path) -> None:
        """Write it atomically: after a kill the folder has this state or the previous one."""
        live = list(self.live.values())
        about = {
            "format": FORMAT,
            "ids": list(self.live),
            "statics": [sample.statics for sample in live],
            "gone": list(self.gone),
            **{name: getattr(self, name) for name in ("model", "settings", "generation", "offsets", "clock", "now")},
            **{name: getattr(self, name) for name in ("sensors", "changed")},
        }
        arrays: dict[str, NDArray[Any]] = {
            "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
            "gone": np.array(list(self.gone.values()), dtype=np.float64),
        }
        for name in ("count", "cutoff", "reference", "arrived"):
            arrays[name] = np.array([getattr(sample, name) for sample in live], dtype=np.float64)
        for name, kind in (("time", np.float64), ("sensor", np.int32), ("value", np.float64)):
            parts = [getattr(sample, name)[: sample.count] for sample in live]
            arrays[name] = np.concatenate([np.zeros(0, dtype=kind), *parts])
        with atomic_file(folder / STATE) as partial:
            save_file(arrays | {"checksum": _checksum(arrays)}, partial)

    @classmethod
    def read(cls, folder: Path) -> State:
        """The state in a folder; raises if there is none or it is damaged."""
        path = folder / STATE
        if not path.is_file():
            raise DataError(
                f"{path}: there is no such file; a stream's state is written by Stream.save or Stream.open."
            )
        try:
            return cls._from_arrays(load_file(path))
        except Exception as error:  # safetensors, JSON and arrays raise different types
            raise DataError(
                f"{path}: the state of a stream cannot be read ({first_line(error)}); it is damaged, or another."
            ) from None

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> State:
        content = {name: array for name, array in arrays.items() if name != "checksum"}
        if not np.array_equal(arrays["checksum"], _checksum(content)):
            raise ValueError("its checksum does not fit")
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
        count = arrays["count"].astype(np.int64)
        stop = np.cumsum(count)
        if not len(arrays["time"]) == len(arrays["sensor"]) == len(arrays["value"]) == count.sum():
            raise ValueError("its numbers of readings do not agree")
        live = {}
        for at, (name, statics) in enumerate(zip(about["ids"], about["statics"], strict=True)):
            rows = slice(stop[at] - count[at], stop[at])
            sample = live[name] = LiveSample(statics=statics, count=int(count[at]))
            for which in ("cutoff", "reference", "arrived"):
                setattr(sample, which, float(arrays[which][at]))
            for which in ("time", "sensor", "value"):
                setattr(sample, which, arrays[which][rows].copy())
        gone = dict(zip(about["gone"], arrays["gone"].tolist(), strict=True))
        names = ("model", "settings", "generation", "offsets", "clock", "now", "sensors", "changed")
        return cls(**{name: about[name] for name in names}, live=live, gone=gone)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """SHA-256 of the arrays with their names and types."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
