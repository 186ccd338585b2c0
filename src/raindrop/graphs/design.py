"""The columns of the regression for one receiver, built and summed in chunks of rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from raindrop.graphs.past import Floats, Positions, Rows
from raindrop.graphs.receiver import Receiver
from raindrop.graphs.ridge import Regression, Ridge
from raindrop.graphs.sums import Bools, Sums

CHUNK = 20_000  # rows, about: whole blocks
MAX_PRODUCTS = 12  # sensors whose products are columns
LAG_CHOICES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # in typical intervals


class Design:
    """Columns of the receiver's own past, of each sender, and products; for some senders also columns of a surrogate.

    A surrogate has the sender's values of other times or samples (`Past.surrogate_rows`). Rows are looked up once;
    `sums` are kept, and the columns without surrogates in single precision (in double precision if they fit into one
    chunk).
    """

    def __init__(self, receiver: Receiver, senders: Sequence[int], surrogates: Sequence[int], rng: np.random.Generator):
        """surrogates: the senders that also get surrogate columns."""
        self.receiver, self.senders = receiver, list(senders)
        self.states = [receiver.sensor, *senders][:MAX_PRODUCTS]
        self._surrogate_rows = [(u, receiver.past.surrogate_rows(receiver.rows, rng)) for u in surrogates]
        self.sensors = self._sensors()  # (c, 2) the sensors of each column; the receiver twice for its own past
        owners = [np.full(12 + len(self._partners(u)), u) for u in surrogates]
        # (columns of `sums`) the sender of a surrogate column, -1 for any other column
        self.surrogate_of = np.concatenate([np.full(len(self.sensors), -1), *owners])
        self._chunks: list[tuple[slice, Floats]] = []
        self.sums = self._gather()

    @cached_property
    def own_sums(self) -> Sums:
        """The sums without surrogate columns."""
        return self.sums.columns(np.flatnonzero(self.surrogate_of < 0))

    def of(self, sender: int) -> Bools:
        """(c,) the columns of a sender, alone or in a product; without surrogates."""
        of: Bools = (self.sensors == sender).any(1)
        return of

    def with_surrogate(self, sender: int) -> Bools:
        """(columns of `sums`) those of all other senders, with the sender's surrogate instead of its own columns."""
        kept: Bools = self.surrogate_of == sender
        kept[: len(self.sensors)] = ~self.of(sender)
        return kept

    def ridge(self, penalty: float) -> Ridge:
        """The regressions with one penalty; they keep their rows if these fit into one chunk."""
        sums, receiver, system = self.own_sums, self.receiver, self.own_sums.system
        if len(self._chunks) > 1:
            return Ridge(system, penalty)
        columns = self._chunks[0][1]
        scaled = (columns[:, :-1] - columns[:, -1:] * sums.mean) / sums.spread
        parts = (system.gram, system.cross, system.count)
        return Ridge(Regression(*parts, scaled, receiver.target, receiver.folds), penalty)

    def predicted(self, sums: Sums, solutions: Floats) -> Floats:
        """(n,) the predicted target, from the (f, c) coefficients of each row's fold."""
        raw, receiver = sums.raw(solutions), self.receiver
        predicted = np.empty(len(receiver.rows))
        for rows, columns in self._chunks:
            for block in _slices(receiver.block[rows]):
                fold = receiver.block[rows.start + block.start] % len(raw)
                predicted[rows.start + block.start : rows.start + block.stop] = columns[block] @ raw[fold]
        return predicted

    def best_lags(self, ridge: Ridge, senders: Sequence[int]) -> list[float]:
        """For each sender, the lag whose value alone, instead of all its columns, gives the lowest error."""
        receiver = self.receiver
        latest = {u: receiver.past.values(u, receiver.rows, (0.0,))[:, 0] for u in self.states}
        lags = []
        for u in senders:
            states = [latest[w] for w in self.states if w != u]
            values = receiver.past.values(u, receiver.rows, LAG_CHOICES)
            choices = [receiver.scale(np.stack([x, x**2, *(x * y for y in states)], axis=1)) for x in values.T]
            replaced = ridge.without(self.of(u)).replaced(choices)
            lags.append(LAG_CHOICES[int(np.argmin([squares.sum() for squares in replaced]))] * receiver.past.interval)
        return lags

    # ---------------------------------------------------------------- columns

    def _sensors(self) -> Positions:
        own = np.full((self.receiver.own_past.shape[1], 2), self.receiver.sensor)
        single = np.repeat(np.array(self.senders, dtype=np.int64), 12)[:, None].repeat(2, 1)
        products = [(i, j) for at, i in enumerate(self.states) for j in self.states[:at]]
        return np.concatenate([own, single, np.array(products, dtype=np.int64).reshape(-1, 2)])

    def _partners(self, sender: int) -> list[int]:
        """The sensors that a sender has products with."""
        return [w for w in self.states if w != sender] if sender in self.states else []

    def _columns(self, rows: slice) -> Floats:
        """(n, c) raw columns of some rows, surrogates last."""
        receiver = self.receiver
        here = Rows(receiver.rows.sample[rows], receiver.rows.time[rows])
        latest, parts = {receiver.sensor: receiver.now[rows]}, [receiver.own_past[rows]]
        for u in self.senders:
            values = receiver.past.values(u, here)
            latest[u] = values[:, 0]
            parts += [values, values**2]
        parts += [(latest[i] * latest[j])[:, None] for at, i in enumerate(self.states) for j in self.states[:at]]
        for u, other in self._surrogate_rows:
            values = receiver.past.values(u, Rows(other.sample[rows], other.time[rows]))
            parts += [values, values**2, *((values[:, 0] * latest[w])[:, None] for w in self._partners(u))]
        return np.concatenate(parts, axis=1)

    def _gather(self) -> Sums:
        receiver, number = self.receiver, int(self.receiver.block.max()) + 1
        centre: Floats | None = None
        products = np.zeros((number, len(self.surrogate_of) + 2, len(self.surrogate_of) + 2))
        for rows in self._row_chunks():
            columns, weight = self._columns(rows), receiver.weight[rows, None]
            if centre is None:  # centre near the mean, so that sums of squares keep their precision
                centre = (columns * weight**2).mean(0) / (weight**2).mean()
            columns -= centre
            columns *= weight
            whole = np.concatenate([columns, weight, receiver.target[rows, None]], axis=1)
            for block in _slices(receiver.block[rows]):
                products[receiver.block[rows.start + block.start]] += whole[block].T @ whole[block]
            kept = np.append(np.flatnonzero(self.surrogate_of < 0), len(self.surrogate_of))
            one = rows.stop - rows.start == len(receiver.rows)
            self._chunks.append((rows, whole[:, kept].astype(np.float64 if one else np.float32)))
        count = np.bincount(receiver.block, minlength=number).astype(np.float64)
        return Sums.of(products, count, np.arange(number) % len(receiver.folds))

    def _row_chunks(self) -> Iterator[slice]:
        """Slices of whole blocks, of at most about `CHUNK` rows."""
        start, rows = 0, len(self.receiver.rows)
        if rows <= CHUNK:
            yield slice(0, rows)
            return
        for block in _slices(self.receiver.block):
            if block.stop - start > CHUNK and block.start > start:
                yield slice(start, block.start)
                start = block.start
        yield slice(start, rows)


def _slices(block: Positions) -> list[slice]:
    """The slice of each block; rows of a block are contiguous."""
    bounds = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(block)]
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
