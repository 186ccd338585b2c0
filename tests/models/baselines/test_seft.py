"""SeFT compared with loops written from its paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import assert_close

from raindrop.models.baselines.seft import SeFT, SeFTConfig, cumulative_mean

SMALL = {"layers": 1, "width": 8, "latent": 5, "heads": 3, "key_dim": 7, "head_width": 8, "dropout": 0.0}


def build(table, make_spec, **settings):
    torch.manual_seed(0)
    return SeFT(SeFTConfig(**SMALL | settings), make_spec(table)).eval()


def elements(model, batch, b):
    """The set of sample b: its statics, then its readings."""
    rows = [model.encode_statics(batch.statics[b])]
    for value, sensor, step in zip(batch.value, batch.sensor, batch.step, strict=True):
        if batch.step_sample[step] == b:
            time = model.clock.rescale(batch.time[step])
            waves = [wave for scale in (1.0, 100.0) for wave in (torch.sin(time / scale), torch.cos(time / scale))]
            one_hot = [float(sensor == v) for v in range(batch.num_sensors)]
            rows.append(torch.tensor([*waves, value, *one_hot], dtype=torch.float32))
    return torch.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["whole", "cumulative"])
def test_a_sample_is_its_attended_set(table, batch, make_spec, context):
    """Eq. 1 and 3-4. For the whole set, any function f' of it as context must give the same result."""
    model = build(table, make_spec, context=context)
    attention = model.attention
    with torch.no_grad():
        embedding = model(batch).embedding
        for b in range(5):
            s = elements(model, batch, b)
            times = [-1.0] + [float(batch.time[step]) for step in batch.step if batch.step_sample[step] == b]
            expected = []
            for i in range(3):
                scores = []
                for j in range(len(s)):
                    key = s[j] @ attention.W[i]
                    if context == "cumulative":
                        upto = [attention.f(s[l]) for l in range(len(s)) if times[l] <= times[j]]
                        key = key + torch.stack(upto).mean(0) @ attention.W_context[i]
                    else:
                        key = key + s.mean(0).exp().sum()  # some f'(S), the same for all elements
                    scores.append(key @ attention.Q[i] / 7**0.5)
                a = torch.softmax(torch.stack(scores), dim=0)
                expected.append(sum(a[j] * model.h(s[j]) for j in range(len(s))))
            assert_close(embedding[b], torch.cat(expected))


def test_the_cumulative_mean_of_a_sample_does_not_depend_on_the_others(batch):
    x = torch.randn(5 + len(batch.value), 3)
    mean = cumulative_mean(batch, x)
    changed = x.clone()
    changed[:5][0], changed[5:][batch.sample == 0] = 1e6, 1e6
    others = torch.cat([torch.arange(5) != 0, batch.sample != 0])
    assert_close(cumulative_mean(batch, changed)[others], mean[others])


def test_the_order_of_readings_at_one_time_does_not_matter(table, batch, make_spec):
    model = build(table, make_spec, context="cumulative")
    rng = np.random.default_rng(0)
    order = torch.from_numpy(np.lexsort([rng.random(len(batch.value)), batch.step.numpy()]))
    shuffled = replace(batch, value=batch.value[order], sensor=batch.sensor[order])
    assert not torch.equal(shuffled.sensor, batch.sensor)
    with torch.no_grad():
        assert_close(model(shuffled).scores, model(batch).scores)


def test_attention_is_dropped_in_training_only(table, batch, make_spec):
    model = build(table, make_spec, attention_dropout=0.5)
    with torch.no_grad():
        assert torch.equal(model(batch).scores, model(batch).scores)
        model.train()
        assert not torch.equal(model(batch).scores, model(batch).scores)


def test_the_cumulative_context_learns(table, batch, make_spec):
    model = build(table, make_spec, context="cumulative")
    model(batch).scores.sum().backward()
    assert all(weight.grad.any() for weight in model.attention.f.parameters())
