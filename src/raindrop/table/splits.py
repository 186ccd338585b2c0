"""Splitting samples at random, with the same mix of labels in every part and groups kept together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import DataError

Positions = NDArray[np.int64]
ROUNDING = np.array([0.5, 0.3, 0.7, 0.1, 0.9])[:, None]  # what is added before cutting to a whole number


def stratified_parts(
    strata: NDArray[np.int64], parts: Sequence[float], seed: int, groups: NDArray[np.int64] | None = None
) -> list[Positions]:
    """Cut positions 0..n-1 at random into `parts` (shares that sum to one), each with the same mix of `strata`.

    Each border lies within one of where the shares put it in a stratum; what one stratum rounds up, a later one
    rounds down, so that the parts as a whole have their share too.
    With `groups`, a group is never cut: whole groups are dealt out, largest first, each to the part that is
    furthest below its share of what the group holds.
    """
    shares = np.atleast_1d(np.asarray(parts, dtype=float))
    if len(shares) < 2 or (shares <= 0).any() or not np.isclose(shares.sum(), 1):
        raise DataError(f"A split needs at least two positive shares that sum to 1, not {parts}.")
    if seed < 0:
        raise DataError(f"seed={seed}: a seed is a whole number, 0 or above.")
    rng = np.random.default_rng(seed)
    if groups is not None:
        part_of = _deal_groups(strata, groups, shares, rng)
    else:
        part_of = np.empty(len(strata), dtype=np.int64)
        owed = np.zeros(len(shares) - 1)
        for stratum in np.unique(strata):
            members = rng.permutation(np.flatnonzero(strata == stratum))
            exact = np.cumsum(shares)[:-1] * len(members)
            options = np.floor(exact + ROUNDING)
            borders = options[np.abs(owed + exact - options).max(1).argmin()]
            owed += exact - borders
            part_of[members] = np.searchsorted(borders, np.arange(len(members)), side="right")
    positions = [np.flatnonzero(part_of == part) for part in range(len(shares))]
    empty = [part for part, members in enumerate(positions) if not len(members)]
    if empty:
        raise DataError(
            f"{len(strata):,} samples are too few for a split into {parts}: part {empty[0] + 1} would be empty.\n"
            "Use fewer or more equal parts, or more samples."
        )
    return positions


def _deal_groups(
    strata: NDArray[np.int64], groups: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator
) -> Positions:
    _, group_of = np.unique(groups, return_inverse=True)
    num_groups = int(group_of.max()) + 1 if len(group_of) else 0
    if num_groups < len(shares):
        raise DataError(f"{num_groups} groups cannot be dealt out to {len(shares)} parts; use fewer parts.")
    _, stratum_of = np.unique(strata, return_inverse=True)
    counts = np.zeros((num_groups, int(stratum_of.max()) + 1))
    np.add.at(counts, (group_of, stratum_of), 1)
    wanted = shares[:, None] * counts.sum(0)
    filled = np.zeros_like(wanted)
    part_of_group = np.empty(num_groups, dtype=np.int64)
    order = rng.permutation(num_groups)
    order = order[np.argsort(-counts[order].sum(1), kind="stable")]
    for rank, group in enumerate(order):
        gap = ((wanted - filled) * counts[group]).sum(1) / shares
        empty = filled.sum(1) == 0
        if empty.sum() >= num_groups - rank:  # as many empty parts as groups left: each must take one
            gap[~empty] = -np.inf
        part = int(np.argmax(gap))
        part_of_group[group] = part
        filled[part] += counts[group]
    return part_of_group[group_of]
