"""Hostile inputs for streams: odd pushes, and damaged folders of their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hostile import CELLS, VALUES, Home, Rng, damage, pick

import raindrop as rd
from raindrop.errors import RaindropError

COLUMNS = ("sample", "time", "sensor", "value")


def odd_push(rng: Rng, home: Home) -> str:
    """Columns with odd cells, of unequal lengths, of wrong types, or gone; a refused push changes nothing."""
    stream = rd.Stream(home.model, lateness=float(rng.choice([1.0, 100.0])))
    ids = list(home.table.ids[:3])
    stream.push(home.table[:3].events())
    before = stream.scores(ids).probabilities
    columns: dict[str, Any] = {
        "sample": [pick(ids, rng) for _ in range(4)],
        "time": rng.uniform(0, 50, 4).tolist(),
        "sensor": [pick(home.table.sensors, rng) for _ in range(4)],
        "value": rng.normal(size=4).tolist(),
    }
    for _ in range(int(rng.integers(1, 4))):
        name = pick(COLUMNS, rng)
        if name not in columns:
            continue
        how = rng.integers(4)
        if how == 0:
            columns.pop(name)
        elif how == 1:
            columns[name] = columns[name][: int(rng.integers(4))]
        elif how == 2:
            columns[name] = [pick([*CELLS, *VALUES], rng) for _ in columns[name]]
        else:
            columns[name][int(rng.integers(len(columns[name]) or 1)) :] = [pick([*VALUES, *CELLS], rng)]
    try:
        stream.push(columns, offset=pick([None, 0, 1, -1, 2**70, "x"], rng))
    except RaindropError:
        same = np.array_equal(stream.scores(ids).probabilities, before)
        if not same:
            return "a refused push changed a score"
        raise
    stream.scores(ids)
    return ""


def stream_folder(rng: Rng, home: Home) -> str:
    """A file of the folder damaged. A torn end of the journal is what a kill leaves; a state is whole or refused."""
    source = home.folder / "stream"
    if not source.exists():
        with rd.Stream.open(home.model, source, sync=False) as stream:
            stream.set_samples(home.table[:3].samples)
            stream.push(home.table[:3].events())
        with rd.Stream.open(home.model, source, sync=False) as stream:
            stream.push(home.table[3:6].events())
            stream._folder = None  # a kill: the journal stays
    folder = home.fresh(source)
    path = pick(sorted(path for path in folder.rglob("*") if path.is_file()), rng)
    path.write_bytes(damage(path.read_bytes(), rng))
    restored = rd.Stream.restore(home.model, folder)
    ids = [name for name in home.table.ids[:3] if name in restored.samples]
    found = restored.scores(ids).probabilities
    expected = home.expected[: len(ids)]
    if "journal" not in path.name and (len(ids) < 3 or not np.allclose(found, expected, atol=1e-6)):
        return f"damage to {path.name} changed a score"
    return ""


STREAM_ENTRIES: dict[str, Callable[[Rng, Home], str]] = {
    "stream, pushed": odd_push,
    "stream folder, damaged": stream_folder,
}
