"""Random splits of samples, stratified by label, with groups kept together.

scikit-learn's fold makers are not used, because published results and saved runs depend on the splits that a seed gives
here. (scikit-learn also has no stratified and grouped split into parts of unequal size.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import DataError

Positions = NDArray[np.int64]
ROUNDING = np.array([0.5, 0.3, 0.7, 0.1, 0.9])[:, None]  # offsets tried before rounding a border down


def stratified_parts(
    strata: NDArray[np.int64], parts: Sequence[float], seed: int, groups: NDArray[np.int64] | None = None
) -> list[Positions]:
    """Split positions 0..n-1 at random into `parts` (shares that sum to 1), each with the same mix of `strata`.

    Within a stratum each part is within one sample of its exact share. Rounding errors of one stratum are compensated
    in the next, so that the whole parts also have their shares. With `groups`, whole groups are assigned, largest
    first, each to the part that is furthest below its share of the group's strata.
    """
    shares = np.atleast_1d(np.asarray(parts, dtype=float))
    if len(shares) < 2 or (shares <= 0).any() or not np.isclose(shares.sum(), 1):
        raise DataError(f"A split needs at least two positive shares that sum to 1, not {parts}.")
    if seed < 0:
        raise DataError(f"seed={seed}: a seed is a whole number, 0 or above.")
    rng = np.random.default_rng(seed)
    if groups is not None:
        part_of_sample = _assign_groups(strata, groups, shares, rng)
    else:
        part_of_sample = np.empty(len(strata), dtype=np.int64)
        rounding_error = np.zeros(len(shares) - 1)
        for stratum in np.unique(strata):
            members = rng.permutation(np.flatnonzero(strata == stratum))
            exact = np.cumsum(shares)[:-1] * len(members)
            candidates = np.floor(exact + ROUNDING)
            borders = candidates[np.abs(rounding_error + exact - candidates).max(1).argmin()]
            rounding_error += exact - borders
            part_of_sample[members] = np.searchsorted(borders, np.arange(len(members)), side="right")
    positions = [np.flatnonzero(part_of_sample == part) for part in range(len(shares))]
    empty = [part for part, members in enumerate(positions) if not len(members)]
    if empty:
        raise DataError(
            f"{len(strata):,} samples are too few for a split into {parts}: part {empty[0] + 1} would be empty.\n"
            "Use fewer or more equal parts, or more samples."
        )
    return positions


def _assign_groups(
    strata: NDArray[np.int64], groups: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator
) -> Positions:
    """(n,) the part of each sample; a group is never divided."""
    _, group_of_sample = np.unique(groups, return_inverse=True)
    num_groups = int(group_of_sample.max()) + 1 if len(group_of_sample) else 0
    if num_groups < len(shares):
        raise DataError(f"{num_groups} groups cannot be divided among {len(shares)} parts; use fewer parts.")
    _, stratum_of_sample = np.unique(strata, return_inverse=True)
    counts = np.zeros((num_groups, int(stratum_of_sample.max()) + 1))  # (group, stratum)
    np.add.at(counts, (group_of_sample, stratum_of_sample), 1)
    target = shares[:, None] * counts.sum(0)  # (part, stratum)
    assigned = np.zeros_like(target)
    part_of_group = np.empty(num_groups, dtype=np.int64)
    order = rng.permutation(num_groups)
    order = order[np.argsort(-counts[order].sum(1), kind="stable")]
    for rank, group in enumerate(order):
        shortfall = ((target - assigned) * counts[group]).sum(1) / shares
        empty = assigned.sum(1) == 0
        if empty.sum() >= num_groups - rank:  # as many empty parts as groups left: each must get one
            shortfall[~empty] = -np.inf
        part = int(np.argmax(shortfall))
        part_of_group[group] = part
        assigned[part] += counts[group]
    return part_of_group[group_of_sample]
