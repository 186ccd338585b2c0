"""One benchmark that ran without interruption, shared by the tests, and processes that start quickly."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import finish, prepare


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TOML file of a tiny table, with its data beside it."""
    return prepare(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def uninterrupted(file: Path) -> dict[str, str]:
    """The tables of a benchmark that ran without interruption, by file ending; its store is FILE/../complete."""
    return finish(file, file.parent / "complete")


@pytest.fixture
def complete(file: Path, uninterrupted: dict[str, str], tmp_path: Path) -> Path:
    """A copy of the store of that benchmark."""
    return shutil.copytree(file.parent / "complete", tmp_path / "complete")


@pytest.fixture(scope="session")
def fresh() -> Any:
    """A multiprocessing context whose processes have imported everything and done nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["raindrop.estimators.classifier", "raindrop.cli.app", "torch._dynamo", "tiny", "dying"]
    )
    return context
