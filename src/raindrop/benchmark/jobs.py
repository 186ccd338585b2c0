"""A job: one model, trained once on one split and evaluated under every setting."""

from __future__ import annotations

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
from raindrop.benchmark.data import find_table, has_label, list_splits, open_table, positive_class, split_table
from raindrop.benchmark.ranking import rank_sensors
from raindrop.benchmark.spec import Data, Experiment, Row, Setting, Splits
from raindrop.benchmark.store import Store
from raindrop.errors import ConfigError, ResumeError, suggest
from raindrop.estimators import SampleEstimator, estimator_type, load, make_estimator
from raindrop.files import content_checksum, to_json
from raindrop.models.registry import MODELS
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors, hide_sensors, num_hidden
from raindrop.tasks.metrics import ONE_CLASS
from raindrop.training.config import TrainConfig
from raindrop.version import VERSION, source_checksum

SOURCE = source_checksum()  # taken at import, since files may be edited while a model trains
POLL_SECONDS = 1.0  # between two checks of what other processes are doing


@dataclass(frozen=True)
class Job:
    """One row of an experiment on one split with one seed."""

    experiment: Experiment
    row: Row
    splits: Splits
    split_number: int
    seed: int
    folder: Path
    """Folder of the event table."""
    key: str
    """Identifies what is trained: version, model, settings, data with label and statics, split and seed."""
    network_key: str | None
    """For a blend: the key of the job that trains its network as a separate row."""
    ranking_key: str
    """Identifies the training set, whose ranking of sensors all rows share."""
    num_train: int
    """Samples in the training set."""
    num_test: int
    """Samples in the test set."""

    @property
    def name(self) -> str:
        """For messages: 'table1_p12: Trees, split 2'."""
        scenario = f"{self.splits.name}, " if self.splits.name else ""
        seed = f", seed {self.seed}" if len(self.experiment.seeds) > 1 else ""
        return f"{self.experiment.name}: {self.row.name}, {scenario}split {self.split_number}{seed}"

    def estimator(self) -> SampleEstimator:
        """The job's estimator, unfitted."""
        return row_estimator(self.experiment.data, self.row, self.seed, self.split_number)

    def missing_settings(self, store: Store) -> list[Setting]:
        """The settings whose metrics are not in the store."""
        metrics = store.read_metrics(self.key)
        if metrics is None:
            return list(self.experiment.settings)
        stored = set(metrics.select("hidden", "share", "replace_with").unique().iter_rows())
        return [s for s in self.experiment.settings if (s.hidden, s.share, s.replace_with) not in stored]


@dataclass(frozen=True)
class DataSummary:
    """The facts about the data in a table's caption."""

    samples: int
    sensors: int
    readings: int
    label: str
    class_shares: tuple[tuple[str, float], ...]
    """Classes in sorted order, each with its share of the labelled samples."""
    positive: str | None = None
    """The class that metrics refer to; None if there are more than two classes."""
    description: str = ""
    """The distribution of the labels of tasks other than classification."""


# ---------------------------------------------------------------- planning


def plan_jobs(
    experiment: Experiment, data_folder: Path, rows: Sequence[Row], numbers: Sequence[int]
) -> tuple[list[Job], DataSummary]:
    """The jobs of these rows and splits, ordered by split, and a summary of the data."""
    folder = find_table(data_folder, experiment.data)
    table = open_table(experiment.data, folder)
    data_summary = _summarise_data(experiment.data, table)
    _check_class_metrics(experiment, data_summary)
    plugin_checksums = {plugin.name: plugin.checksum() for plugin in experiment.plugins}
    jobs = []
    for number, splits in list_splits(experiment, table, numbers):
        train, val, test = split_table(table, experiment.data, splits, number, folder)
        subsets = [content_checksum(list(subset.ids)) for subset in (train, val, test)]
        ranking_key = content_checksum([VERSION, table.fingerprint, subsets[0], splits.rotate_by])[:32]
        for row, seed in product(rows, experiment.seeds):
            where = f"{experiment.name}, row '{row.name}'"
            clf = row_estimator(experiment.data, row, seed, number)
            key = _job_key(clf, where, plugin_checksums, table, subsets)
            network_key = None
            if row.model == "blend":
                network_key = _job_key(clf.network_alone(), where, plugin_checksums, table, subsets)
            jobs.append(
                Job(
                    experiment,
                    row,
                    splits,
                    number,
                    seed,
                    folder,
                    key,
                    network_key,
                    ranking_key,
                    num_train=len(train),
                    num_test=len(test),
                )
            )
    return jobs, data_summary


