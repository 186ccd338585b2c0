"""Every network runs on a device other than the CPU, while the times of a batch stay on the CPU in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from other_device import Elsewhere, call_elsewhere, other_device

from raindrop.batch.batch import Batch, Queries
from raindrop.config import make
from raindrop.models.base import DataSpec, DirectModel
from raindrop.models.baselines.query_steps import QueryNetwork
from raindrop.models.blend import Blend
from raindrop.models.registry import MODELS, QUERY_MODELS
from raindrop.tasks.readings import ReadingsAt

pytestmark = pytest.mark.slow

NETWORKS = [
    (name, entry.presets[preset].get("model", {}), preset)
    for name, entry in MODELS.items()
    if not issubclass(entry.model, (DirectModel, Blend))  # trees stay on the CPU
    for preset in entry.presets
]
VARIANTS = [
    ("raindrop", {"graph.senders": "embedded", "graph.mixing": "residual"}, "embedded"),
    ("raindrop", {"graph.initial_edges": (("sensor 0", "sensor 1", 1.0),)}, "known graph"),
    ("raindrop", {"temporal": "lstm"}, "lstm"),
    ("raindrop", {"temporal_attention.s": "rank", "readout": "squeeze"}, "rank"),
    ("seft", {"context": "cumulative"}, "cumulative"),
]
CASES = [pytest.param(name, settings, id=f"{name}-{variant}") for name, settings, variant in (*NETWORKS, *VARIANTS)]


@pytest.fixture
def table(make_table):
    return make_table(samples=12, sensors=6, times=10, classes=3)


def elsewhere(batch: Batch) -> Batch:
    """The batch on the other device, except for its times."""
    names = ("value", "sensor", "step", "step_sample", "statics", "target")
    moved = replace(batch, **{name: Elsewhere(getattr(batch, name)) for name in names})
    vars(moved)["rank"] = Elsewhere(batch.rank)
    return moved


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_logits_on_another_device_equal_those_on_the_cpu(name, settings, table, batch, make_spec):
    entry = MODELS[name]
    model = entry.model(make(entry.config, settings), make_spec(table)).eval()
    with torch.no_grad():
        expected = model(batch).scores
    with other_device():
        output = call_elsewhere(model, elsewhere(batch))
    torch.testing.assert_close(output.scores.wrapped, expected)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_penalty_on_another_device_equals_that_on_the_cpu(name, settings, table, batch, make_spec):
    entry = MODELS[name]
    model = entry.model(make(entry.config, settings), make_spec(table)).train()
    torch.manual_seed(0)
    with torch.no_grad():
        expected = model(batch).penalty
    torch.manual_seed(0)
    with other_device():
        penalty = call_elsewhere(model, elsewhere(batch)).penalty
    torch.testing.assert_close(penalty.wrapped, expected)


@pytest.mark.parametrize(
    "name", [name for name, entry in QUERY_MODELS.items() if issubclass(entry.model, QueryNetwork)]
)
@pytest.mark.parametrize("training", [False, True])
def test_answers_to_queries_on_another_device_equal_those_on_the_cpu(name, training, table, batch):
    entry, q = QUERY_MODELS[name], torch.arange(40)
    torch.manual_seed(0)
    settings = entry.presets["tuned"].get("model", {})
    if "dropout" in entry.config.__dataclass_fields__:
        settings = settings | {"dropout": 0.0}  # the two runs would drop different inputs
    spec = DataSpec(table.sensors, ReadingsAt(table.sensors), batch.statics.shape[1])
    model = entry.model(make(entry.config, settings), spec).train(training)
    queries = Queries(q % 12, q % 6, torch.cat([torch.linspace(-1, 51, 30, dtype=torch.float64), batch.time[:10]]))
    with torch.no_grad():
        expected = model(replace(batch, queries=queries))
    moved = replace(elsewhere(batch), queries=Queries(Elsewhere(q % 12), Elsewhere(q % 6), queries.time))
    with other_device():
        output = call_elsewhere(model, moved)
    torch.testing.assert_close(output.scores.wrapped, expected.scores)
    torch.testing.assert_close(output.penalty.wrapped, expected.penalty)


def test_the_other_device_refuses_what_a_real_one_refuses():
    x, y = torch.ones(3), torch.ones(3)
    with other_device():
        with pytest.raises(RuntimeError, match="mixes devices"):
            Elsewhere(x) + y
        with pytest.raises(TypeError, match="no float64"):
            Elsewhere(x).double()
        with pytest.raises(RuntimeError):
            Elsewhere(x).numpy()
        assert (Elsewhere(x) + y.to("meta")).cpu().tolist() == [2.0] * 3
