"""The one loop that trains every network, with checkpoints, several processes and soft targets from trees."""

from raindrop.training.config import TrainConfig
from raindrop.training.loop import train

__all__ = ["TrainConfig", "train"]
