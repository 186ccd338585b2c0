"""The scores of a single sample in NumPy are those of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from learnable import SENSORS, easy_table

from raindrop import EventTable
from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.config import make
from raindrop.models.base import DataSpec
from raindrop.models.raindrop import one_sample
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.registry import MODELS
from raindrop.tasks.classification import Classification
from raindrop.training.scoring import scores_of

TUNED = MODELS["raindrop"].presets["tuned"]["model"]
FITTING = [
    {},
    {"graph.sides": "before"},
    {"graph.scales": ()},
    {"graph.rank": 1, "mask_indicator": False},
    {"temporal_attention.heads": 2, "temporal_attention.scores": "mean"},
    {"head.members": 0, "head.activation": "sigmoid"},
    {"slots.rank": 0},
    {"ablation.messages": False, "graph.reconstruction": 0.0},
    {"ablation.messages": False, "graph.reconstruction": 0.0, "graph.senders": "observed"},
    {"long_series.mode": "cut", "long_series.max_times": 50},
]
NOT_FITTING = [
    {"readout": "mean"},
    {"sample_dim": 8},
    {"slots.dim": 0, "slots.rank": 0},
    {"temporal": "mean"},
    {"graph.initial_edges": ((SENSORS[0], SENSORS[1], 0.5),)},
    {"long_series.mode": "thin", "long_series.max_times": 2},
    {"ablation.time_encoding": False},
]


@pytest.fixture(scope="module", params=[(), ("age", "ward")], ids=["no statics", "statics"])
def data(request):
    """Samples of several lengths; the last has one reading, and the last but one a sensor that is constant."""
    table = easy_table(24, statics=request.param)
    ids, sensors = table.samples["sample"], [SENSORS[0]] * 3 + [SENSORS[1]]
    events = table.events().filter(~table.events()["sample"].is_in(ids[-2:].implode())).to_dict(as_series=False)
    events["sensor"] = [str(name) for name in events["sensor"]]
    events["sample"] += [ids[-2]] * 3 + [ids[-1]]
    events["time"] += [1.0, 2.0, 4.0, 3.0]
    events["sensor"] += sensors
    events["value"] += [2.0, 2.0, 2.0, 1e30]
    table = EventTable.from_frames(events, table.samples, statics=list(request.param), sensors=list(SENSORS))
    return Collator(table, Scaler.fit(table[:-1]), truth=np.arange(24) % 2)


def build(data: Collator, changes: dict[str, object]):
    torch.manual_seed(0)
    spec = DataSpec(data.table.sensors, Classification("label", np.arange(2)), data.scaler.static_width)
    model = MODELS["raindrop"].model(make(RaindropConfig, TUNED, changes), spec)
    model.prepare(data, None, seed=0)
    with torch.no_grad():
        for parameter in (model.nearby or model.embed).parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("changes", FITTING, ids=str)
def test_every_sample_alone_has_the_scores_that_the_model_gives_it(data, changes):
    model = build(data, changes)
    with torch.inference_mode():
        for at in range(len(data)):
            batch = data.batch(np.array([at]))
            assert one_sample.fits(model.config, batch)
            found = one_sample.scores_of_one(model, batch).softmax(-1)
            torch.testing.assert_close(found, model(batch).scores.softmax(-1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("changes", NOT_FITTING, ids=str)
def test_other_settings_are_left_to_the_model(data, changes):
    config = make(RaindropConfig, TUNED, changes)
    assert not one_sample.fits(config, data.batch(np.array([0])))


def test_several_samples_none_without_readings_and_other_numbers_are_left_to_the_model(data):
    config, batch = make(RaindropConfig, TUNED), data.batch(np.array([0]))
    assert one_sample.fits(config, batch)
    assert not one_sample.fits(config, data.batch(np.array([0, 1])))
    assert not one_sample.fits(config, batch._only(torch.zeros(batch.num_steps, dtype=torch.bool)))


def test_a_sample_that_is_scored_alone_takes_this_way(data, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "raindrop.models.raindrop.model.scores_of_one", lambda model, batch: calls.append(batch) or torch.zeros(1, 2)
    )
    model = build(data, {})
    scores_of(model, data.part(np.array([2])))
    assert len(calls) == 1
    scores_of(model, data)
    assert len(calls) == 1
