"""What every model takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource
from raindrop.tasks.base import Task


@dataclass(frozen=True)
class DataSpec:
    """What a model must know of the data before it sees any."""

    sensors: tuple[str, ...]
    task: Task
    static_width: int = 0
    window: tuple[float, float] = (0.0, 48.0)
    """Earliest and latest time of a training reading, in the table's unit."""

    @property
    def num_sensors(self) -> int:
        """M."""
        return len(self.sensors)

    @property
    def num_outputs(self) -> int:
        """Scores per sample."""
        return self.task.num_outputs


@dataclass(frozen=True)
class Output:
    """What a model computes for a batch."""

    scores: Tensor  # (b, output) what the task turns into predictions, such as logits
    embedding: Tensor  # (b, z)
    penalty: Tensor  # () added to the task's loss
    edges: Tensor | None = None  # (b, u, v) weight of the edge from sensor u to sensor v
    time_weights: Tensor | None = None  # (s, v) attention of sensor v to timestamp s, sums to 1 over a sample
    members: Tensor | None = None  # (b, member, output) scores of each member of an ensemble
    senders: Tensor | None = None  # (q, u) how much each sensor informed each query


class Model(nn.Module, ABC):
    """A network over batches of readings, made from its config and the data's."""

    sees_distant: ClassVar[bool] = False
    """Whether a window of a long series shows it single readings from far outside (`batch/distant.py`)."""

    def __init__(self, config: Any, spec: DataSpec):
        super().__init__()

    @abstractmethod
    def forward(self, batch: Batch) -> Output:
        """Scores, and whatever else the model offers."""

    def score_batch(self, batch: Batch) -> Tensor:
        """Only the scores; a model may leave out work that they do not need, such as that for its graph."""
        scores: Tensor = self(batch).scores
        return scores

    needs_cells: ClassVar[bool] = True
    """Whether its memory grows with readings x sensors of a sample (`BatchSource.cells`)."""
    needs_shared_times = False
    """Whether sensors exchange information only where they are read at the same time."""

    @property
    def network(self) -> Model:
        """What the training loop trains: the model itself, unless it holds a network beside something else."""
        return self

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Learn what must be known before the first training step, and keep it in buffers; most need nothing."""

    def finish(self, validation: BatchSource | None) -> dict[str, Any]:
        """Choose what must be chosen once training is over, and keep it in buffers; returns notes about it."""
        return {}


class DirectModel(Model):
    """A model that is not trained by gradients; what it learned are its buffers."""

    @abstractmethod
    def fit(self, training: BatchSource, validation: BatchSource | None, seed: int) -> list[dict[str, Any]]:
        """Learn in place, ready to predict; one record per round, as the training loop gives one per epoch."""
