"""From a table to tensors: scaling, collating, sums over ragged rows.

A Batch holds the readings of some samples as flat tensors; nothing is padded unless a model asks for `batch.grid()`.
"""

from raindrop.batch.batch import Batch, Grid
from raindrop.batch.collate import Collator
from raindrop.batch.ragged import Blocks, Segments
from raindrop.batch.scaling import Scaler

__all__ = ["Batch", "Blocks", "Collator", "Grid", "Scaler", "Segments"]
