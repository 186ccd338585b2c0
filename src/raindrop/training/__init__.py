"""The one loop that trains every network, with checkpoints, callbacks, and soft targets from trees."""

from raindrop.training.callbacks import Callback, MLflow, TensorBoard
from raindrop.training.config import TrainConfig
from raindrop.training.loop import train

__all__ = ["Callback", "MLflow", "TensorBoard", "TrainConfig", "train"]
