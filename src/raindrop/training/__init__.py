"""The one loop that trains every network, with checkpoints, several processes and soft targets from trees."""

from raindrop.training.loop import TrainConfig, train

__all__ = ["TrainConfig", "train"]
