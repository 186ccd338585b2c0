"""stratified_parts: every position once, the same mix of strata in every part, whole groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raindrop.errors import DataError
from raindrop.table.splits import stratified_parts

SHARES = (0.8, 0.1, 0.1)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(strata=st.lists(st.integers(0, 4), min_size=40, max_size=200), seed=st.integers(0, 5))
def test_every_position_is_in_exactly_one_part(strata, seed):
    parts = stratified_parts(np.array(strata), SHARES, seed)
    assert sorted(np.concatenate(parts)) == list(range(len(strata)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(strata=st.lists(st.integers(0, 4), min_size=40, max_size=200), seed=st.integers(0, 5))
def test_each_part_has_its_share_overall_and_of_every_stratum(strata, seed):
    strata = np.array(strata)
    for share, part in zip(SHARES, stratified_parts(strata, SHARES, seed), strict=True):
        assert abs(len(part) - share * len(strata)) < 2
        for stratum in np.unique(strata):
            assert abs((strata[part] == stratum).sum() - share * (strata == stratum).sum()) < 2


def test_ten_samples_of_two_classes_still_fill_three_parts():
    parts = stratified_parts(np.repeat([0, 1], 5), SHARES, 0)
    assert [len(part) for part in parts] == [8, 1, 1]


def test_strata_of_two_samples_do_not_all_go_to_the_first_part():
    parts = stratified_parts(np.repeat(np.arange(100), 2), SHARES, 0)
    assert [len(part) for part in parts] == [160, 20, 20]


def test_the_parts_depend_on_the_seed_alone():
    strata = np.repeat([0, 1], 50)
    first, again, other = (stratified_parts(strata, SHARES, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_split_touches_no_global_random_state():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    stratified_parts(np.zeros(50, int), SHARES, 0)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.integers(0, 30), min_size=20, max_size=150), seed=st.integers(0, 5), data=st.data())
def test_a_group_is_never_divided_and_no_part_is_empty(groups, seed, data):
    groups = np.array(groups)
    strata = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(groups), max_size=len(groups))))
    if len(np.unique(groups)) < len(SHARES):
        return
    parts = stratified_parts(strata, SHARES, seed, groups)
    assert sorted(np.concatenate(parts)) == list(range(len(groups)))
    assert all(len(part) for part in parts)
    assert sum(len(np.unique(groups[part])) for part in parts) == len(np.unique(groups))


def test_groups_of_equal_size_are_assigned_in_proportion():
    groups = np.repeat(np.arange(100), 5)
    strata = np.repeat(np.arange(100) % 5 == 0, 5).astype(np.int64)
    for share, part in zip(SHARES, stratified_parts(strata, SHARES, 1, groups), strict=True):
        assert abs(len(part) / 500 - share) < 0.03
        assert abs(strata[part].mean() - 0.2) < 0.11


def test_as_many_groups_as_parts_is_enough_and_fewer_is_an_error():
    groups = np.array([0, 0, 0, 0, 1, 2])
    assert sorted(len(part) for part in stratified_parts(np.zeros(6, int), SHARES, 0, groups)) == [1, 1, 4]
    apart = stratified_parts(np.arange(3), SHARES, 0, np.arange(3))  # each group with a class of its own
    assert [len(part) for part in apart] == [1, 1, 1]
    with pytest.raises(DataError, match="2 groups cannot be divided among 3 parts; use fewer parts"):
        stratified_parts(np.zeros(6, int), SHARES, 0, groups % 2)


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.6), (80, 10, 10), (1.0, 0.0), (1.5, -0.5), (), 0.8, (0.5, np.nan)])
def test_invalid_shares_are_an_error(shares):
    with pytest.raises(DataError, match="at least two positive shares that sum to 1"):
        stratified_parts(np.zeros(10, int), shares, 0)


def test_an_empty_part_is_an_error_and_not_an_empty_test_set():
    with pytest.raises(DataError, match=r"4 samples are too few .* part [23] would be empty"):
        stratified_parts(np.zeros(4, int), SHARES, 0)


def test_a_negative_seed_is_an_error():
    with pytest.raises(DataError, match="seed=-1"):
        stratified_parts(np.zeros(40, int), SHARES, -1)
