"""The one loop: what it keeps, when it stops, what it leaves alone. A linear model stands for all networks."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from class_tasks import classes
from closeness import assert_close
from learnable import easy_table
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.config import make
from raindrop.errors import ConfigError, DataError, TrainingError
from raindrop.models.base import DataSpec, Model, Output
from raindrop.table.event_table import EventTable
from raindrop.tasks.classification import Classification
from raindrop.training import loop as training
from raindrop.training.callbacks import board_of
from raindrop.training.config import TrainConfig
from raindrop.training.scoring import scores_of

TASK = classes(2)


def train(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    return training.train(*arguments, task=TASK, **options)


def probabilities(model: Model, data: Collator) -> np.ndarray:
    return TASK.predict(scores_of(model, data))


class Linear(Model):
    """Logistic regression on the sum of each sensor's readings."""

    def __init__(self, dropout: float = 0.0, weight: float = 1.0):
        super().__init__(None, DataSpec(("a",), classes(2)))
        self.linear = nn.Linear(3, 2)
        self.dropout = nn.Dropout(dropout)
        self.weight = weight

    def forward(self, batch: Batch) -> Output:
        flat = batch.value.new_zeros(batch.num_samples * 3).index_add(0, batch.sample * 3 + batch.sensor, batch.value)
        sums = self.dropout(flat.view(-1, 3))
        return Output(self.linear(sums) * self.weight, sums, sums.new_zeros(()))


class Spoiled(Linear):
    """A finite loss with a gradient that is not."""

    def forward(self, batch: Batch) -> Output:
        return replace(super().forward(batch), penalty=(self.linear.weight.sum() * 0).sqrt())


def collator(table: EventTable) -> Collator:
    return Collator(table, Scaler.fit(table), truth=TASK.encode(table))


@pytest.fixture(scope="module")
def learning() -> Collator:
    return collator(easy_table(64))


@pytest.fixture(scope="module")
def checking() -> Collator:
    return collator(easy_table(40, seed=1))


def config(**changes: Any) -> TrainConfig:
    return make(TrainConfig, {"batch_size": 32, "epochs": 4, "learning_rate": 0.05, **changes})


def linear(seed: int = 0, **options: float) -> Linear:
    torch.manual_seed(seed)
    return Linear(**options)


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])


def spy(monkeypatch: pytest.MonkeyPatch, after: Callable[..., None]) -> None:
    """Call `after(model, optimiser, batch positions)` behind every step."""
    step = training._step

    def watched(model: Any, data: Any, positions: Any, config: Any, task: Any, optimiser: Any, *rest: Any) -> float:
        loss = step(model, data, positions, config, task, optimiser, *rest)
        after(model, optimiser, positions)
        return loss

    monkeypatch.setattr(training, "_step", watched)


def scripted(monkeypatch: pytest.MonkeyPatch, name: str, values: list[float], model: nn.Module) -> list[Tensor]:
    """Validation says `values`, one per epoch; what comes back fills with the weights it was said of."""
    seen: list[Tensor] = []
    answers: Iterator[float] = iter(values)

    evaluate = Classification.evaluate

    def answer(task: Any, truth: Any, probability: Any, names: Any = None) -> dict[str, float]:
        if len(np.unique(probability, axis=0)) == 1:  # the constant prediction by which a metric is checked first
            return evaluate(task, truth, probability, names)
        seen.append(weights_of(model))
        return {**evaluate(task, truth, probability, names), name: next(answers)}

    monkeypatch.setattr(Classification, "evaluate", answer)
    return seen


# ---------------------------------------------------------------- learning and choosing


