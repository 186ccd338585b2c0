"""Automatic model selection: try a few models within a time budget, rank them and save the best one.

Trees are fitted first, so that there is a result early; then the network, a blend of both, and a transformer, as time
allows. Whenever a model is the best so far, it replaces the one in the run's folder immediately: if the search is
stopped at any moment, the folder holds the best model that was completed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError
from raindrop.estimators.auto_parts import Fold, aligned, make_folds, stop_signals
from raindrop.estimators.base import Estimator
from raindrop.estimators.guess import READINGS, Guess, guess_task, labelled_part
from raindrop.estimators.hidden_readings import compare, typical_block
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.loading import make_estimator
from raindrop.estimators.samples import SampleEstimator
from raindrop.files import atomic_folder, refuse_to_overwrite, write_json
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hold_out_blocks
from raindrop.table.run_split import RunSplit
from raindrop.tasks.bootstrap import Interval, interval, resampled_counts
from raindrop.training.progress import note

QUICK_TREES: dict[str, Any] = {"rounds": 400, "learning_rate": 0.08, "patience": 20}
FIRST_TREES = 20_000  # maximum number of training samples of the first trees
BLEND_TREES = 12  # times as long as the first trees take those of a blend, which are four sets with more columns
NETWORK_SHARE, TRANSFORMER_SHARE = 0.45, 0.8  # of the total time, and of the time left at that point
SECONDS_PER_FIT = 30.0  # for each fit of the network; with less time, there are fewer folds
MIN_SECONDS = 3.0  # to train a network once; with less time left, it is skipped
RUN_FILES = ("model.json", "model.safetensors", "split.parquet", "ranking.json", "report.html")  # may be overwritten
SIMPLE_IMPUTERS = ("mean", "last", "linear", "nearest")


@dataclass(frozen=True)
class Candidate:
    """A model that was tried."""

    name: str
    metric: Interval
    seconds: float
    can_be_chosen: bool = True


@dataclass(eq=False)
class AutoResult:
    """The models that were tried, the best one, and how they were scored."""

    guess: Guess
    metric: str
    """Title of the metric by which models are ranked."""
    lower_is_better: bool
    judged_on: str
    """A description of the samples or readings that the models are ranked on."""
    candidates: list[Candidate] = field(default_factory=list)
    model: Any = None
    """The best model, fitted."""
    evaluated: tuple[Any, EventTable] | None = None
    """For a report: a fitted model of this kind, and samples that it has not seen."""
    skipped: list[str] = field(default_factory=list)
    stopped: bool = False
    """Whether the search was interrupted."""

    @property
    def ranking(self) -> list[Candidate]:
        """The candidates, best first."""
        sign = 1 if self.lower_is_better else -1
        return sorted(self.candidates, key=lambda each: sign * each.metric.value)

    @property
    def best(self) -> Candidate | None:
        """The best eligible candidate; None if no model was completed."""
        return next((each for each in self.ranking if each.can_be_chosen), None)

    def frame(self) -> pl.DataFrame:
        """One row per model, best first: model, metric, low and high of its 95 % interval, seconds."""
        rows = [(c.name, c.metric.value, c.metric.low, c.metric.high, round(c.seconds, 1)) for c in self.ranking]
        return pl.DataFrame(rows, schema=["model", self.metric, "low", "high", "seconds"], orient="row")

    def _repr_html_(self) -> str:
        return self.frame()._repr_html_()


def auto(
    table: EventTable,
    *,
    label: str | Sequence[str] | None = None,
    task: str | None = None,
    minutes: float = 10.0,
    run: str | os.PathLike[str] | None = None,
    positive: Any = None,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool = False,
) -> AutoResult:
    """Try a few models on a table within a time budget; the best is `result.model`, saved to `run` if given.

    The label decides what is predicted (`result.guess`): classes, several yes/no labels, quantities, or, without a
    label, readings in gaps. Small tables, and tables with few groups, are cross-validated if the budget allows it (from
    about four minutes); otherwise a random fifth of the samples, or groups, is held out. Ctrl-C and SIGTERM end the
    search with the best model so far.
    """
    if not 0 < minutes < float("inf"):
        raise ConfigError(f"minutes={minutes}: the time budget must be a positive number of minutes.")
    if run is not None:
        refuse_to_overwrite(Path(run))
    labels = (label,) if isinstance(label, str) else tuple(label or ())
    guess = guess_task(table, labels, task)
    note(progress, f"task: {guess.task} ({guess.reason})")
    options = {"seed": seed, "device": device, "threads": threads, "progress": progress, "unknown_sensors": "ignore"}
    folder = None if run is None else Path(run)
    search: _Search
    if guess.task == READINGS:
        search = _ReadingsSearch(table, guess, minutes, folder, options)
    else:
        search = _SampleSearch(labelled_part(table, guess), guess, minutes, folder, options, positive)
    return search.search()


class _Search:
    """The parts that both searches share: the clock, the list of candidates, and saving the best model."""

    result: AutoResult

    def __init__(self, minutes: float, run: Path | None, options: Mapping[str, Any]):
        self.total, self.run, self.options = 60 * minutes, run, options
        self.deadline = time.monotonic() + self.total

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def steps(self) -> Sequence[tuple[str, Callable[[], None]]]:
        """The models to try, in this order."""
        raise NotImplementedError

    def search(self) -> AutoResult:
        result, done = self.result, False
        try:
            with stop_signals():
                for name, step in self.steps():
                    note(self.options["progress"], f"trying {name} ({max(0.0, self.left()):.0f} s left)")
                    step()
                done = True
        except KeyboardInterrupt:
            if result.model is None:
                raise
            result.stopped = True
        if result.model is None and done:
            raise ConfigError("No model could be fitted in this time; give more minutes.")
        return result

    def skip(self, name: str) -> None:
        self.result.skipped.append(name)
        note(self.options["progress"], f"skipping {name}: no time left")

    def add(self, candidate: Candidate) -> bool:
        """Add a candidate. True if it is the best eligible one so far; `save` then writes it along with the ranking."""
        self.result.candidates.append(candidate)
        is_best = self.result.best is candidate
        if not is_best and self.run is not None and (self.run / "model.json").exists():
            write_json(self.run / "ranking.json", self.about())
        return is_best

    def about(self) -> dict[str, Any]:
        """The description of the search that is stored in the run's folder."""
        ranking = [{"model": c.name, **vars(c.metric), "seconds": c.seconds} for c in self.result.ranking]
        about = {"task": vars(self.result.guess), "metric": self.result.metric, "judged_on": self.result.judged_on}
        return {**about, "ranking": ranking}

    def save(self, model: Estimator, parts: Mapping[str, EventTable] | None) -> None:
        """Replace the contents of the run's folder, atomically."""
        self.result.model = model
        if self.run is None:
            return
        if parts is not None:
            model.split_ = RunSplit.of(parts)
        with atomic_folder(self.run, overwrite=RUN_FILES) as folder:
            model._write(folder)
            write_json(folder / "ranking.json", self.about())


