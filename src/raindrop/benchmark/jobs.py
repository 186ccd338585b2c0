"""A cell of a table: one model, trained once on one split and evaluated under every setting."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from raindrop import config as configs
from raindrop.benchmark.data import find_table, numbered, open_table, parts_of
from raindrop.benchmark.ranking import rank_sensors
from raindrop.benchmark.spec import Experiment, Row, Setting, Splits
from raindrop.benchmark.store import Store
from raindrop.errors import ConfigError
from raindrop.estimators.classifier import Classifier, load
from raindrop.files import content_checksum, to_json
from raindrop.models.registry import MODELS
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors, hide_sensors, num_hidden
from raindrop.tasks.metrics import better
from raindrop.training.loop import TrainConfig
from raindrop.version import VERSION, source_checksum

SOURCE = source_checksum()  # now, since files may be edited while a model trains
PAUSE = 1.0  # seconds between two looks at what others are doing


@dataclass(frozen=True)
class Cell:
    """One row of an experiment on one split under one seed."""

    experiment: Experiment
    row: Row
    splits: Splits
    number: int
    seed: int
    folder: Path
    key: str
    """Names what is trained: version, model, settings, data with label and statics, split and seed."""
    network_key: str | None
    """Of a blend: the key that its network has as a row of its own."""
    ranked_on: str
    """Names the training part, whose ranking of sensors all rows share."""

    @property
    def name(self) -> str:
        """For people."""
        scenario = f"{self.splits.name}, " if self.splits.name else ""
        again = f", seed {self.seed}" if len(self.experiment.seeds) > 1 else ""
        return f"{self.experiment.name}: {self.row.name}, {scenario}split {self.number}{again}"

    def classifier(self) -> Classifier:
        """Not fitted yet."""
        return classifier_of(self.row, self.seed, self.number)

    def missing(self, store: Store) -> list[Setting]:
        """The settings whose figures are not in the store."""
        known = store.read(self.key)
        if known is None:
            return list(self.experiment.settings)
        held = set(known.select("hidden", "share", "instead").unique().iter_rows())
        return [s for s in self.experiment.settings if (s.hidden, s.share, s.instead) not in held]


@dataclass(frozen=True)
class Facts:
    """What a caption says of the data."""

    samples: int
    sensors: int
    readings: int
    label: str
    balance: tuple[tuple[str, float], ...]
    """Classes with their share of the samples that have a label, as they come."""


# ---------------------------------------------------------------- which cells there are


def plan(experiment: Experiment, data: Path, rows: Sequence[Row], numbers: Sequence[int]) -> tuple[list[Cell], Facts]:
    """The cells of an experiment, split by split, and what its data are."""
    folder = find_table(data, experiment.data)
    table = open_table(experiment.data, folder)
    own = {model.name: model.checksum() for model in experiment.models}
    cells = []
    for number, splits in numbered(experiment, table, numbers):
        parts = parts_of(table, splits, number, folder)
        marks = [_mark(part.ids) for part in parts]
        for row, seed in product(rows, experiment.seeds):
            where = f"{experiment.name}, row '{row.name}'"
            clf = classifier_of(row, seed, number)
            key = _key(clf, where, own, table, marks)
            network_key = _key(clf.network_alone(), where, own, table, marks) if row.model == "blend" else None
            ranked_on = _mark([VERSION, table.fingerprint, marks[0]])
            cells.append(Cell(experiment, row, splits, number, seed, folder, key, network_key, ranked_on))
    labelled = table[table.labelled]
    classes, counts = np.unique(labelled.labels, return_counts=True)
    balance = tuple((str(name), count / len(labelled)) for name, count in zip(classes, counts, strict=True))
    return cells, Facts(len(labelled), len(table.sensors), labelled.num_readings, experiment.data.label, balance)


def classifier_of(row: Row, seed: int, number: int) -> Classifier:
    """Not fitted yet. Each split draws anew: split 1 with the seed itself, split 2 with the next one, and so on."""
    return Classifier(row.model, preset=row.preset, config=row.config, seed=seed + number - 1)


def _key(clf: Classifier, where: str, own: Mapping[str, str], table: EventTable, marks: Sequence[str]) -> str:
    described = _described(clf, where) | ({"source": own[clf.model]} if clf.model in own else {})
    return content_checksum([VERSION, described, table.fingerprint, marks])[:32]


def _described(clf: Classifier, where: str) -> dict[str, Any]:
    """What is trained. Settings at their default are not named, so that a setting that is new changes no key."""
    try:
        resolved = clf.resolved()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    usual = {"model": configs.to_dict(MODELS[clf.model].config()), "train": configs.to_dict(TrainConfig())}
    changed = {
        f"{group}.{name}": value
        for group, settings in resolved.items()
        for name, value in settings.items()
        if value != usual[group][name] and name != "checkpoint_minutes"
    }
    return {"model": clf.model, "config": changed, "seed": clf.seed}


def refuse_other_defaults(cells: Sequence[Cell], store: Store) -> None:
    """Raise where a stored cell was run with other defaults than there are now, which its key does not tell."""
    for cell in cells:
        known = store.read(cell.key)
        if known is None:
            continue
        then, now = json.loads(known["config"][0]), json.loads(to_json(cell.classifier().resolved()))
        for group, settings in then.items():
            for name, value in settings.items():
                if name in now[group] and now[group][name] != value:
                    raise ConfigError(
                        f"{store.folder}: {cell.name} was run when {group}.{name} was {value!r} by default; now it is "
                        f"{now[group][name]!r}. Keep new results in another folder, or remove cells/{cell.key}.parquet "
                        f"and runs/{cell.key} there."
                    )


def _mark(names: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in names:
        digest.update(name.encode() + b"\0")
    return digest.hexdigest()


# ---------------------------------------------------------------- running one


def run_cell(cell: Cell, store: Store) -> None:
    """Train the cell unless its model is there, and evaluate it under the settings that are missing."""
    table = open_table(cell.experiment.data, cell.folder)
    train, val, test = parts_of(table, cell.splits, cell.number, cell.folder)
    clf, seconds = _fitted(cell, train, val, store)
    clf.set_params(unknown_sensors="ignore")  # all parts are of one table: only a rare sensor can be missing from train
    about = _about(cell, clf, seconds)
    rows = []
    for setting in cell.missing(store):
        for part, whole in (("val", val), ("test", test)):
            started = time.monotonic()
            shown = apply(setting, whole, cell, clf, train, store)
            figures = clf.evaluate(shown)
            counted = {"samples": len(shown), "readings": shown.num_readings}
            took = {"evaluation_seconds": round(time.monotonic() - started, 3)}
            rows.append({**about, "part": part, **asdict(setting), **counted, **figures, **took})
    store.write(cell.key, rows)


def _fitted(cell: Cell, train: EventTable, val: EventTable, store: Store) -> tuple[Classifier, float | None]:
    """The trained model, and how long training took, as far as that is known; of a blend without its network."""
    took = 0.0
    if store.has_model(cell.key):
        clf = load(store.run(cell.key))
    else:
        network = _network(cell, train, val, store)
        started = time.monotonic()
        clf = _train(cell.classifier(), train, val, store.run(cell.key), network)
        took = time.monotonic() - started
    epochs = sum(record.get("seconds", 0.0) for record in clf.history_) if cell.network_key is None else 0.0
    return clf, max(took, epochs) or None  # a kill loses the time between epochs, not theirs


def _network(cell: Cell, train: EventTable, val: EventTable, store: Store) -> Classifier | None:
    """Of a blend: its network, trained and kept as a row of its own would be, so that it is trained once."""
    if cell.network_key is None:
        return None
    run = store.run(cell.network_key)
    while not store.has_model(cell.network_key):
        with store.claim(cell.network_key, f"{cell.name}, its network") as ours:
            if ours:
                return _train(cell.classifier().network_alone(), train, val, run)
        time.sleep(PAUSE)  # another process has it, or has just looked at it
    return load(run)


def _train(
    clf: Classifier, train: EventTable, val: EventTable, run: Path, network: Classifier | None = None
) -> Classifier:
    try:
        clf.fit(train, validation=val, run=run, resume=True, network=network)
    except ConfigError:
        if network is None and not (run / "checkpoint.safetensors").exists():
            raise
        shutil.rmtree(run, ignore_errors=True)  # it, or the network, was begun when the model had fewer settings
        clf.fit(train, validation=val, run=run, resume=True)
    (run / "checkpoint.safetensors").unlink(missing_ok=True)
    return clf


def apply(
    setting: Setting, table: EventTable, cell: Cell, clf: Classifier, train: EventTable, store: Store
) -> EventTable:
    """The table as the setting shows it. What is hidden depends on the split alone, never on the model."""
    if setting.hidden == "none":
        return table
    values = clf.scaler_.mean if setting.instead == "zeros" else None
    if setting.hidden == "random":
        return hide_random_sensors(table, setting.share, seed=cell.number, values=values)
    ranking = store.ranking(cell.ranked_on)
    if ranking is None:
        ranking = rank_sensors(train)
        store.keep_ranking(cell.ranked_on, ranking)
    first = [sensor for sensor, _ in ranking[: num_hidden(setting.share, len(table.sensors))]]
    return hide_sensors(table, first, values=values)


def _about(cell: Cell, clf: Classifier, seconds: float | None) -> dict[str, Any]:
    wanted = clf.resolved()["train"]["metric"]
    best_epoch, best = None, None
    for record in clf.history_:
        figures = record.get("validation") or {"log_loss": record["loss"]}
        metric = wanted if wanted in figures else "log_loss"  # trees are cut by nothing else
        if better(metric, figures[metric], best):
            best_epoch, best = record["epoch"], figures[metric]
    return {
        "version": VERSION,
        "source": SOURCE,
        "model": cell.row.model,
        "preset": cell.row.preset,
        "config": to_json(clf.resolved()),
        "data": cell.experiment.data.folder,
        "label": cell.experiment.data.label,
        "left_out": ", ".join(cell.experiment.data.leave_out),
        "scenario": cell.splits.name,
        "split": cell.number,
        "seed": int(clf.seed),
        "epochs": len(clf.history_),
        "best_epoch": best_epoch,
        "training_seconds": seconds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
