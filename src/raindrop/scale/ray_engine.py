"""Score parts on Ray: Ray Data passes the parts to actors that hold the model, and replaces those that end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raindrop.errors import RaindropError, first_line
from raindrop.scale.messages import MAX_ATTEMPTS, Done, LostPart, OpenScorer, Outcome, Part, Score
from raindrop.scale.ray_session import ray_session


def score_on_ray(open_scorer: OpenScorer, parts: Sequence[Part], processes: int | None, folder: Path) -> Done:
    """Score the parts on this many actors (by default all cores of the cluster), and yield each when it is done.

    Ray replaces actors that end, without limit. Attempts of each part are counted in files of `folder`, which all
    machines share; raises LostPart after too many.
    """
    if not parts:
        return
    with ray_session(processes) as ray, _quiet(ray):
        cores = int(ray.cluster_resources().get("CPU", 1))
        size = min(processes or cores, cores, len(parts))
        rows = ray.data.from_items([asdict(part) for part in parts], override_num_blocks=len(parts))
        outcomes = rows.map_batches(
            _Actor,
            fn_constructor_args=(open_scorer, folder),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
        )
        left = {part.number: part for part in parts}
        try:
            for row in outcomes.iter_rows():
                part = left.pop(int(row["part"]))
                if row["kind"] == LostPart.__name__:
                    raise LostPart(part, str(row["error"]))
                Outcome(part.number, str(row["error"]), str(row["kind"])).raise_failure()
                yield part
        except ray.exceptions.RayError as error:
            raise RaindropError(f"Ray stopped with {len(left):,} parts left ({first_line(error)}).") from None


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Silence Ray Data's progress bars and logs: progress is shown as elsewhere, and errors are raised."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    quiet = {"enable_progress_bars": False, "print_on_execution_start": False}
    before, level = {name: getattr(context, name) for name in quiet}, logger.level
    try:
        for name, value in quiet.items():
            setattr(context, name, value)
        logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        logger.setLevel(level)


class _Actor:
    """A model and a table on some machine of the cluster."""

    def __init__(self, open_scorer: OpenScorer, folder: Path):
        self.open_scorer, self.folder = open_scorer, folder
        self.scorer: Score | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Score the parts of a batch (one); returns the part and any error."""
        outcomes = [self._score(Part(*map(int, numbers))) for numbers in zip(*batch.values(), strict=True)]
        return {name: [getattr(outcome, name) for outcome in outcomes] for name in ("part", "error", "kind")}

    def _score(self, part: Part) -> Outcome:
        begun = self.folder / f"begun-{part.number:06d}"
        try:
            with open(begun, "a", encoding="utf-8") as file:
                file.write("x")
            if begun.stat().st_size > MAX_ATTEMPTS:
                return Outcome(part.number, f"{MAX_ATTEMPTS} times", LostPart.__name__)
            self.scorer = self.scorer or self.open_scorer()
            self.scorer(part)
            begun.unlink(missing_ok=True)
        except Exception as error:
            return Outcome.of_failure(part.number, error)
        return Outcome(part.number)
