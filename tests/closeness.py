"""When two float results count as equal: the tolerance follows from the number type and the size of the numbers.

The same sum in another order differs in its last bits. The order depends on the processor (SSE, AVX2, AVX-512), on the
number of threads, and on whether a sample is computed alone or in a batch. One rounding changes a number by at most
eps / 2 of its size, where eps is 1.2e-7 for float32 and 2.2e-16 for float64. So the tolerance is

    roundings * eps * magnitude

with the number of roundings that may add up on the way to a result, and the size of the largest number on that way.

Exact equality (`torch.equal`, `np.array_equal`) is right only for values that are copied, and for the same computation
repeated on the same machine with the same threads, such as a resumed or a loaded run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

ONE_SUM = 8
"""Roundings that add up in one sum, matrix product or softmax of about 64 terms. As many go up as down, so the errors
of 64 terms add up to those of 8."""

NETWORK = 32
"""Roundings that add up in a network, a chain of about 16 such sums: the square root of 16, times `ONE_SUM`."""


def tolerance(*, roundings: int = NETWORK, magnitude: float = 1.0, dtype: Any = np.float32) -> float:
    """Return the largest difference between two results of type `dtype` and size `magnitude` that rounding explains."""
    return roundings * float(np.finfo(dtype).eps) * magnitude


def assert_close(
    actual: Any, expected: Any, *, roundings: int = NETWORK, magnitude: float = 1.0, dtype: Any = None
) -> None:
    """Check that two arrays, tensors or numbers differ by no more than rounding explains; NaN equals NaN.

    `magnitude` is the size of the numbers that were summed. It matters where terms cancel, because a small result keeps
    the rounding errors of its large terms; a larger number among those compared replaces it. `dtype` is the type the
    results were computed in; without it, the less precise type of the two arguments. Tuples are compared item by item.
    """
    if isinstance(actual, tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, roundings=roundings, magnitude=magnitude, dtype=dtype)
        return
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        assert actual.dtype == expected.dtype
    one, other = _array(actual), _array(expected)
    assert other.ndim == 0 or one.shape == other.shape, f"shapes {one.shape} and {other.shape}"
    largest = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in (one, other))
    if dtype is None:
        kinds = [x.dtype for x in (one, other) if x.dtype.kind == "f"]
        dtype = max(kinds, key=lambda kind: np.finfo(kind).eps, default=np.dtype(np.float64))
    allowed = tolerance(roundings=roundings, magnitude=max(magnitude, largest), dtype=dtype)
    np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=0, atol=allowed)


def _array(values: Any) -> np.ndarray:
    """Return the values as an array of numpy."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
