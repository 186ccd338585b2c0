"""Transformer and Trans-mean compared with loops, and which of them can detect missing readings."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from closeness import assert_close

from raindrop.config import describe, make
from raindrop.errors import ConfigError
from raindrop.models.baselines.transformer import Transformer, TransformerConfig


@pytest.fixture
def table(make_table):
    return make_table(samples=6, sensors=5, times=9)


@pytest.fixture
def build(table, make_spec):
    def build_model(**settings):
        torch.manual_seed(0)
        return Transformer(TransformerConfig(dim=8, heads=2, feedforward=12, **settings), make_spec(table)).eval()

    return build_model


def normalise(x, norm):
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + norm.eps)
    return torch.stack([(a - mean) / deviation for a in x]) * norm.weight + norm.bias


def encode(model, values, observed, times):
    """The embedding of one sample, timestamp by timestamp and head by head, from the equations."""
    config, tokens = model.config, []
    for value, mask, time in zip(values, observed, times, strict=True):
        inputs = [*value, *mask.float()] if config.imputation == "indicator" else list(value)
        p = []
        for i in range(config.dim // 2):
            angle = float(time) / 10000 ** (2 * i / config.dim)
            p += [math.sin(angle), math.cos(angle)]
        embedded = model.embed.weight @ torch.stack(inputs) + model.embed.bias
        tokens.append(math.sqrt(config.dim) * embedded + torch.tensor(p))
    width = config.dim // config.heads
    for layer in model.layers:
        pre = config.norm == "pre"
        normed = [normalise(x, layer.norm_attention) for x in tokens] if pre else tokens
        projected = [layer.qkv.weight @ x + layer.qkv.bias for x in normed]
        q, k, v = ([x[at * config.dim : (at + 1) * config.dim] for x in projected] for at in range(3))
        attended = []
        for i, x in enumerate(tokens):
            heads = []
            for head in range(config.heads):
                part = slice(head * width, (head + 1) * width)
                score = [math.exp(float(q[i][part] @ k[j][part]) / math.sqrt(width)) for j in range(len(tokens))]
                heads.append(sum(e * v[j][part] for j, e in enumerate(score)) / sum(score))
            x = x + layer.W_o.weight @ torch.cat(heads) + layer.W_o.bias
            attended.append(x if pre else normalise(x, layer.norm_attention))
        tokens = []
        for x in attended:
            inner = normalise(x, layer.norm_feedforward) if pre else x
            inner = torch.relu(layer.W_1.weight @ inner + layer.W_1.bias)
            x = x + layer.W_2.weight @ inner + layer.W_2.bias
            tokens.append(x if pre else normalise(x, layer.norm_feedforward))
    if config.norm == "pre":
        tokens = [normalise(x, model.final) for x in tokens]
    return sum(tokens) / len(tokens)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("imputation", ["indicator", "mean"])
def test_the_embedding_is_the_mean_of_attending_timestamps(build, batch, imputation, norm):
    model, grid = build(imputation=imputation, norm=norm), batch.grid()
    embedding = model(batch).embedding
    for b in range(5):
        present = grid.present[b]
        expected = encode(model, grid.value[b, present], grid.observed[b, present], grid.time[b, present])
        assert_close(embedding[b], expected)
    assert not embedding[5].any()  # a sample without readings


@torch.no_grad()
@pytest.mark.parametrize(("imputation", "differs"), [("indicator", True), ("mean", False)])
def test_only_the_indicator_separates_a_reading_of_the_mean_from_a_missing_one(build, batch, imputation, differs):
    step, sensor = (~batch.observed).nonzero()[0]
    added = replace(
        batch,
        value=torch.cat([torch.zeros(1), batch.value]),
        sensor=torch.cat([sensor[None], batch.sensor]),
        step=torch.cat([step[None], batch.step]),
    )
    order = torch.argsort(added.step, stable=True)
    added = replace(added, value=added.value[order], sensor=added.sensor[order], step=added.step[order])
    model = build(imputation=imputation)
    assert torch.allclose(model(added).scores, model(batch).scores, atol=1e-6) != differs


@torch.no_grad()
def test_the_encoding_is_of_real_times_not_of_ranks(build, batch):
    model = build()
    later = replace(batch, time=batch.time * 3)
    difference = (model(later).scores - model(batch).scores).abs().amax(1)
    assert (difference[:5] > 1e-4).all()
    assert difference[5] == 0


def test_a_size_not_divisible_by_the_heads_is_an_error():
    with pytest.raises(ValueError, match="divisible by heads"):
        TransformerConfig(dim=10, heads=4)


def test_settings_of_the_classifier_are_inherited_with_help_and_validation():
    assert describe(TransformerConfig).keys() == {field.name for field in fields(TransformerConfig)}
    with pytest.raises(ConfigError, match="dropout"):
        make(TransformerConfig, {"dropout": 1.5})
    with pytest.raises(ConfigError, match="hidden"):
        make(TransformerConfig, {"hidden": 0})