def _check_class_metrics(experiment: Experiment, data: DataSummary) -> None:
    """Raise if a metric such as 'recall/died' is about a class that the table does not have."""
    if not estimator_type(experiment.data.task).task_type.parts_are_classes:
        return
    classes = [name for name, _ in data.class_shares]
    for metric in experiment.metrics:
        name, slash, part = metric.partition("/")
        if slash and part not in classes:
            raise ConfigError(f"{experiment.name}: metric '{metric}': no class '{part}'; {suggest(part, classes)}")
        if slash and name not in ONE_CLASS:
            raise ConfigError(f"{experiment.name}: metric '{metric}': of one class there are {', '.join(ONE_CLASS)}.")


def _summarise_data(data: Data, table: EventTable) -> DataSummary:
    labelled = table[has_label(table, data)]
    size = (len(labelled), len(table.sensors), labelled.num_readings, ", ".join(data.labels))
    if not estimator_type(data.task).task_type.stratified:  # no classes to count
        task = row_estimator(data, Row(name="", model="trees"), 0, 1).learn_task(labelled)
        return DataSummary(*size, (), description=task.describe(task.encode(labelled)))
    classes, counts = np.unique(labelled.labels, return_counts=True)
    shares = tuple((str(name), count / len(labelled)) for name, count in zip(classes, counts, strict=True))
    positive = positive_class(data, [name for name, _ in shares])
    return DataSummary(*size, shares, positive)


def row_estimator(data: Data, row: Row, seed: int, split_number: int) -> SampleEstimator:
    """The unfitted estimator of a row. Split 1 uses the seed itself, split 2 the next one, and so on."""
    return make_estimator(
        data.task,
        row.model,
        data.labels,
        preset=row.preset,
        config=row.config,
        seed=seed + split_number - 1,
        positive=data.positive,
        loss=data.loss,
    )


def _job_key(
    clf: SampleEstimator, where: str, plugin_checksums: Mapping[str, str], table: EventTable, subsets: Sequence[str]
) -> str:
    model = _describe_model(clf, where)
    if clf.model in plugin_checksums:
        model["source"] = plugin_checksums[clf.model]
    return content_checksum([VERSION, model, table.fingerprint, subsets])[:32]


def _describe_model(clf: SampleEstimator, where: str) -> dict[str, Any]:
    """What is trained. Settings at their default are left out, so that adding a setting changes no key."""
    try:
        resolved = clf.resolved()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    defaults = {"model": configs.to_dict(MODELS[clf.model].config()), "train": configs.to_dict(TrainConfig())}
    changed = {
        f"{group}.{name}": value
        for group, settings in resolved.items()
        for name, value in settings.items()
        if value != defaults[group][name] and name != "checkpoint_minutes"
    }
    return {"model": clf.model, "config": changed, "seed": clf.seed}


def refuse_changed_defaults(jobs: Sequence[Job], store: Store) -> None:
    """Raise if a stored job was run with other defaults than the current ones; its key does not include them."""
    for job in jobs:
        metrics = store.read_metrics(job.key)
        if metrics is None:
            continue
        then, now = json.loads(metrics["config"][0]), json.loads(to_json(job.estimator().resolved()))
        for group, settings in then.items():
            for name, value in settings.items():
                if name in now[group] and now[group][name] != value:
                    raise ConfigError(
                        f"{store.folder}: {job.name} was run when {group}.{name} was {value!r} by default; now it is "
                        f"{now[group][name]!r}. Store new results in another folder, or remove jobs/{job.key}.parquet "
                        f"and runs/{job.key} there."
                    )


# ---------------------------------------------------------------- running


def run_job(job: Job, store: Store) -> None:
    """Train the job's model unless it is stored, and evaluate it under the settings that are missing."""
    table = open_table(job.experiment.data, job.folder)
    train, val, test = split_table(table, job.experiment.data, job.splits, job.split_number, job.folder)
    clf, training_seconds = _trained_estimator(job, train, val, store)
    description = _describe_run(job, clf, training_seconds)
    rows = []
    for setting in job.missing_settings(store):
        for name, subset in (("val", val), ("test", test)):
            started = time.monotonic()
            visible = apply_setting(setting, subset, job, clf, train, store)
            metrics = clf.evaluate(visible)
            size = {"samples": len(visible), "readings": visible.num_readings}
            duration = {"evaluation_seconds": round(time.monotonic() - started, 3)}
            rows.append({**description, "subset": name, **asdict(setting), **size, **metrics, **duration})
    store.append_metrics(job.key, rows)


