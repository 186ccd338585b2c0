"""The interface of every model: its inputs and outputs."""

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
    """What a model needs to know about the data when it is created."""

    sensors: tuple[str, ...]
    task: Task
    static_width: int = 0
    window: tuple[float, float] = (0.0, 48.0)
    """Earliest and latest time of a training reading, in the table's time unit."""
    dated: bool = False
    """Whether queries know their time of day, because times count from date times."""

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
    """The output of a model for a batch."""

    scores: Tensor  # (b, output) raw scores such as logits; the task turns them into predictions
    embedding: Tensor  # (b, z)
    penalty: Tensor  # () added to the task's loss
    edges: Tensor | None = None  # (b, u, v) weight of the edge from sensor u to sensor v
    time_weights: Tensor | None = None  # (s, v) attention of sensor v to timestamp s, sums to 1 over a sample
    members: Tensor | None = None  # (b, member, output) scores of each member of an ensemble
    senders: Tensor | None = None  # (q, u) how much each sensor informed each query


class Model(nn.Module, ABC):
    """A network over batches of readings, built from its config and the DataSpec."""

    sees_distant: ClassVar[bool] = False
    """Whether windows of a long series include single readings from far outside (`batch/distant.py`)."""

    def __init__(self, config: Any, spec: DataSpec):
        super().__init__()

    @abstractmethod
    def forward(self, batch: Batch) -> Output:
        """Scores and, depending on the model, embedding, graph and weights."""

    def score_batch(self, batch: Batch) -> Tensor:
        """Only the scores; a model may skip work that they do not need, such as its graph."""
        scores: Tensor = self(batch).scores
        return scores

    needs_cells = True
    """Whether its memory grows with readings x sensors of a sample (`BatchSource.cells`)."""
    needs_shared_times = False
    """Whether sensors exchange information only if they are read at the same time."""

    @property
    def network(self) -> Model:
        """The part that the training loop trains: the model itself, unless it combines a network with another model."""
        return self

    network_settings: ClassVar[str] = ""
    """Prefix of the settings of `network` among those of the model."""

    def without_messages(self) -> Model | None:
        """For a network that may do without messages between sensors: one that has none, to be trained as well; else
        None."""
        return None

    def with_network(self, network: Model) -> Model:
        """This model with another `network`."""
        return network

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Learn what is needed before the first training step, and store it in buffers; most models need nothing."""

    def finish(self, validation: BatchSource | None) -> dict[str, Any]:
        """Make choices after training, and store them in buffers; returns notes about them."""
        return {}


class DirectModel(Model):
    """A model that is not trained by gradients; what it learned is in its buffers."""

    @abstractmethod
    def fit(self, training: BatchSource, validation: BatchSource | None, seed: int) -> list[dict[str, Any]]:
        """Fit the model; returns one record per round, like those of the training loop per epoch."""
