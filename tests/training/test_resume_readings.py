"""A killed run of an imputer or a forecaster, resumed, ends with the same weights and intervals."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dying import kill_at
from followers import SMALL, followers
from safetensors.torch import load_file

from raindrop import load
from raindrop.estimators import Forecaster, Imputer

pytestmark = pytest.mark.slow

CONFIG = SMALL | {"train.epochs": 3, "train.batch_readings": 500, "train.checkpoint_minutes": 0.0}
STEPS = 4  # per epoch
STEP = ("raindrop.training.loop", "_step")
PLACES = {
    "in the middle of an epoch": (*STEP, STEPS + 2, "behind"),
    "behind the checkpoint of an epoch": ("raindrop.training.loop", "save_checkpoint", STEPS, "behind"),
    "before the model is written": ("raindrop.estimators.base", "write_model", 1, "before"),
}


def fit(kind: str, run: Path, *, resume: bool = False) -> Any:
    estimator = Imputer(config=CONFIG) if kind == "imputer" else Forecaster(horizon=6.0, config=CONFIG)
    return estimator.fit(followers(24), run=run, resume=resume)


def fit_and_die(kind: str, run: Path, *place: Any) -> None:
    """Fit until this process kills itself."""
    torch.set_num_threads(1)
    kill_at(*place)
    fit(kind, run)


@pytest.fixture(scope="module")
def fresh() -> Any:
    """Processes that have everything imported and nothing else done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["raindrop.estimators", "raindrop.cli.app", "torch._dynamo", "dying", "followers"])
    return context


@pytest.mark.parametrize(("kind", "places"), [("imputer", list(PLACES)), ("forecaster", list(PLACES)[:1])])
def test_a_killed_run_ends_with_the_same_weights(kind: str, places: list[str], fresh: Any, tmp_path: Path) -> None:
    fit(kind, tmp_path / "whole")
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    for place in places:
        run = tmp_path / place
        process = fresh.Process(target=fit_and_die, args=(kind, run, *PLACES[place]))
        process.start()
        process.join(240)
        assert process.exitcode == -signal.SIGKILL
        assert not (run / "model.json").exists()
        fit(kind, run, resume=True)
        resumed = load_file(run / "model.safetensors")
        assert resumed.keys() == expected.keys()
        assert all(torch.equal(resumed[name], expected[name]) for name in expected)
        assert load(run).history_[-1]["loss"] == load(tmp_path / "whole").history_[-1]["loss"]


def test_an_uninterrupted_run_has_as_many_steps_as_batches_of_readings(tmp_path: Path, monkeypatch: Any) -> None:
    """batch_readings counts readings, however long the samples are."""
    from raindrop.training import loop

    sizes, step = [], loop._step

    def count(model: Any, training: Any, positions: Any, *rest: Any) -> float:
        sizes.append(len(positions))
        return step(model, training, positions, *rest)

    monkeypatch.setattr(loop, "_step", count)
    training = followers(24)
    Imputer(config=CONFIG | {"train.epochs": 1}).fit(training, validation=followers(3, seed=1))
    each = round(500 / (training.num_readings / 24))  # samples
    assert sum(sizes) == 24
    assert len(sizes) == -(-24 // each)
    assert np.ptp(sizes) <= 1
