"""From jobs to replies: what a worker computes with the fitted models. Requests are scored together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import polars as pl

from raindrop.estimators import Forecaster, Imputer
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.report.cases import contributions
from raindrop.report.tasks import view_of
from raindrop.serve import protocol_v2
from raindrop.serve.cards import card_of, example
from raindrop.serve.drift import DriftGauges
from raindrop.serve.failures import RequestError, as_request_error, place_of
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Columns, Job, Kind, Reply, Watched
from raindrop.serve.tables import Notes, is_quick, join_tables, table_of, with_all_statics
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans
from raindrop.table.time_columns import SECONDS

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
COVERAGE = 0.9


@dataclass(frozen=True)
class Served:
    """A model with its name."""

    name: str
    estimator: Any

    @property
    def kind(self) -> str:
        """samples, imputer or forecaster."""
        if isinstance(self.estimator, Imputer):
            return "imputer"
        return "forecaster" if isinstance(self.estimator, Forecaster) else "samples"

    @cached_property
    def run(self) -> str:
        """Identifies the run."""
        return str(self.estimator.identity_[:16])


class Answers:
    """The served models, at most one of each kind, and their replies to jobs."""

    live_samples = 0

    def __init__(self, served: Sequence[Served], limits: Limits):
        self.served = {one.kind: one for one in served}
        self.limits = limits
        self.drift = self._new_drift()

    def of_batch(self, jobs: Sequence[Job]) -> list[Reply]:
        """A reply for each job, in order; an error in one job does not affect the others."""
        replies: dict[int, Reply] = {}
        together: dict[float | None, list[tuple[Job, EventTable, list[str]]]] = {}
        for job in jobs:
            with _failing_into(replies, job):
                if job.kind == "predict" and self._model_of(job).kind == "samples":
                    with Notes() as notes:
                        table, absent = self._table(job)
                    notes += absent
                    together.setdefault(job.coverage, []).append((job, table, notes))
                else:
                    replies[job.number] = self._alone(job)
        for coverage, group in together.items():
            self._predict_together(group, coverage, replies)
        return [replies[job.number] for job in jobs]

    # ---------------------------------------------------------------- predictions

    def _predict_together(
        self, group: list[tuple[Job, EventTable, list[str]]], coverage: float | None, replies: dict[int, Reply]
    ) -> None:
        """Score the tables of several jobs together; if that fails, score them separately to find the faulty one."""
        model = self.served["samples"]
        scaler = model.estimator.scaler_
        quick = [entry for entry in group if is_quick(entry[1], scaler)]
        if len(quick) > 1:
            try:
                frame = model.estimator.predict_table(
                    join_tables([table for _, table, _ in quick], scaler), **_coverage(coverage)
                ).frame()
            except Exception:
                quick = []
            else:
                at = 0
                for job, table, notes in quick:
                    ids = pl.Series("sample", table.ids, dtype=pl.String)
                    own = frame[at : at + len(table)].with_columns(ids)
                    at += len(table)
                    with _failing_into(replies, job):
                        replies[job.number] = self._predicted(job, model, table, own, notes)
        for job, table, notes in group:
            if job.number not in replies:
                with _failing_into(replies, job):
                    with Notes() as more:
                        frame = model.estimator.predict_table(table, **_coverage(coverage)).frame()
                    replies[job.number] = self._predicted(job, model, table, frame, notes + more)

    def _predicted(self, job: Job, model: Served, table: EventTable, frame: pl.DataFrame, notes: list[str]) -> Reply:
        content = {"model": model.name, "run": model.run, "predictions": frame, "notes": notes}
        reply = self._reply(job, table, content, frame)
        if self.drift is not None:
            self.drift.add(table)
        return reply

    def _explain(self, job: Job, model: Served, table: EventTable, notes: list[str]) -> Reply:
        """Predictions, and how each sensor contributes: the change when its readings are left out."""
        self._require_few(table)
        estimator = model.estimator
        frame = estimator.predict_table(table, **_coverage(job.coverage)).frame()
        view, predicted = view_of(estimator), estimator.predictions(table)
        value = view.outputs(predicted, predicted)
        contribution, without = contributions(estimator, view, table, predicted)
        rows = []
        for at, name in enumerate(table.ids):
            explained = _explained(view, predicted, at)
            for output, code in zip(*np.nonzero(contribution[at] != 0), strict=True):
                rows.append(
                    {
                        "sample": name,
                        "of": explained[output],
                        "sensor": estimator.scaler_.sensors[code],
                        "contribution": float(contribution[at, output, code]),
                        "with": float(value[at, output]),
                        "without": float(without[at, output, code]),
                    }
                )
        rows.sort(key=lambda row: -abs(row["contribution"]))
        content = {
            "model": model.name,
            "run": model.run,
            "predictions": frame,
            "effect": view.effect_name.lower(),
            "contributions": rows,
            "notes": notes,
        }
        return self._reply(job, table, content, pl.DataFrame(rows))

    # ---------------------------------------------------------------- readings and graphs

    def _readings(self, job: Job, model: Served, table: EventTable, notes: list[str]) -> Reply:
        """The readings that an imputer fills in, or a forecaster forecasts."""
        estimator: ReadingsEstimator = model.estimator
        coverage = COVERAGE if job.coverage is None else job.coverage
        self._require_bounded(estimator, table, job.every)
        if job.queries is not None:
            readings = estimator.readings_at(table, job.queries, coverage=coverage)
        elif job.every is not None:
            readings = estimator.readings_at(table, estimator.grid(table, job.every), coverage=coverage)
        elif isinstance(estimator, Imputer):
            readings = estimator.fill_readings(table, coverage=coverage)
        else:
            raise RequestError(
                "bad_request", "Which readings? Give 'every' for regular times, or 'queries' for your own."
            )
        frame = (readings if job.queries is not None else readings.with_dates()).frame()
        content = {"model": model.name, "run": model.run, "readings": frame, "coverage": coverage, "notes": notes}
        return self._reply(job, table, content, frame)

    def _require_bounded(self, estimator: ReadingsEstimator, table: EventTable, every: float | None) -> None:
        """Raise if a request covers so much time that it would exceed the limits of queries or windows."""
        first, last = spans(table)
        factor = SECONDS[estimator.time_unit_] / SECONDS[table.time_unit]
        reach = last - first
        if isinstance(estimator, Forecaster):
            reach = reach + float(estimator.horizon) * factor
        observed = estimator.scaler_.observed
        steps = float((1 / (estimator.interval_[observed] * factor)).sum())
        if every is not None and every > 0:
            steps = float(observed.sum()) / every
        asked = float(reach.sum()) * steps + len(table) * float(observed.sum())
        if not asked <= self.limits.queries:
            raise RequestError(
                "too_large",
                f"The samples last {float(reach.sum()):g} {table.time_unit} together, so about {asked:,.0f} readings "
                f"would be asked for; at most {self.limits.queries:,} are. Send shorter samples, or a larger 'every'.",
            )

    def _graph(self, job: Job, model: Served, table: EventTable, notes: list[str]) -> Reply:
        """The strongest edges of each sample's sensor graph."""
        self._require_few(table)
        graphs = model.estimator.graphs(table)
        content = {
            "model": model.name,
            "run": model.run,
            "graphs": [
                {"sample": name, "edges": graph.top(job.edges).to_dicts(), "empty": graph.describe_empty()}
                for name, graph in graphs.items()
            ],
            "notes": notes,
        }
        edges = [graph.top(job.edges).with_columns(sample=pl.lit(name)) for name, graph in graphs.items()]
        return self._reply(job, table, content, pl.concat(edges).select("sample", "sender", "receiver", "weight"))

    def _require_few(self, table: EventTable) -> None:
        if len(table) > self.limits.explained:
            raise RequestError(
                "too_large",
                f"The request has {len(table):,} samples; contributions and graphs are computed for at most "
                f"{self.limits.explained} at a time.",
            )

    # ---------------------------------------------------------------- shared

    def _alone(self, job: Job) -> Reply:
        model = self._model_of(job)
        answer: Callable[[Job, Served, EventTable, list[str]], Reply]
        if job.kind in ("predict", "readings"):  # 'predict' of an imputer or a forecaster comes by the V2 protocol
            answer = self._readings
        else:
            answer = self._explain if job.kind == "explain" else self._graph
        with Notes() as warned:
            table, notes = self._table(job)
            reply = answer(job, model, table, notes)
        if warned and reply.media_type == JSON and job.format != "v2":
            content = msgspec.json.decode(reply.body)
            content["notes"] = [*content["notes"], *warned]
            reply.body = msgspec.json.encode(content)
        return reply

    def _model_of(self, job: Job) -> Served:
        if job.model:
            for one in self.served.values():
                if one.name == job.model:
                    return one
            raise RequestError("not_found", f"There is no model '{job.model}' here.")
        wanted = {"readings": ("imputer", "forecaster"), "graph": ("samples", "imputer", "forecaster")}
        for kind in wanted.get(job.kind, ("samples",)):
            if kind in self.served:
                return self.served[kind]
        what = {"readings": "that fills or forecasts readings"}.get(job.kind, "that predicts samples")
        how = {"readings": "raindrop impute train"}.get(job.kind, "raindrop train")
        raise RequestError(
            "not_served", f"No model {what} is served. Train one ('{how}') and name its run in 'raindrop serve'."
        )

    def _table(self, job: Job) -> tuple[EventTable, list[str]]:
        """The readings of a job, and a note on missing static attributes."""
        estimator = self._model_of(job).estimator
        table = table_of(job, estimator.scaler_, estimator.time_unit_, self.limits)
        return with_all_statics(table, estimator.scaler_)

    def _reply(self, job: Job, table: EventTable, content: dict[str, Any], frame: pl.DataFrame) -> Reply:
        """The reply in the requested format."""
        size = len(table), table.num_readings
        if job.format == "arrow":
            out = BytesIO()
            frame.write_ipc_stream(out, compression="uncompressed")
            return Reply(job.number, ARROW, out.getvalue(), samples=size[0], readings=size[1])
        if job.format == "v2":
            body = protocol_v2.response(content["model"], content["run"], job.id, frame, job.outputs)
            return Reply(job.number, JSON, body, samples=size[0], readings=size[1])
        ready = {
            name: (value.to_dicts() if name == "predictions" else value.to_dict(as_series=False))
            if isinstance(value, pl.DataFrame)
            else value
            for name, value in content.items()
        }
        body = msgspec.json.encode(ready, enc_hook=str)
        return Reply(job.number, JSON, body, samples=size[0], readings=size[1])

    # ---------------------------------------------------------------- about the models

    def warm_up(self) -> None:
        """Send one request to each model: the first pass through a network is slow."""
        for one in self.served.values():
            kind: Kind = "predict" if one.kind == "samples" else "readings"
            every = None if one.kind != "forecaster" else float(one.estimator.horizon)
            columns = Columns(**example(one.estimator, "", 0.0)["readings"])
            self.of_batch([Job(0, kind, readings=columns, model=one.name, every=every)])
        self.drift = self._new_drift()  # do not count the example

    def close(self) -> None:
        """Nothing needs to be saved."""

    def gauges(self) -> list[Watched]:
        """The drift gauges if there are new values; otherwise empty."""
        return [] if self.drift is None else self.drift.gauges()

    def _new_drift(self) -> DriftGauges | None:
        return DriftGauges(self.served["samples"].estimator) if "samples" in self.served else None

    def cards(self) -> list[dict[str, Any]]:
        """What the service needs to know, and publishes, about each model."""
        return [card_of(one.name, one.kind, one.estimator) for one in self.served.values()]


class _failing_into:
    """Turns an exception into the reply of a job."""

    def __init__(self, replies: dict[int, Reply], job: Job):
        self.replies, self.job = replies, job

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            return False
        failure = as_request_error(error)
        place = place_of(error) if failure.code == "internal" else ""
        self.replies[self.job.number] = Reply(self.job.number, code=failure.code, message=failure.message, place=place)
        return True


def _coverage(coverage: float | None) -> dict[str, float]:
    return {} if coverage is None else {"coverage": coverage}


def _explained(view: Any, predicted: Any, at: int) -> list[str]:
    """The name of each output: the class, the label or the quantity."""
    if hasattr(view, "explained"):
        return [str(view.classes[int(view.explained(predicted[at : at + 1])[0])])]
    return [str(label) for label in view.task.labels]
