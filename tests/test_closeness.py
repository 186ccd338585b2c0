"""The tolerance lets rounding pass and nothing more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import NETWORK, ONE_SUM, assert_close, tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("roundings", [ONE_SUM, NETWORK])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_half_the_tolerance_passes_and_twice_the_tolerance_fails(dtype, roundings, size):
    expected = np.array([0.0, 0.25, -size])
    allowed = tolerance(roundings=roundings, magnitude=size, dtype=dtype)
    shift = np.array([1.0, 0.0, 0.0])
    assert_close(expected + 0.5 * allowed * shift, expected, roundings=roundings, dtype=dtype)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(expected + 2 * allowed * shift, expected, roundings=roundings, dtype=dtype)


@pytest.mark.parametrize("terms", [1, 64, 1000])
def test_a_sum_in_another_order_passes(terms):
    x = torch.randn(terms, 50)
    ordered = x.numpy().cumsum(0)[-1]
    assert_close(x.flip(0).numpy().cumsum(0)[-1], ordered, roundings=ONE_SUM, magnitude=float(x.abs().sum(0).max()))


def test_the_type_is_the_less_precise_of_the_two():
    assert_close(torch.tensor([1 + 1e-6]), np.array([1.0]))
    with pytest.raises(AssertionError):
        assert_close(np.array([1 + 1e-6]), np.array([1.0]))
    assert_close(np.array([1 + 1e-6]), np.array([1.0]), dtype=np.float32)


def test_missing_values_must_be_missing_in_both_and_an_infinite_one_widens_nothing():
    assert_close(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(AssertionError):
            assert_close(np.array([wrong, 1.0]), np.array([1.0, 1.0]))


def test_shapes_types_and_every_item_of_a_tuple_must_agree():
    with pytest.raises(AssertionError, match="shapes"):
        assert_close(np.ones((3, 1)), np.ones(3))
    with pytest.raises(AssertionError):
        assert_close(torch.ones(3), torch.ones(3).double())
    with pytest.raises(AssertionError):
        assert_close((torch.ones(3), torch.ones(3)), (torch.ones(3), torch.zeros(3)))
    with pytest.raises(AssertionError):
        assert_close(np.array([2]), np.array([3]))
    assert_close(np.array([1.0, 1.0]), 1.0)
