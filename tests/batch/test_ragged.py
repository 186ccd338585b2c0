"""Sums, spreads, softmax and matrix products over runs of rows, against loops, with their gradients."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from torch.autograd import gradcheck

from raindrop.batch.ragged import BLOCK, Blocks, Segments

ORDERED = [0, 0, 2, 2, 2, 5]  # segments 1, 3, 4 and 6 are empty
UNORDERED = [5, 0, 2, 0, 2, 2]


def segments(index: list[int], num: int = 7) -> Segments:
    return Segments.of(torch.tensor(index, dtype=torch.long), num, ordered=index == sorted(index))


@pytest.mark.parametrize("index", [ORDERED, UNORDERED, []])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_sum_and_spread_are_loops_over_rows(index, shape):
    runs, x, y = segments(index), torch.randn(len(index), *shape), torch.randn(7, *shape)
    summed, spread = runs.sum(x), runs.spread(y)
    for segment in range(7):
        rows = [x[row] for row in range(len(index)) if index[row] == segment]
        assert_close(summed[segment], sum(rows, torch.zeros(shape)))
    for row, segment in enumerate(index):
        assert torch.equal(spread[row], y[segment])
    assert runs.counts.tolist() == [index.count(segment) for segment in range(7)]


def test_softmax_is_taken_over_the_present_rows_of_each_segment():
    runs = segments(UNORDERED)
    scores = torch.randn(6, 4) * 30
    present = torch.rand(6, 4) < 0.7
    present[:, 3] = False
    out = runs.softmax(scores, present)
    for k in range(4):
        for segment in range(7):
            rows = [row for row in range(6) if UNORDERED[row] == segment and present[row, k]]
            if rows:
                assert_close(out[rows, k], torch.softmax(scores[rows, k], 0))
    assert not out[~present].any()


def test_a_segment_without_present_rows_has_a_zero_gradient_not_nan():
    runs = segments(ORDERED)
    scores = torch.full((6, 2), 1e4, requires_grad=True)
    present = torch.zeros(6, 2, dtype=torch.bool)
    present[:2, 0] = True
    (runs.softmax(scores, present) * torch.full((6, 2), 1e3)).sum().backward()
    assert not scores.grad.any()


@pytest.mark.parametrize("index", [ORDERED, UNORDERED])
def test_gradients_of_sum_spread_and_softmax(index):
    runs = segments(index)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    present = torch.rand(6, 3) < 0.7
    assert gradcheck(runs.sum, x)
    assert gradcheck(runs.spread, y)
    assert gradcheck(lambda scores: runs.softmax(scores, present), x)


COUNTS = [3, 0, BLOCK, 2 * BLOCK + 1, 0]  # rows per sample: less than a block, none, exactly one, several


def samples() -> Segments:
    return segments([b for b, count in enumerate(COUNTS) for _ in range(count)], len(COUNTS))


def test_blocks_are_matrix_products_per_sample():
    runs, n = samples(), sum(COUNTS)
    blocks, weights, rows, queries = Blocks.of(runs), torch.randn(n, 4), torch.randn(n, 3), torch.randn(5, 4, 3)
    summed, matched = blocks.weighted_sum(weights, rows), blocks.match(rows, queries)
    for b in range(len(COUNTS)):
        mine = runs.index == b
        assert_close(summed[b], weights[mine].T @ rows[mine])
        assert_close(matched[mine], rows[mine] @ queries[b].T)


def test_gradients_of_blocks():
    n, blocks = sum(COUNTS), Blocks.of(samples())
    weights = torch.randn(n, 2, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(n, 3, dtype=torch.float64, requires_grad=True)
    queries = torch.randn(len(COUNTS), 2, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(blocks.weighted_sum, (weights, rows))
    assert gradcheck(blocks.match, (rows, queries))