def _trained_estimator(
    job: Job, train: EventTable, val: EventTable, store: Store
) -> tuple[SampleEstimator, float | None]:
    """The fitted estimator and the seconds of training, if known, without those of a blend's network."""
    seconds = 0.0
    if store.is_trained(job.key):
        clf = load(store.run_folder(job.key))
        _remove_checkpoint(store.run_folder(job.key))
    else:
        network = _blend_network(job, train, val, store)
        started = time.monotonic()
        clf = _fit(job.estimator(), train, val, store.run_folder(job.key), network)
        seconds = time.monotonic() - started
    clf.set_params(unknown_sensors="ignore")  # all subsets come from one table: rare sensors may be missing in training
    epoch_seconds = sum(record.get("seconds", 0.0) for record in clf.history_) if job.network_key is None else 0.0
    return clf, max(seconds, epoch_seconds) or None  # after a kill only the times of epochs are known


def _blend_network(job: Job, train: EventTable, val: EventTable, store: Store) -> SampleEstimator | None:
    """For a blend: its network, trained and stored like that of a separate row, so that it is trained once."""
    if job.network_key is None:
        return None
    run = store.run_folder(job.network_key)
    while not store.is_trained(job.network_key):
        with store.claim(job.network_key, f"{job.name}, its network") as claimed:
            if claimed:
                return _fit(job.estimator().network_alone(), train, val, run)
        time.sleep(POLL_SECONDS)  # another process is training it
    network: SampleEstimator = load(run)
    return network


def _fit(
    clf: SampleEstimator, train: EventTable, val: EventTable, run: Path, network: SampleEstimator | None = None
) -> SampleEstimator:
    """Fit, resuming the stored run. A run that was started with other settings is deleted and started again.

    A blend whose stored `network` was trained with other settings trains its own.
    """
    try:
        clf.fit(train, validation=val, run=run, resume=True, network=network)
    except ResumeError:
        if network is not None:
            return _fit(clf, train, val, run)
        shutil.rmtree(run)
        clf.fit(train, validation=val, run=run, resume=True)
    _remove_checkpoint(run)
    return clf


def _remove_checkpoint(run: Path) -> None:
    """Delete the checkpoints of a finished run; a kill may have come before they were removed."""
    for checkpoint in run.rglob("checkpoint.safetensors"):
        checkpoint.unlink(missing_ok=True)


def apply_setting(
    setting: Setting, table: EventTable, job: Job, clf: SampleEstimator, train: EventTable, store: Store
) -> EventTable:
    """The table with the setting's sensors hidden; the choice depends on the split, never on the model.

    Splits that rotate through a column test on unseen values of it, so sensors are ranked with these values as groups.
    """
    if setting.hidden == "none":
        return table
    values = clf.scaler_.mean if setting.replace_with == "zeros" else None
    if setting.hidden == "random":
        return hide_random_sensors(table, setting.share, seed=job.split_number, values=values)
    ranking = store.read_ranking(job.ranking_key)
    if ranking is None:
        ranking = rank_sensors(train.with_roles(group=job.splits.rotate_by))
        store.write_ranking(job.ranking_key, ranking)
    most_informative = [sensor for sensor, _ in ranking[: num_hidden(setting.share, len(table.sensors))]]
    return hide_sensors(table, most_informative, values=values)


def _describe_run(job: Job, clf: SampleEstimator, training_seconds: float | None) -> dict[str, Any]:
    """The columns that every stored row of a job has, whatever the setting."""
    chosen_metric = clf.task_.require_metric(clf.resolved()["train"]["metric"])
    best_epoch, best = None, None
    for record in clf.history_:
        metrics = record.get("validation") or {"loss": record["loss"]}
        if chosen_metric in metrics:
            value = metrics[chosen_metric]
            improved = clf.task_.metrics[chosen_metric].better(value, best)
        else:  # trees stop by their loss only
            value = next(iter(metrics.values()))
            improved = best is None or value < best
        if improved:
            best_epoch, best = record["epoch"], value
    return {
        "version": VERSION,
        "source": SOURCE,
        "model": job.row.model,
        "preset": job.row.preset,
        "config": to_json(job.estimator().resolved()),
        "data": job.experiment.data.folder,
        "label": ", ".join(job.experiment.data.labels),
        "excluded_statics": ", ".join(job.experiment.data.exclude_statics),
        "scenario": job.splits.name,
        "split": job.split_number,
        "seed": int(clf.seed),
        "epochs": len(clf.history_),
        "best_epoch": best_epoch,
        "training_seconds": training_seconds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
