"""Small trained models for the tests of the service, and requests for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from learnable import QUICK, easy_table

from raindrop import Classifier, EventTable, Imputer


def train_runs(folder: Path) -> tuple[Path, Path]:
    """A classifier with statics and an imputer of the same table; their folders."""
    table = easy_table(48, classes=("well", "ill"), statics=("age", "ward"))
    classifier, imputer = folder / "ward-risk", folder / "gaps"
    Classifier(config=QUICK | {"train.epochs": 2}, positive="ill").fit(table).save(classifier)
    Imputer("linear").fit(easy_table(48)).save(imputer)
    return classifier, imputer


def columns_of(table: EventTable) -> dict[str, list[Any]]:
    """The readings of a table as a request has them."""
    events = table.events()
    return {name: events[name].cast(str).to_list() if name in ("sample", "sensor") else events[name].to_list()
            for name in ("sample", "time", "sensor", "value")}  # fmt: skip


def statics_of(table: EventTable) -> dict[str, list[Any]]:
    """The static attributes of a table as a request has them."""
    return {name: table.samples[name].to_list() for name in ("sample", "age", "ward")}


def request_of(table: EventTable, **more: Any) -> dict[str, Any]:
    """The body of a request to predict."""
    return {"readings": columns_of(table), "samples": statics_of(table), **more}
