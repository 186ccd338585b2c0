"""Metrics of the service, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from raindrop.serve.messages import Watched

State = Callable[[], dict[str, float]]
Models = Callable[[], list[dict[str, Any]]]
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


class Metrics:
    """Counters of requests, and the values that `state` returns when metrics are requested."""

    def __init__(self, state: State, models: Models, watched: Callable[[], list[Watched]]):
        """state: values by name, counters end in _total; watched: gauges of the workers, such as drift."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "raindrop_requests", "Requests by route and status.", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "raindrop_request_seconds", "Time from a request to its answer.", ("route",),
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.errors = Counter("raindrop_errors", "Answers with an error, by code.", ("code",), registry=self.registry)
        self.samples = Counter("raindrop_samples", "Samples that were answered for.", registry=self.registry)
        self.readings = Counter("raindrop_readings", "Readings that were answered for.", registry=self.registry)
        self.batch = Histogram(
            "raindrop_batch_samples", "Samples that were scored together.", buckets=SAMPLES, registry=self.registry
        )
        self.in_flight = Gauge(
            "raindrop_requests_in_flight", "Requests that are being answered.", registry=self.registry
        )
        self.registry.register(_Live(state, models, watched))

    def answered(self, route: str, status: int, seconds: float, code: str, samples: int, readings: int) -> None:
        """Count a request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        if code:
            self.errors.labels(code).inc()
        self.samples.inc(samples)
        self.readings.inc(readings)

    def text(self) -> bytes:
        """All metrics."""
        return bytes(generate_latest(self.registry))


class _Live:
    """Values that are looked up when they are requested."""

    def __init__(self, state: State, models: Models, watched: Callable[[], list[Watched]]):
        self.state, self.models, self.watched = state, models, watched

    def collect(self) -> Iterator[Metric]:
        """One family for each value."""
        for name, value in self.state().items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(
                f"raindrop_{name.removesuffix('_total')}", name.replace("_", " ").capitalize() + ".", value=value
            )
        about = GaugeMetricFamily("raindrop_model_info", "The models that are served.", labels=("name", "kind", "run"))
        for card in self.models():
            about.add_metric((card["name"], card["kind"], card["run"]), 1)
        yield about
        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self.watched():
            if name not in families:
                text = name.removeprefix("raindrop_").replace("_", " ").capitalize() + "."
                families[name] = GaugeMetricFamily(name, text, labels=tuple(labels))
            families[name].add_metric(tuple(labels.values()), value)
        yield from families.values()
