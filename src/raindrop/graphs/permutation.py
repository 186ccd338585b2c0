"""Labels permuted over samples, whole groups together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.sample_columns import group_or_own_codes

CHUNK = 500  # permutations per matrix product


def group_codes(groups: ArrayLike | None, number: int) -> NDArray[np.int64]:
    """(samples,) the group number of each sample; without groups, each sample is its own group."""
    if groups is None:
        return np.arange(number)
    array: NDArray[Any] = np.asarray(groups)
    if array.shape != (number,):
        raise DataError(f"There are {number:,} samples, but groups of shape {array.shape}: give one per sample.")
    return np.unique(array.astype(str), return_inverse=True)[1].astype(np.int64)


def table_groups(table: EventTable) -> NDArray[np.int64]:
    """(samples,) the same for the group column of a table; a sample without a group is its own group."""
    if table.roles.group is None:
        return np.arange(len(table))
    codes = group_or_own_codes(table.samples[table.roles.group])
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def permuted_masks(
    selected: NDArray[np.bool_], group: NDArray[np.int64], number: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """(number, samples) 1 for samples that are selected after a permutation of the labels, else 0.

    Samples of a group are not independent. A group whose samples are all selected, or all not selected, stays together:
    such groups exchange their labels. Within a group that has both, its samples exchange theirs.
    """
    size = np.bincount(group)
    share = np.bincount(group, selected) / np.maximum(size, 1)
    whole = (share == 0) | (share == 1)
    by_group = np.zeros((number, len(size)), dtype=np.float32)
    by_group[:, whole] = rng.permuted(np.tile(share[whole].astype(np.float32), (number, 1)), axis=1)
    masks = by_group[:, group]
    mixed = np.flatnonzero(~whole[group])
    if len(mixed):
        mixed = mixed[np.argsort(group[mixed], kind="stable")]
        order = np.argsort(group[mixed] + rng.random((number, len(mixed))), axis=1)  # random within each group
        masks[:, mixed] = selected[mixed].astype(np.float32)[order]
    return masks
