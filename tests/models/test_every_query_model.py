"""What every model promises that answers queries: the value of a sensor at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import assert_close
from torch import Tensor

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.gap_windows import GapWindows
from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import Windows
from raindrop.config import make
from raindrop.estimators import Imputer, load
from raindrop.models.base import DataSpec, DirectModel, Model
from raindrop.models.registry import QUERY_MODELS
from raindrop.table.event_table import EventTable
from raindrop.tasks.readings import LEVELS, ReadingsAt

NETWORKS = [name for name, entry in QUERY_MODELS.items() if not issubclass(entry.model, DirectModel)]
QUICK = {"trees": {"rounds": 4, "min_samples": 2}}
SAMPLES, SENSORS, EMPTY = 8, 4, 7
ROUNDINGS = 256  # a recurrence over nine timestamps of about four sums each: 36 * ONE_SUM, rounded down
every_model = pytest.mark.parametrize("name", QUERY_MODELS)
every_network = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    """Sample 0 has no reading of sensor 1, sample 6 has one reading, sample 7 has none."""
    return make_table(samples=SAMPLES, sensors=SENSORS, times=9)


@pytest.fixture
def source(table: EventTable) -> GapWindows:
    interval = typical_intervals(table)
    windows = Windows.cut(table, float(np.median(interval)))
    return GapWindows(table, Scaler.fit(table), windows, Gaps.learn(table, interval))


@pytest.fixture
def build(name: str, source: GapWindows) -> Callable[..., Model]:
    """A function from a seed to a model that is ready to answer."""

    def build_model(seed: int = 0) -> Model:
        entry, sensors = QUERY_MODELS[name], source.table.sensors
        torch.manual_seed(seed)
        settings = entry.presets["tuned"].get("model", {}) | QUICK.get(name, {})
        spec = DataSpec(sensors, ReadingsAt(sensors), source.scaler.static_width, (0.0, 50.0))
        model = entry.model(make(entry.config, settings), spec)
        if isinstance(model, DirectModel):
            model.fit(source, None, seed)
        else:
            model.prepare(source, None, seed)
        return model.eval()

    return build_model


@pytest.fixture
def model(build: Callable[..., Model]) -> Model:
    return build()


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    """Each sensor of each sample, between its readings, at some of its timestamps, and outside."""
    batch = make_batch(table)
    times = torch.tensor([-1.0, 10.02, 24.99, 40.01, 55.0], dtype=torch.float64)
    sample, sensor, at = (x.flatten() for x in torch.meshgrid(*map(torch.arange, (8, 4, 5)), indexing="ij"))
    step = torch.arange(0, batch.num_steps, 3)
    return replace(
        batch,
        target=None,
        queries=Queries(
            torch.cat([sample, batch.step_sample[step]]),
            torch.cat([sensor, step % SENSORS]),
            torch.cat([times[at], batch.time[step]]),
        ),
    )


@torch.no_grad()
def answers(model: Model, batch: Batch) -> Tensor:
    return model(batch).scores


def some(batch: Batch, rows: Tensor | list[int]) -> Batch:
    """The batch with these queries only."""
    return replace(batch, queries=batch.queries[rows])


# ------------------------------------------------------------------ shapes


@every_model
def test_scores_are_finite_with_one_row_per_query_and_one_column_per_quantile(model, batch):
    scores = answers(model, batch)
    assert scores.shape == (len(batch.queries), len(LEVELS))
    assert scores.isfinite().all()


@every_network
def test_the_median_of_a_fresh_network_is_its_middle_score(name, build, batch):
    """Quantiles are sorted before they are used; the imputed value must stay in the middle."""
    if name == "raindrop":
        pytest.skip("its scores are free, and the loss puts them in order")
    scores = answers(build(), batch)
    assert (scores.diff(dim=1) > 0).all()


# ------------------------------------------------------------------ an answer is its query's own


@every_model
def test_an_answer_does_not_depend_on_other_queries(model, batch):
    together = answers(model, batch)
    for row in range(0, len(batch.queries), 7):
        assert_close(answers(model, some(batch, [row]))[0], together[row], roundings=ROUNDINGS)


@every_model
@pytest.mark.parametrize("seed", range(2))
def test_answers_come_in_the_order_of_the_queries(model, batch, seed):
    order = torch.randperm(len(batch.queries), generator=torch.Generator().manual_seed(seed))
    assert_close(answers(model, some(batch, order)), answers(model, batch)[order], roundings=ROUNDINGS)


@every_model
@pytest.mark.parametrize("chosen", [[0], [3, 0], [EMPTY, 5], [6, 7, 1, 2, 4, 3, 0, 5]])
def test_an_answer_does_not_depend_on_other_samples_or_their_order(model, table, batch, make_batch, chosen):
    together, queries = answers(model, batch), batch.queries
    other = make_batch(table, chosen)
    place = torch.full((SAMPLES,), -1)
    place[torch.tensor(chosen)] = torch.arange(len(chosen))
    rows = torch.flatten(torch.nonzero(place[queries.sample] >= 0))
    asked = Queries(place[queries.sample[rows]], queries.sensor[rows], queries.time[rows])
    assert_close(answers(model, replace(other, queries=asked)), together[rows], roundings=ROUNDINGS)


@pytest.mark.slow
@every_model
def test_a_query_at_a_reading_is_answered_as_if_that_reading_were_not_there(model, batch):
    """Also where other sensors were read at the same time, and where the model has seen later readings."""
    for n in torch.flatten(torch.nonzero(batch.rank[batch.step] > 0))[::5].tolist():
        query = Queries(batch.sample[[n]], batch.sensor[[n]], batch.time[batch.step[[n]]])
        asked = replace(batch, queries=query)
        value = batch.value.clone()
        value[n] += 5
        alone = (batch.step == batch.step[n]).sum() == 1
        kept = torch.arange(len(value)) != n
        without = replace(
            asked,
            value=value[kept],
            sensor=batch.sensor[kept],
            step=(batch.step - (batch.step > batch.step[n]).long() * alone)[kept],
            time=batch.time[torch.arange(batch.num_steps) != batch.step[n]] if alone else batch.time,
            step_sample=batch.step_sample[torch.arange(batch.num_steps) != batch.step[n]]
            if alone
            else batch.step_sample,
        )
        expected = answers(model, without)
        assert_close(answers(model, asked), expected, roundings=ROUNDINGS)
        assert_close(answers(model, replace(asked, value=value)), expected, roundings=ROUNDINGS)


@every_network
def test_readings_before_and_after_a_query_change_its_answer_and_those_of_other_samples_do_not(model, batch):
    asked = Queries(torch.tensor([0]), torch.tensor([0]), torch.tensor([24.99], dtype=torch.float64))
    batch = replace(batch, queries=asked)
    before, mine = batch.time[batch.step] < 24.99, batch.sample == 0
    answer = answers(model, batch)
    for changed in (before & mine, ~before & mine):
        assert changed.any()
        assert not torch.allclose(answers(model, replace(batch, value=batch.value + changed)), answer)
    assert_close(answers(model, replace(batch, value=batch.value + ~mine)), answer, roundings=ROUNDINGS)


@every_network
def test_a_query_after_all_readings_is_answered_from_them(model, batch):
    """A forecast."""
    asked = Queries(torch.tensor([0, 3]), torch.tensor([0, 2]), torch.tensor([60.0, 70.0], dtype=torch.float64))
    batch = replace(batch, queries=asked)
    answer, changed = answers(model, batch), answers(model, replace(batch, value=batch.value + (batch.sample == 0)))
    assert answer.isfinite().all()
    assert not torch.allclose(answer[0], changed[0])
    assert_close(answer[1], changed[1], roundings=ROUNDINGS)


# ------------------------------------------------------------------ little or nothing observed


@every_model
def test_samples_without_readings_are_answered_and_learned_from(model, table, make_batch):
    batch = make_batch(table, [EMPTY, EMPTY])
    assert batch.num_steps == 0
    asked = Queries(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 3]), torch.tensor([0.0, 5.0, 9.0]).double())
    scores = model(replace(batch, queries=asked)).scores
    assert scores.shape == (3, len(LEVELS))
    assert scores.isfinite().all()
    if scores.requires_grad:
        scores.sum().backward()
        assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


@every_model
def test_a_shifted_clock_changes_nothing(model, batch):
    """Times are Unix seconds or hours since admission; only differences matter, in double precision."""
    late = replace(batch, time=batch.time + 2**30, queries=replace(batch.queries, time=batch.queries.time + 2**30))
    # The sum rounds times to 2^-22, and differences of up to 50 lose as much: 2^-22 / 2^-23 roundings of each.
    assert_close(answers(model, late), answers(model, batch), roundings=2 * ROUNDINGS, magnitude=2.0)


# ------------------------------------------------------------------ learning


@every_network
def test_every_parameter_learns(model, source):
    batch = source.batch(np.arange(len(source)), rng=np.random.default_rng(0))
    output = model.train()(batch)
    (ReadingsAt(source.table.sensors).loss(output.scores, batch.target) + output.penalty).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} receives no gradient"
        assert weight.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert weight.grad.any(), f"{name} has a gradient of 0"


@every_network
def test_a_loaded_state_gives_the_same_answers(build, batch):
    first, second = build(seed=0), build(seed=1)
    assert not torch.allclose(answers(first, batch), answers(second, batch))
    second.load_state_dict(first.state_dict())
    assert torch.equal(answers(first, batch), answers(second, batch))


@every_model
def test_a_saved_imputer_answers_as_before(name, table, tmp_path):
    network = name in NETWORKS
    config = {"train.epochs": 2} if network else {f"model.{key}": value for key, value in QUICK.get(name, {}).items()}
    imputer = Imputer(name, config=config).fit(table, validation=table)
    imputer.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    queries = {"sample": ["sample 0", "sample 2"], "time": [20.0, 30.5], "sensor": ["sensor 1", "sensor 3"]}
    first, again = (each.readings_at(table, queries) for each in (imputer, loaded))
    assert np.isfinite(first.value).all()
    assert np.array_equal(first.value, again.value)
    assert np.array_equal(first.low, again.low)
