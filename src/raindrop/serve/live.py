"""The worker's side of live samples: a stream in a folder, and its scores."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from raindrop.errors import ConfigError
from raindrop.serve.answers import Answers, Served
from raindrop.serve.failures import RequestError, as_request_error, place_of
from raindrop.serve.messages import Job, Reply, Watched
from raindrop.serve.state import State
from raindrop.serve.state_folder import StateFolder
from raindrop.serve.stream import Pushed, Stream
from raindrop.serve.tables import Notes

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LiveAnswers:
    """Handles pushes and returns scores."""

    def __init__(self, answers: Answers, options: dict[str, Any]):
        """options: the service's StreamOptions, and `sync`."""
        self.answers, self.options = answers, options
        self.model: Served = answers.served.get("samples") or next(iter(answers.served.values()))
        folder, estimator = Path(options["state"]), self.model.estimator
        adopt(folder, estimator)
        settings = {name: options[name] for name in ("max_samples", "lateness", "window")}
        self.stream = Stream.open(estimator, folder, sync=options["sync"], **settings)
        table = self.stream.table()
        self.counts: dict[str, int] = dict(zip(table.ids, table.count.tolist(), strict=True))

    def cards(self) -> list[dict[str, Any]]:
        """What the service needs to know to continue."""
        offsets = self.stream.offsets
        sources = [name.removeprefix("from ") for name in offsets if name.startswith("from ")]
        known = {"offset": self.stream.offset, "sources": sources, "samples": len(self.stream)}
        return [{"name": self.model.name, "stream": known}]

    @property
    def live_samples(self) -> int:
        """The number of live samples."""
        return len(self.stream)

    def gauges(self) -> list[Watched]:
        """Live samples have no gauges."""
        return []

    def close(self) -> None:
        """Save the stream."""
        self.stream.close()

    def of_batch(self, jobs: Sequence[Job]) -> list[Reply]:
        """A reply for each job, in order."""
        replies = []
        for job in jobs:
            try:
                replies.append(getattr(self, f"_{job.action}")(job))
            except Exception as error:
                failure = as_request_error(error)
                if isinstance(error, OSError) and error.errno in FULL:
                    failure = RequestError("no_space", "The disk is full, so nothing of this push was stored.")
                place = place_of(error) if failure.code == "internal" else ""
                replies.append(Reply(job.number, code=failure.code, message=failure.message, place=place))
        return replies

    def _push(self, job: Job) -> Reply:
        self._require_room(job)
        pushed = Pushed(self.stream.offsets.get(job.id, 0), skipped=True)
        with Notes() as notes:
            if job.edges > pushed.offset:
                pushed = self._store(job)
            self.counts[job.sample] = self.counts.get(job.sample, 0) + pushed.new
            reply = self._get(job, asdict(pushed))
        if notes:
            content = msgspec.json.decode(reply.body)
            reply.body = msgspec.json.encode(content | {"notes": notes})
        reply.readings = 0 if job.readings is None else len(job.readings.time)
        return reply

    def _store(self, job: Job) -> Pushed:
        if job.samples:
            self.stream.set_samples({"sample": [job.sample], **job.samples}, source="statics")
        if job.readings is None:
            return Pushed(job.edges)
        readings = {
            "sample": [job.sample] * len(job.readings.time),
            "time": job.readings.time,
            "sensor": job.readings.sensor,
            "value": job.readings.value,
        }
        return self.stream.push(readings, offset=job.edges, source=job.id)

    def _require_room(self, job: Job) -> None:
        """Raise if a sample, or all samples together, would have more readings than allowed."""
        if len(self.counts) > 2 * len(self.stream) + 100:  # drop the counts of samples that are no longer live
            self.counts = {name: count for name, count in self.counts.items() if name in self.stream}
        more = 0 if job.readings is None else len(job.readings.time)
        most = self.answers.limits.readings
        if self.counts.get(job.sample, 0) + more > most:
            raise RequestError(
                "too_large", f"A live sample has at most {most:,} readings; end it, or use --stream-window."
            )
        if sum(self.counts.values()) + more > self.options["max_readings"]:
            raise RequestError(
                "no_space", f"The live samples have {self.options['max_readings']:,} readings together; no more fit."
            )

    def _get(self, job: Job, pushed: dict[str, Any] | None = None) -> Reply:
        self._require_live(job.sample)
        content: dict[str, Any] = {"model": self.model.name, "run": self.model.run, "sample": job.sample}
        if pushed is not None:
            content["pushed"] = pushed
        count = self.counts[job.sample] = int(self.stream.table([job.sample]).count.sum())
        content["readings"] = count
        if self.model.kind == "samples" and count:
            frame = self.stream.scores([job.sample], coverage=job.coverage).frame()
            content["prediction"] = frame.drop("sample").to_dicts()[0]
        elif self.model.kind == "imputer" and count:
            content["filled"] = self.stream.fill([job.sample]).frame().drop("sample").to_dict(as_series=False)
        return Reply(job.number, body=msgspec.json.encode(content, enc_hook=str), samples=1)

    def _delete(self, job: Job) -> Reply:
        self._require_live(job.sample)
        self.stream.let_go([job.sample])
        self.counts.pop(job.sample, None)
        return Reply(job.number, body=msgspec.json.encode({"sample": job.sample, "live": False}), samples=1)

    def _require_live(self, sample: str) -> None:
        if sample not in self.stream:
            raise RequestError("not_found", "There is no live sample of this name; push readings of it first.")


def adopt(folder: Path, estimator: Any) -> None:
    """Let a new model continue with the live samples of the previous one; it must have the same sensors."""
    place = StateFolder(folder)
    if not place.exists:
        return
    state = place.read()
    with tempfile.TemporaryDirectory() as empty:
        own = State.read(Stream(estimator).save(empty)).model
    if state.model == own:
        return
    if tuple(state.sensors[: len(estimator.scaler_.sensors)]) != estimator.scaler_.sensors:
        raise ConfigError("The live samples belong to a model of other sensors. Give another folder (--stream-state).")
    replace(state, model=own).write(folder)