def test_the_loss_falls_and_what_was_learned_is_right(learning: Collator, checking: Collator) -> None:
    model = linear()
    history = train(model, learning, checking, config(epochs=10))
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert history[-1]["validation"]["auroc"] > 0.95
    assert [record["epoch"] for record in history] == list(range(1, 11))


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [("auroc", [0.5, 0.9, 0.7, 0.9], 1), ("accuracy", [0.1, 0.2, 0.3, 0.2], 2), ("log_loss", [3.0, 1.0, 2.0, 4.0], 1)],
)
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_the_epoch_that_validated_best_is_what_remains(
    metric: str,
    values: list[float],
    best: int,
    average: float,
    learning: Collator,
    checking: Collator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = linear()
    seen = scripted(monkeypatch, metric, values, model)
    history = train(model, learning, checking, config(metric=metric, ema_decay=average))
    assert [record["validation"][metric] for record in history] == values
    assert torch.equal(weights_of(model), seen[best])
    assert not torch.equal(seen[best], seen[-1])
    assert not model.training


def test_without_validation_the_last_weights_remain(learning: Collator, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = linear(), []
    spy(monkeypatch, lambda model, *_: seen.append(weights_of(model)))
    history = train(model, learning, None, config())
    assert torch.equal(weights_of(model), seen[-1])
    assert "validation" not in history[-1]


def test_training_stops_after_patience_epochs_without_a_better_one(
    learning: Collator, checking: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = linear()
    seen = scripted(monkeypatch, "auroc", [0.5, 0.6, 0.6, 0.55, 0.9, 0.9], model)
    history = train(model, learning, checking, config(epochs=6, patience=2))
    assert len(history) == 4
    assert torch.equal(weights_of(model), seen[1])


def test_without_patience_every_epoch_is_run(
    learning: Collator, checking: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = linear()
    scripted(monkeypatch, "auroc", [0.9, 0.1, 0.1, 0.1], model)
    assert len(train(model, learning, checking, config())) == 4


def test_validation_samples_of_one_class_cannot_choose_by_auroc_but_by_log_loss(learning: Collator) -> None:
    table = easy_table(40, seed=1)
    one_class = collator(table[table.labels == 1])
    with pytest.raises(DataError, match=r"All 20 validation samples are alike, so there is no AUROC"):
        train(linear(), learning, one_class, config())
    history = train(linear(), learning, one_class, config(metric="log_loss"))
    assert math.isnan(history[-1]["validation"]["auroc"])


# ---------------------------------------------------------------- steps


def rates(learning: Collator, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[float]:
    found: list[float] = []
    spy(monkeypatch, lambda model, optimiser, _: found.append(optimiser.param_groups[0]["lr"]))
    train(linear(), learning, None, config(learning_rate=1.0, **changes))
    return found


def test_the_cosine_schedule_falls_from_the_learning_rate_towards_zero(
    learning: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rates(learning, monkeypatch, schedule="cosine")
    assert found == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)])


def test_warmup_rises_in_even_steps_and_then_stays(learning: Collator, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rates(learning, monkeypatch, warmup=0.5)
    assert found[0] < 0.01
    assert np.diff(found[:5]) == pytest.approx(0.25, abs=0.01)
    assert found[4:] == [1.0] * 4


def test_without_either_the_learning_rate_is_constant(learning: Collator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rates(learning, monkeypatch) == [1.0] * 8


@pytest.mark.parametrize(("clip", "most"), [(0.1, 0.1), (0.0, math.inf)])
def test_a_gradient_is_not_longer_than_clip(
    clip: float, most: float, learning: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[float] = []

    def measure(model: nn.Module, *_: Any) -> None:
        norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()))

    spy(monkeypatch, measure)
    train(linear(), learning, None, config(epochs=1, max_grad_norm=clip))
    assert max(norms) <= most + 1e-6
    assert clip or max(norms) > 0.3


def test_the_moving_average_is_what_is_kept(learning: Collator, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = linear(), []
    expected = weights_of(model)
    spy(monkeypatch, lambda model, *_: seen.append(weights_of(model)))
    train(model, learning, None, config(ema_decay=0.3))
    for step, weights in enumerate(seen):
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weights
    assert_close(weights_of(model), expected)
    assert not torch.allclose(expected, seen[-1])


@pytest.mark.parametrize(
    ("counts", "sampling", "balanced"),
    [
        ([52, 12], "auto", True),
        ([40, 24], "auto", False),
        ([48, 16], "auto", False),
        ([52, 12], "natural", False),
        ([32, 32], "balanced", True),
    ],
)
def test_batches_are_balanced_where_a_class_is_rarer_than_half_its_share(
    counts: list[int], sampling: str, balanced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = easy_table(64).with_labels(np.repeat([0, 1], counts))
    shares: list[float] = []
    spy(monkeypatch, lambda model, optimiser, positions: shares.append(float(table.labels[positions].mean())))
    train(linear(), collator(table), None, config(sampling=sampling, batch_size=16, epochs=2))
    assert (set(shares) == {0.5}) == balanced
    assert balanced or np.mean(shares) == pytest.approx(counts[1] / 64)


def test_a_balanced_batch_too_small_for_the_classes_is_refused(learning: Collator) -> None:
    with pytest.raises(
        ConfigError, match=r"A balanced batch of 1 samples cannot hold all 2 classes; raise train.batch_size"
    ):
        train(linear(), learning, None, config(sampling="balanced", batch_size=1))


@pytest.mark.parametrize("dropped", ["drop_readings", "drop_sensors"])
def test_readings_are_dropped_in_training_and_never_in_validation(
    dropped: str, learning: Collator, checking: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    forward = Linear.forward

    def watched(self: Linear, batch: Batch) -> Output:
        sizes[self.training].append((batch.num_samples, len(batch.value)))
        return forward(self, batch)

    monkeypatch.setattr(Linear, "forward", watched)
    model = linear()
    train(model, learning, checking, config(epochs=2, **{dropped: 0.9}))
    whole = learning.table.num_readings
    assert all(size == (40, checking.table.num_readings) for size in sizes[False])
    drawn = [sum(size for _, size in sizes[True][start : start + 2]) for start in (0, 2)]
    assert all(0.3 * whole < size < 0.8 * whole for size in drawn)
    assert drawn[0] != drawn[1]
    other = linear()
    train(other, learning, checking, config(epochs=2))
    assert not torch.equal(weights_of(model), weights_of(other))


# ---------------------------------------------------------------- seeds


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(learning: Collator, checking: Collator) -> None:
    found = []
    for seed in (3, 3, 4):
        model = linear(dropout=0.5)
        torch.manual_seed(seed * 17 + len(found))  # what the caller has drawn does not matter
        train(model, learning, checking, config(drop_readings=0.5), seed=seed)
        found.append(weights_of(model))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_no_global_random_state_is_touched(learning: Collator, checking: Collator) -> None:
    model = linear(dropout=0.5)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    train(model, learning, checking, config(drop_readings=0.5))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1][1], np.random.get_state()[1])  # noqa: NPY002
    assert before[2] == random.getstate()


# ---------------------------------------------------------------- trouble, logs


def test_a_loss_that_is_not_finite_is_one_readable_error(learning: Collator, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"The loss became nan in epoch 1, step 1\. Lower train.learning_rate"):
        train(linear(weight=math.nan), learning, None, config(), run=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_weights_that_the_last_step_spoiled_are_one_readable_error(learning: Collator, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"The weights are no longer finite after epoch 1\. Lower train"):
        train(Spoiled(), learning, None, config(batch_size=64), run=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_validation_that_is_not_finite_is_one_readable_error(
    learning: Collator, checking: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy(monkeypatch, lambda model, *_: setattr(model, "weight", math.inf))
    with pytest.raises(TrainingError, match=r"The validation of epoch 1 is not finite\. Lower train"):
        train(linear(), learning, checking, config(batch_size=64))


def test_the_log_has_a_line_per_epoch_with_the_validation_figures(
    learning: Collator, checking: Collator, tmp_path: Path
) -> None:
    history = train(linear(), learning, checking, config(), run=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == history
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert set(lines[0]["validation"]) >= {"auroc", "auprc", "accuracy", "log_loss", "brier"}


def test_the_log_is_json_for_every_reader_also_where_a_figure_is_missing(learning: Collator, tmp_path: Path) -> None:
    table = easy_table(40, seed=1)
    train(linear(), learning, collator(table[table.labels == 1]), config(metric="log_loss"), run=tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    first = (tmp_path / "log.jsonl").read_text().splitlines()[0]
    assert json.loads(first, parse_constant=refuse)["validation"]["auroc"] is None


def test_tensorboard_gets_its_files(learning: Collator, checking: Collator, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(linear(), learning, checking, config(), callbacks=[board_of(tmp_path)])
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"validation/auroc" in file.read_bytes()


def test_tensorboard_without_a_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="give one with run='FOLDER'"):
        board_of(None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1 and at most 10,000,000, not 0"),
        ({"holdout": 1.0}, "holdout must be at least 0 and below 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be above 0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be at least 0"),
        ({"patience": -1}, "patience must be at least 0"),
        ({"sampling": "balance"}, "did you mean 'balanced'"),
    ],
)
def test_an_impossible_setting_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_an_unknown_metric_is_named(learning: Collator) -> None:
    with pytest.raises(ConfigError, match="Unknown metric 'auroq': did you mean 'auroc'"):
        train(linear(), learning, None, config(metric="auroq"))


def test_probabilities_do_not_depend_on_how_the_samples_are_cut_into_batches(
    checking: Collator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = linear()
    whole = probabilities(model, checking)
    monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 60)
    assert_close(probabilities(model, checking), whole)
    assert np.allclose(whole.sum(1), 1)