class _SampleSearch(_Search):
    """Search over models with one prediction per sample."""

    def __init__(
        self,
        table: EventTable,
        guess: Guess,
        minutes: float,
        run: Path | None,
        options: Mapping[str, Any],
        positive: Any,
    ):
        super().__init__(minutes, run, options)
        self.table, self.guess, self.positive = table, guess, positive
        self.task = self.estimator("trees").learn_task(table)
        affordable = int(NETWORK_SHARE * self.total / SECONDS_PER_FIT) - 1
        self.folds, judged_on = make_folds(table, self.task, options["seed"], affordable)
        self.metric = self.task.default_metric
        metric = self.task.metrics[self.metric]
        self.result = AutoResult(guess, self.task.title(self.metric), metric.lower_is_better, judged_on)
        self.fits = len(self.folds) + (len(self.folds) > 1)  # cross-validated models are fitted once more, on all
        self.networks: dict[int, SampleEstimator] = {}

    def estimator(self, model: str, **config: Any) -> SampleEstimator:
        """An unfitted estimator; train__minutes=1 stands for train.minutes=1."""
        settings = {name.replace("__", "."): value for name, value in config.items()}
        options = dict(self.options, positive=self.positive)
        return make_estimator(self.guess.task, model, self.guess.labels, config=settings, **options)

    def steps(self) -> Sequence[tuple[str, Callable[[], None]]]:
        return [
            ("a constant", self.constant),
            ("trees", self.trees),
            ("raindrop", self.network),
            ("blend", self.blend),
            ("transformer", self.transformer),
        ]

    def constant(self) -> None:
        """The same prediction for every sample: the baseline that a model must beat."""
        predicted = []
        for fold in self.folds:
            learned = self.estimator("trees").learn_task(fold.training)
            one = learned.constant_prediction(learned.encode(fold.training))[:1]
            predicted.append(aligned(np.repeat(one, len(fold.test), 0), learned, self.task))
        self.add(Candidate("constant", self.judge(predicted), 0.0, can_be_chosen=False))

    def trees(self) -> None:
        config = {f"model__{name}": value for name, value in self.tree_settings().items()}
        self.candidate("trees", lambda at: self.estimator("trees", **config), cap=FIRST_TREES)

    def tree_settings(self) -> dict[str, Any]:
        """Settings that are quick to fit, with leaves that a small table can fill."""
        several = max(len(problem.outputs) for problem in self.task.boosting_problems())
        rounds = max(40, QUICK_TREES["rounds"] // several)
        return QUICK_TREES | {"rounds": rounds, "min_samples": min(30, max(2, len(self.table) // 20))}

    def network(self) -> None:
        seconds = NETWORK_SHARE * self.total / self.fits
        if min(seconds, self.left() / self.fits) < MIN_SECONDS:
            return self.skip("raindrop")
        seconds = min(seconds, 0.9 * self.left() / self.fits)
        config = {"train__minutes": round(seconds / 60, 4)}
        for part in ("trees", "random_trees"):
            config |= {f"model__{part}__{name}": value for name, value in self.tree_settings().items()}
        self.blend_config = config
        self.candidate("raindrop", lambda at: self.estimator("blend", **config).network_alone(), keep=self.networks)

    def blend(self) -> None:
        trees = next((c.seconds for c in self.result.candidates if c.name == "trees"), 0.0)
        trees *= BLEND_TREES * max(1.0, len(self.table) / FIRST_TREES)
        if len(self.networks) < self.fits or self.left() < trees:
            return self.skip("blend")
        self.candidate("blend", lambda at: self.estimator("blend", **self.blend_config), networks=self.networks)

    def transformer(self) -> None:
        seconds = TRANSFORMER_SHARE * self.left() / self.fits
        if seconds < MIN_SECONDS:
            return self.skip("transformer")
        self.candidate("transformer", lambda at: self.estimator("transformer", train__minutes=round(seconds / 60, 4)))

    def candidate(
        self,
        name: str,
        make: Callable[[int], SampleEstimator],
        *,
        cap: int | None = None,
        keep: dict[int, SampleEstimator] | None = None,
        networks: Mapping[int, SampleEstimator] | None = None,
    ) -> None:
        """Fit and score on every fold; if it is the best so far, refit on all samples if necessary, and save.

        cap: maximum number of training samples. keep: collects the fitted models by fold number, for a blend that takes
        them as its `networks`; the one fitted on all samples comes after the last fold.
        """
        started, predicted, fitted = time.monotonic(), [], []

        def fit(at: int, fold: Fold) -> SampleEstimator:
            training = fold.training
            if cap is not None and len(training) > cap:
                rows = np.random.default_rng(self.options["seed"]).choice(len(training), cap, replace=False)
                training = training[np.sort(rows)]
            network = None if networks is None else networks[at]
            estimator = make(at).fit(training, validation=fold.validation, network=network)
            if keep is not None:
                keep[at] = estimator
            return estimator

        for at, fold in enumerate(self.folds):
            estimator = fit(at, fold)
            fitted.append(estimator)
            predicted.append(aligned(estimator.predictions(fold.test), estimator.task_, self.task))
        value = self.judge(predicted)
        whole = len(self.folds) == 1
        if not whole and (keep is not None or self._would_lead(value)):
            fitted.append(fit(len(self.folds), Fold(self.table, None, self.table[:0])))
        if self.add(Candidate(name, value, time.monotonic() - started)):
            self.result.evaluated = (fitted[0], self.folds[0].test)
            self.save(fitted[-1], self.folds[0].parts() if whole else {"train": self.table})

    def _would_lead(self, value: Interval) -> bool:
        best = self.result.best
        return best is None or self.task.metrics[self.metric].better(value.value, best.metric.value)

    def judge(self, predicted: Sequence[NDArray[Any]]) -> Interval:
        """The metric over the test samples of all folds, with its interval."""
        truth = np.concatenate([self.task.encode(fold.test) for fold in self.folds])
        names = [self.metric]
        return self.task.bootstrap(truth, np.concatenate(predicted), names, seed=self.options["seed"])[self.metric]


class _ReadingsSearch(_Search):
    """Search over imputers, scored on blocks of readings that are hidden from all of them."""

    def __init__(self, table: EventTable, guess: Guess, minutes: float, run: Path | None, options: Mapping[str, Any]):
        super().__init__(minutes, run, options)
        if not table.num_readings:
            raise DataError("The table has no readings, so there is nothing to learn from.")
        first = Imputer("mean", **dict(options, progress=False)).fit(table)
        self.visible, self.truth = hold_out_blocks(table, typical_block(first, table), seed=options["seed"])
        judged = f"{len(self.truth):,} readings, hidden in blocks of {typical_block(first, table):g} {table.time_unit}"
        self.result = AutoResult(guess, "MAE in standard deviations", True, judged)

    def steps(self) -> Sequence[tuple[str, Callable[[], None]]]:
        simple = [
            (name, lambda name=name: self.candidate(name, Imputer(name, **self.options))) for name in SIMPLE_IMPUTERS
        ]
        return [*simple, ("raindrop", self.network)]

    def network(self) -> None:
        seconds = 0.85 * self.left()
        if seconds < MIN_SECONDS:
            return self.skip("raindrop")
        config = {"train.minutes": round(seconds / 60, 4)}
        self.candidate("raindrop", Imputer(config=config, **self.options))

    def candidate(self, name: str, imputer: Imputer) -> None:
        started = time.monotonic()
        imputer.fit(self.visible)
        compared = compare(imputer, self.visible, self.truth)
        error = np.abs(compared.error) / compared.scale
        owner = np.unique(compared.queries.sample, return_inverse=True)[1]
        if owner.max() < 9:  # too few samples to resample: resample readings instead
            owner = np.arange(len(error))
        total, count = np.bincount(owner, error), np.bincount(owner).astype(float)
        drawn = [
            counts @ total / (counts @ count)
            for counts in resampled_counts(np.zeros(len(total), dtype=np.int64), 200, self.options["seed"])
        ]
        value = interval(float(error.mean()), np.concatenate(drawn))
        if self.add(Candidate(name, value, time.monotonic() - started)):
            self.result.evaluated = (imputer, self.visible)
            self.save(imputer, None)
