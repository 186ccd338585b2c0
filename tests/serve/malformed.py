"""Malformed bodies, as many as one likes: damaged copies of good requests, wrong types, and plain noise."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 2**70, 10**400, "", "\u0000", "NaN", "a" * 300, [], {}, [[]], [None],
    {"a": {"b": []}}, float(2**53), "2026-13-45", "=1+1", "../../etc/passwd", "\ud7ff",
)  # fmt: skip


def good_body(rng: random.Random) -> dict[str, Any]:
    """A request that is answered with 200."""
    number = rng.randint(1, 6)
    return {
        "readings": {
            "sample": [rng.choice("ab") for _ in range(number)],
            "time": [float(at) for at in range(number)],
            "sensor": [rng.choice(("heart rate", "pressure")) for _ in range(number)],
            "value": [rng.uniform(-5, 5) for _ in range(number)],
        }
    }


def malformed(seed: int) -> Iterator[bytes]:
    """Bodies without end; most of them are wrong in some way, and which is the same for the same seed."""
    rng = random.Random(seed)
    while True:
        kind = rng.randrange(6)
        if kind == 0:
            yield rng.randbytes(rng.randint(0, 300))
            continue
        body = good_body(rng)
        if kind == 1:  # a wrong thing somewhere
            _put(rng, body, rng.choice(ODD))
            yield json.dumps(body).encode()
        elif kind == 2:  # a piece is missing, or there is one too many
            column = rng.choice(list(body["readings"]))
            if rng.random() < 0.5:
                del body["readings"][column]
            else:
                body["readings"][column].append(rng.choice(ODD))
            yield json.dumps(body).encode()
        elif kind == 3:  # cut off
            text = json.dumps(body).encode()
            yield text[: rng.randrange(len(text))]
        elif kind == 4:  # single bytes are changed
            text = bytearray(json.dumps(body).encode())
            for _ in range(rng.randint(1, 5)):
                text[rng.randrange(len(text))] = rng.randrange(256)
            yield bytes(text)
        else:  # deep, or numbers that JSON does not have
            yield rng.choice((b"[" * rng.randint(1, 5000), b'{"a":' * rng.randint(1, 3000), b'{"readings":NaN}',
                              b'{"readings":{"time":[-Infinity],"sensor":["a"],"value":[1]}}'))  # fmt: skip


def _put(rng: random.Random, body: dict[str, Any], thing: Any) -> None:
    place = rng.randrange(4)
    if place == 0:
        body[rng.choice(("readings", "samples", "coverage", "explain", "other"))] = thing
    elif place == 1:
        body["readings"][rng.choice(list(body["readings"]))] = thing
    else:
        column = body["readings"][rng.choice(list(body["readings"]))]
        column[rng.randrange(len(column))] = thing
