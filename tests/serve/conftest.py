"""A service with small models: a classifier and an imputer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served_models import train_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return train_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="package")
def service(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running service without tokens; its log is `service.service.log.path`."""
    from asking import PATIENT, Asking

    from raindrop.cli.serve import local_names
    from raindrop.serve.logs import Log
    from raindrop.serve.service import Options, Service

    log = tmp_path_factory.mktemp("service") / "log.jsonl"
    with Asking(
        Service(list(runs), limits=PATIENT, log=Log(log), options=Options(hosts=local_names("127.0.0.1")))
    ) as running:
        yield running


@pytest.fixture(scope="package")
def live_service(service: Any) -> Any:
    """The same, once the worker of live samples has started, which takes long on a busy machine."""
    from asking import wait_until

    wait_until(lambda: service.get("/v1/stream/nobody").status == 404, 600)
    return service
