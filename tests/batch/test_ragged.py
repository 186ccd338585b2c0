"""Sum, broadcast, softmax and matrix products over segments of rows, compared with loops, and their gradients."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from torch.autograd import gradcheck

from raindrop.batch.ragged import BLOCK_SIZE, Blocks, Segments

SORTED = [0, 0, 2, 2, 2, 5]  # segments 1, 3, 4 and 6 are empty
UNSORTED = [5, 0, 2, 0, 2, 2]


def make_segments(index: list[int], num_segments: int = 7) -> Segments:
    return Segments.from_index(torch.tensor(index, dtype=torch.long), num_segments, is_sorted=index == sorted(index))


@pytest.mark.parametrize("index", [SORTED, UNSORTED, []])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_sum_and_broadcast_equal_loops_over_rows(index, shape):
    segments, x, y = make_segments(index), torch.randn(len(index), *shape), torch.randn(7, *shape)
    summed, copied = segments.sum(x), segments.broadcast(y)
    for segment in range(7):
        rows = [x[row] for row in range(len(index)) if index[row] == segment]
        assert_close(summed[segment], sum(rows, torch.zeros(shape)))
    for row, segment in enumerate(index):
        assert torch.equal(copied[row], y[segment])
    assert segments.counts.tolist() == [index.count(segment) for segment in range(7)]


def test_softmax_is_over_the_present_rows_of_each_segment():
    segments = make_segments(UNSORTED)
    scores = torch.randn(6, 4) * 30
    present = torch.rand(6, 4) < 0.7
    present[:, 3] = False
    out = segments.softmax(scores, present)
    for k in range(4):
        for segment in range(7):
            rows = [row for row in range(6) if UNSORTED[row] == segment and present[row, k]]
            if rows:
                assert_close(out[rows, k], torch.softmax(scores[rows, k], 0))
    assert not out[~present].any()


def test_a_segment_without_present_rows_has_a_zero_gradient_not_nan():
    segments = make_segments(SORTED)
    scores = torch.full((6, 2), 1e4, requires_grad=True)
    present = torch.zeros(6, 2, dtype=torch.bool)
    present[:2, 0] = True
    (segments.softmax(scores, present) * torch.full((6, 2), 1e3)).sum().backward()
    assert not scores.grad.any()


@pytest.mark.parametrize("index", [SORTED, UNSORTED])
def test_gradients_of_sum_broadcast_and_softmax(index):
    segments = make_segments(index)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    present = torch.rand(6, 3) < 0.7
    assert gradcheck(segments.sum, x)
    assert gradcheck(segments.broadcast, y)
    assert gradcheck(lambda scores: segments.softmax(scores, present), x)


COUNTS = [3, 0, BLOCK_SIZE, 2 * BLOCK_SIZE + 1, 0]  # rows per sample: less than a block, none, exactly one, several


def sample_segments() -> Segments:
    return make_segments([b for b, count in enumerate(COUNTS) for _ in range(count)], len(COUNTS))


def test_blocks_give_matrix_products_per_sample():
    segments, n = sample_segments(), sum(COUNTS)
    blocks = Blocks.from_segments(segments)
    weights, rows, queries = torch.randn(n, 4), torch.randn(n, 3), torch.randn(5, 4, 3)
    summed, products = blocks.weighted_sum(weights, rows), blocks.dot(rows, queries)
    for b in range(len(COUNTS)):
        in_sample = segments.index == b
        torch.testing.assert_close(summed[b], weights[in_sample].T @ rows[in_sample])
        torch.testing.assert_close(products[in_sample], rows[in_sample] @ queries[b].T)


def test_gradients_of_blocks():
    n, blocks = sum(COUNTS), Blocks.from_segments(sample_segments())
    weights = torch.randn(n, 2, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(n, 3, dtype=torch.float64, requires_grad=True)
    queries = torch.randn(len(COUNTS), 2, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(blocks.weighted_sum, (weights, rows))
    assert gradcheck(blocks.dot, (rows, queries))
