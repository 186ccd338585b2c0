"""A task that the package does not know: its class and its estimator, entered in ESTIMATORS, are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from learnable import QUICK, easy_table

from raindrop import Regressor, load
from raindrop.cli.app import main
from raindrop.estimators import ESTIMATORS
from raindrop.estimators.inputs import label_names
from raindrop.report import report_on
from raindrop.report.page import page
from raindrop.table.event_table import EventTable
from raindrop.tasks.boosting import BoostingProblem, Objective
from raindrop.tasks.metrics import Metric
from raindrop.tasks.regression import Regression


def deviance(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Poisson deviance but for a constant; lower is better."""
    return float((predicted[:, 0] - truth * np.log(predicted[:, 0])).mean())


def weighted_deviance(truth: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return counts @ (predicted[:, 0] - truth * np.log(predicted[:, 0])) / counts.sum(1)


def poisson_losses(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return scores[:, 0].exp() - target * scores[:, 0]


POISSON = Objective("poisson", "poisson", poisson_losses)
DEVIANCE = Metric("deviance", deviance, lower_is_better=True, is_share=False, weighted=weighted_deviance)


@dataclass(frozen=True, eq=False)
class Events(Regression):
    """Numbers of events by the log of their rate."""

    name: ClassVar[str] = "events"
    default_metric: ClassVar[str] = "deviance"

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {**super().metrics, "deviance": DEVIANCE}

    def targets(self, truth: np.ndarray) -> np.ndarray:
        return truth.astype(np.float32)

    def loss(self, scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return poisson_losses(scores, target[:, 0]).mean()

    def boosting_problems(self) -> Sequence[BoostingProblem]:
        return [BoostingProblem((0,), POISSON)]

    def predict(self, scores: torch.Tensor) -> np.ndarray:
        return scores.detach().exp().numpy()[..., None]


class EventRegressor(Regressor):
    task_type = Events

    def learn_task(self, table: EventTable) -> Events:
        return Events.learn(table, label_names(self.label, table), "squared")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> EventTable:
    monkeypatch.setitem(ESTIMATORS, "events", EventRegressor)
    table = easy_table(120)
    number = np.random.default_rng(0).poisson(np.exp(0.5 + 1.5 * table.labels)).astype(float)
    return replace(table, samples=table.samples.with_columns(visits=number))


@pytest.mark.parametrize("engine", ["sklearn", "lightgbm"])
def test_trees_grow_with_the_objective_of_the_task(events: EventTable, engine: str) -> None:
    config = {"model.engine": engine, "model.rounds": 40}
    fitted = EventRegressor("trees", label="visits", config=config).fit(events[:80], validation=events[80:100])
    truth = fitted.truth(events[100:])
    constant = fitted.task_.evaluate(truth, fitted.task_.constant_prediction(truth))
    assert fitted.evaluate(events[100:])["deviance"] < constant["deviance"] - 0.2
    kept = min(fitted.history_, key=lambda record: record["validation"]["loss"])  # the round that validation chose
    assert kept["loss"] == pytest.approx(fitted.evaluate(events[:80])["deviance"], rel=1e-6)


@pytest.mark.slow
def test_the_metric_of_the_task_chooses_the_epoch_and_is_in_the_report(events: EventTable, tmp_path: Path) -> None:
    config = {name: value for name, value in QUICK.items() if name != "train.metric"} | {"train.epochs": 4}
    fitted = EventRegressor(label="visits", config=config).fit(events[:90], validation=events[90:])
    by_epoch = [record["validation"]["deviance"] for record in fitted.history_]
    rounded = 2.0**-11  # the kept weights are rounded to half precision
    assert fitted.evaluate(events[90:])["deviance"] == pytest.approx(min(by_epoch), rel=rounded)
    report = report_on(fitted, events[90:], samples=2)
    assert report.epoch_metric == "deviance"
    assert report.metric_names["deviance"] == "Deviance, lower is better"
    assert "Deviance, lower is better" in page(report)
    again = load(fitted.save(tmp_path / "run"))
    assert isinstance(again, EventRegressor)
    np.testing.assert_array_equal(again.predict(events), fitted.predict(events))


@pytest.mark.slow
def test_the_commands_know_the_task(events: EventTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = str(events.write(tmp_path / "data")), str(tmp_path / "run")
    main(["train", data, "--out", run, "--task", "events", "--label", "visits", "--model", "trees"])
    main(["evaluate", run, data, "--intervals"])
    main(["predict", run, data, "--out", str(tmp_path / "p.csv"), "--coverage", "0.9"])
    main(["explain", run, data, "--out", str(tmp_path / "r.html")])
    assert "deviance" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["predict", run, data, "--out", str(tmp_path / "q.csv"), "--coverage", "0.9", "--by-class"])
    assert "--by-class has no effect with the task 'events'; leave it out" in capsys.readouterr().err
    assert (tmp_path / "p.csv").read_text().startswith("sample,visits,visits_low,visits_high")
    assert "Deviance, lower is better" in (tmp_path / "r.html").read_text()
