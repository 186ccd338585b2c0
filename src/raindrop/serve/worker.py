"""A worker: a separate process that holds the models and processes batches of jobs until its input ends.

It reads and writes messages (messages.py) on its standard input and output. It opens no socket and reads no files
except the models. If it dies, the service starts another one and repeats the requests.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, BinaryIO

import msgspec

from raindrop.serve.limits import Limits
from raindrop.serve.messages import LENGTH, MAX_MESSAGE, Batch, Hello, Replies, frame_message

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Start(msgspec.Struct):
    """The first message to a worker: what it serves."""

    models: dict[str, str]
    """The folder of each model, by name."""
    limits: dict[str, Any]
    key: str = ""
    """File with the key that the models must be signed with; empty for none."""
    unknown_sensors: str = "error"
    threads: int = 1
    stream: dict[str, Any] | None = None
    """Options of the stream, for the worker that holds it."""


def main() -> None:
    """Process batches until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the service decides when a worker stops
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the messages
    source = sys.stdin.buffer
    start = read_message(source, Start)
    if start is None:
        return
    answers = None
    try:
        answers = _prepare(start)
        hello = Hello(answers.cards())
    except Exception as error:
        hello = Hello(error=_sentence(error))
    _write(out, hello)
    if answers is None:
        return
    while (batch := read_message(source, Batch)) is not None:
        replies = answers.of_batch(batch.jobs)
        _write(out, Replies(replies, resident_bytes(), answers.live_samples, answers.gauges()))
    answers.close()


def _prepare(start: Start) -> Any:
    """Load the models and run each once: the first pass is slow."""
    os.environ.setdefault("OMP_NUM_THREADS", str(start.threads))
    import torch

    from raindrop.estimators import load
    from raindrop.serve.answers import Answers, Served

    torch.set_num_threads(start.threads)
    served = []
    for name, folder in start.models.items():
        estimator = load(folder, key=start.key or None)
        estimator.set_params(unknown_sensors=start.unknown_sensors, threads=start.threads, progress=False)
        served.append(Served(name, estimator))
    answers = Answers(served, Limits(**start.limits))
    if start.stream is not None:
        from raindrop.serve.live import LiveAnswers

        return LiveAnswers(answers, start.stream)
    answers.warm_up()
    return answers


def _sentence(error: Exception) -> str:
    from raindrop.errors import RaindropError, describe_failure
    from raindrop.serve.failures import place_of

    if isinstance(error, RaindropError):
        return str(error)
    return describe_failure(error) or f"The models cannot be loaded ({place_of(error)})."


def read_message(source: BinaryIO, kind: Any) -> Any:
    """The next message; None at the end of the input."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    if length > MAX_MESSAGE:
        raise ValueError("a message is too long")
    body = source.read(length)
    return None if len(body) < length else msgspec.msgpack.decode(body, type=kind)


def _write(out: BinaryIO, content: Any) -> None:
    out.write(frame_message(content))
    out.flush()


def resident_bytes() -> int:
    """The memory this process holds; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


if __name__ == "__main__":
    main()
