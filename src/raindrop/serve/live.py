"""Live samples as their worker sees them: a stream, its scores, and its folder on the disk."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from raindrop.serve.answers import Answers, Served
from raindrop.serve.failures import RequestError, as_request_error, place_of
from raindrop.serve.messages import Job, Reply, Watched
from raindrop.serve.stream import Pushed, Stream
from raindrop.serve.tables import Notes


class LiveAnswers:
    """Pushes in, scores out."""

    def __init__(self, answers: Answers, options: dict[str, Any]):
        """options: those of the service's StreamOptions."""
        self.answers, self.options = answers, options
        self.model: Served = answers.served.get("samples") or next(iter(answers.served.values()))
        self.folder = Path(options["state"])
        estimator = self.model.estimator
        if self.folder.exists():
            self.stream = Stream.restore(self.folder, estimator)
        else:
            own = {name: options[name] for name in ("max_samples", "lateness", "window")}
            self.stream = Stream(estimator, **own)
        table = self.stream.table()
        self.counts: dict[str, int] = dict(zip(table.ids, table.count.tolist(), strict=True))

    def cards(self) -> list[dict[str, Any]]:
        """What the service must know to go on."""
        offsets = self.stream.offsets
        sources = [name.removeprefix("from ") for name in offsets if name.startswith("from ")]
        known = {"offset": offsets.get("", 0), "sources": sources, "samples": len(self.stream)}
        return [{"name": self.model.name, "stream": known}]

    @property
    def live_samples(self) -> int:
        """How many samples are live."""
        return len(self.stream)

    def gauges(self) -> list[Watched]:
        """Nothing is watched here."""
        return []

    def of_batch(self, jobs: Sequence[Job]) -> list[Reply]:
        """A reply for each job, in order."""
        replies = []
        for job in jobs:
            try:
                replies.append(getattr(self, f"_{job.action}")(job))
            except Exception as error:
                told = as_request_error(error)
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    told = RequestError("no_space", "The disk is full, so the live samples were not saved.")
                place = place_of(error) if told.code == "internal" else ""
                replies.append(Reply(job.number, code=told.code, message=told.message, place=place))
        return replies

    def _push(self, job: Job) -> Reply:
        self._require_room(job)
        pushed = Pushed(0)
        with Notes() as notes:
            if job.samples:
                self.stream.set_samples({"sample": [job.sample], **job.samples}, source="statics")
            if job.readings is not None:
                readings = {
                    "sample": [job.sample] * len(job.readings.time),
                    "time": job.readings.time,
                    "sensor": job.readings.sensor,
                    "value": job.readings.value,
                }
                pushed = self.stream.push(readings, offset=job.edges, source=job.id)
            self.counts[job.sample] = self.counts.get(job.sample, 0) + pushed.new
            reply = self._get(job, asdict(pushed))
        if notes:
            content = msgspec.json.decode(reply.body)
            reply.body = msgspec.json.encode(content | {"notes": notes})
        reply.readings = 0 if job.readings is None else len(job.readings.time)
        return reply

    def _require_room(self, job: Job) -> None:
        """Raise where a sample, or all of them together, would have more readings than allowed."""
        if len(self.counts) > 2 * len(self.stream) + 100:  # forget samples that were let go
            self.counts = {name: count for name, count in self.counts.items() if name in self.stream}
        more = 0 if job.readings is None else len(job.readings.time)
        most = self.answers.limits.readings
        if self.counts.get(job.sample, 0) + more > most:
            raise RequestError(
                "too_large", f"A live sample has at most {most:,} readings; end it, or use --stream-window."
            )
        if sum(self.counts.values()) + more > self.options["max_readings"]:
            raise RequestError(
                "no_space",
                f"The live samples have {self.options['max_readings']:,} readings together, and no more fit.",
            )

    def _get(self, job: Job, pushed: dict[str, Any] | None = None) -> Reply:
        self._require_live(job.sample)
        content: dict[str, Any] = {"model": self.model.name, "run": self.model.run, "sample": job.sample}
        if pushed is not None:
            content["pushed"] = pushed
        count = int(np.sum(self.stream.table([job.sample]).count))
        content["readings"] = count
        if self.model.kind == "samples" and count:
            coverage = {} if job.coverage is None else {"coverage": job.coverage}
            frame = self.stream.scores([job.sample], **coverage).frame()
            content["prediction"] = frame.drop("sample").to_dicts()[0]
        elif self.model.kind == "imputer" and count:
            content["filled"] = self.stream.fill([job.sample]).frame().drop("sample").to_dict(as_series=False)
        return Reply(job.number, body=msgspec.json.encode(content, enc_hook=str), samples=1)

    def _delete(self, job: Job) -> Reply:
        self._require_live(job.sample)
        self.stream.let_go([job.sample])
        self.counts.pop(job.sample, None)
        return Reply(job.number, body=msgspec.json.encode({"sample": job.sample, "live": False}), samples=1)

    def _save(self, job: Job) -> Reply:
        self.stream.save(self.folder)
        return Reply(job.number, body=b"{}")

    def _require_live(self, sample: str) -> None:
        if sample not in self.stream:
            raise RequestError("not_found", "There is no live sample of this name; push readings of it first.")
