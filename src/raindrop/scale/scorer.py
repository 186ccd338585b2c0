"""The work of every worker: open the model and the table once, then score parts and write their predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from raindrop.errors import DataError, ModelFileError
from raindrop.estimators import SampleEstimator, load
from raindrop.files import atomic_file, file_checksum
from raindrop.scale.messages import Part
from raindrop.scale.parts import part_frames, stored_fingerprint
from raindrop.scale.score import score_part
from raindrop.table.blocks import is_large
from raindrop.table.event_table import EventTable

UNSURE = "unsure"  # metadata in a part's file: the number of samples without a single possible answer


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that change predictions, apart from the model and the table."""

    unknown_sensors: str = "error"
    coverage: float | None = None
    by_class: bool = False


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a worker needs to score parts of a table; all paths are absolute."""

    run: Path
    model_checksum: str
    """Checksum of model.json, which contains the checksum of the weights."""
    key: Path | None
    """File with the key that the run must be signed with."""
    table: Path
    fingerprint: str
    out: Path
    """Folder for the predictions of parts."""
    options: Options

    def open(self) -> Scorer:
        """Load the model and open the table; raises if one of them has changed since the work was planned."""
        if file_checksum(self.run / "model.json") != self.model_checksum:
            raise ModelFileError(f"{self.run}: the model was replaced while it was scoring. Run the command again.")
        if stored_fingerprint(self.table) != self.fingerprint:
            raise DataError(f"{self.table}: the table was changed while it was scored. Run the command again.")
        return Scorer(load(self.run, key=self.key), EventTable.read(self.table), self.out, self.options)


class Scorer:
    """A loaded model and an opened table."""

    def __init__(self, estimator: SampleEstimator, table: EventTable, out: Path, options: Options):
        """One thread, whatever the environment: another order of sums would change the last bits."""
        estimator.set_params(unknown_sensors=options.unknown_sensors, threads=1, progress=False)
        self.estimator, self.table, self.out, self.options = estimator, table, out, options

    def __call__(self, part: Part) -> None:
        """Write the predictions of a part, atomically."""
        events, samples = part_frames(self.table, part)
        if is_large(self.table.time):
            self.table.release()
        predicted = score_part(
            self.estimator,
            events,
            samples,
            sensors=self.table.sensors,
            time_unit=self.table.time_unit,
            coverage=self.options.coverage,
            by_class=self.options.by_class,
        )
        unsure = {} if predicted.unsure is None else {UNSURE: str(int(predicted.unsure.sum()))}
        with atomic_file(self.out / part.file) as partial:
            predicted.frame().write_parquet(partial, metadata=unsure)
