"""The whole model compared with plain loops, and its head and losses (Sec. 3.5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paper_loops as paper
import pytest
import torch
from paper_checks import SENDERS, assert_close, assert_same_embeddings, propagate

from raindrop.batch.batch import Batch
from raindrop.errors import DataError
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop, graph_distance


def slot_of(batch: Batch, b: int, t: int) -> int:
    """Where time number t of sample b lies among the batch's timestamps."""
    return int((batch.step_sample == b).nonzero()[t])


# ------------------------------------------------------------------ Sec. 3.5


def test_statics_pass_one_linear_layer_of_as_many_neurons_as_sensors(build, batch):
    model = build()
    assert model.head.statics.out_features == batch.num_sensors
    embedding = torch.randn(batch.num_samples, 100).double()
    for b, logits in enumerate(model.head(embedding, batch.statics)):
        expected = paper.classify(model, embedding[b].numpy(), batch.statics[b].numpy())
        assert_close(logits, expected, 1e-12)


def test_without_statics_the_classifier_sees_the_sample_embedding_alone(make_table, make_batch, make_spec):
    table = make_table(statics=())
    batch = make_batch(table)
    model = Raindrop(RaindropConfig(), make_spec(table))
    assert model.head.statics is None
    output = model(batch)
    torch.testing.assert_close(output.scores, model.head.classifier(output.embedding))


# ------------------------------------------------------------------ L_r


@pytest.mark.parametrize("size", [2, 3, 8])
def test_l_r_is_the_sum_over_pairs_of_samples(size):
    e = torch.rand(size, 4, 4).double()
    e[0, 0] = e[1, 0]
    assert_close(graph_distance(e), paper.graph_distance(list(e.numpy())), 1e-12)


def test_l_r_of_one_sample_is_0():
    assert float(graph_distance(torch.rand(1, 4, 4))) == 0


def test_l_r_has_a_finite_gradient_where_graphs_coincide():
    e = torch.rand(1, 3, 3).double().expand(5, -1, -1).clone().requires_grad_()
    graph_distance(e).backward()
    assert e.grad.isfinite().all()


def test_the_gradient_of_l_r_is_that_of_the_sum_over_pairs():
    e = torch.rand(4, 3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(graph_distance, e)


# ------------------------------------------------------------------ the whole model

VARIANTS = {
    "as in the paper": {},
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "softmax of logits": {"graph.normalise": "logit"},
    "residual": {"graph.mixing": "residual"},
    "heads and rank": {"graph.heads": 2, "graph.rank": 2, "temporal_attention.heads": 2},
    "s by rank": {"temporal_attention.s": "rank"},
    "mean scores": {"temporal_attention.scores": "mean"},
    "strong pruning": {"prune": 0.9},
    "no pruning": {"prune": 0.0},
    "indicator": {"mask_indicator": True},
    "lstm": {"temporal": "lstm"},
    "mean over sensors": {"readout": "mean"},
    "squeeze": {"readout": "squeeze"},
    "shorter sample embedding": {"sample_dim": 6},
    "relu": {"head.activation": "relu"},
    "minutes": {"time.scale": 60.0, "time.base": 100.0},
    "isolated": {"ablation.messages": False},
    "w/o R_u": {"ablation.sensor_embedding": False},
    "w/o e": {"ablation.edge_weights": False},
    "w/o r_v": {"ablation.receiver_vectors": False},
    "w/o p": {"ablation.time_encoding": False},
    "w/o p, s by rank": {"ablation.time_encoding": False, "temporal_attention.s": "rank"},
    "w/o alpha": {"ablation.inter_sensor_attention": False},
    "w/o temporal attention": {"temporal": "mean"},
    "w/o L_r": {"similarity": 0.0},
}


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_whole_model_equals_the_loops(build, batch, samples, senders, variant):
    model = build({"graph.senders": senders} | VARIANTS[variant])
    ablation = model.config.ablation
    output, states = model(batch), propagate(model, batch)[1:]
    by_loops = [paper.forward(model, sample) for sample in samples]
    for b, expected in enumerate(by_loops):
        for layer, state in enumerate(states):
            if ablation.edge_weights:
                assert_close(state.edges[b], expected.edges[layer])
            if state.embeddings is not None:
                assert_same_embeddings(batch, b, expected.embeddings[layer], state.embeddings, state.present)
        for (t, v), weight in expected.beta.items():
            assert_close(output.time_weights[slot_of(batch, b, t), v], weight)
        assert_close(output.embedding[b], expected.sample, 1e-5)
        assert_close(output.scores[b], expected.scores, 1e-5)
    penalty = 0.0
    if ablation.messages and ablation.edge_weights:
        penalty = model.config.similarity * paper.graph_distance([sample.edges[-1] for sample in by_loops])
    assert_close(output.penalty, penalty, 1e-7)


@pytest.mark.parametrize("senders", SENDERS)
def test_single_precision_is_precise_enough(build, batch, samples, senders):
    model = build({"graph.senders": senders}).float()
    single = replace(batch, value=batch.value.float(), time=batch.time.float(), statics=batch.statics.float())
    for logits, sample in zip(model(single).scores, samples, strict=True):
        assert_close(logits, paper.forward(model, sample).scores, 1e-5)


def test_the_published_sizes_are_the_defaults(build):
    """Appendix: R_u of 4, p and r_v of 16, D of 4 x 32, W of 20 x 20, L = 2, K = 50 %, 128 neurons, lambda 0.02."""
    model = build()
    layer, config = model.layers[-1], model.config
    assert model.embed.R.shape == (5, 4)
    assert layer.D_r.shape[1:] == layer.D_p.shape[1:] == (4, 16)
    assert layer.r.shape == (1, 5, 16)
    assert layer.w_send.shape == layer.w_receive.shape == (5, 1, 4)
    assert model.pool.W.shape == (20, 20)
    assert model.pool.W_Q.shape == (1, 20, 20)
    assert model.head.classifier[1].out_features == 128
    assert (config.layers, config.prune, config.similarity) == (2, 0.5, 0.02)


@pytest.mark.parametrize("senders", SENDERS)
def test_a_known_graph_is_where_the_edges_start(build, batch, samples, table, senders):
    known = np.zeros((5, 5))
    known[0, 1], known[0, 2], known[3, 1], known[2, 2], known[4, 0] = 1.0, 0.5, 0.25, 1.0, 0.75
    named = tuple((table.sensors[u], table.sensors[v], float(known[u, v])) for u, v in np.argwhere(known))
    model = build(graph={"senders": senders, "initial_edges": named})
    output = model(batch)
    assert not output.edges[:, torch.from_numpy(known == 0)].any()
    for b, sample in enumerate(samples):
        expected = paper.forward(model, sample, known)
        assert_close(output.edges[b], expected.edges[-1])
        assert_close(output.scores[b], expected.scores, 1e-5)


def test_a_known_edge_of_an_unknown_sensor_is_an_error(build):
    with pytest.raises(DataError, match="sensor 9"):
        build({"graph.initial_edges": (("sensor 0", "sensor 9", 1.0),)})
