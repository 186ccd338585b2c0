"""The models. To add one, write its file and add its line to registry.py.

base.py defines the interface of every model; raindrop/ is the paper, baselines/ its baselines, one file each.
"""

from raindrop.models.base import DataSpec, DirectModel, Model, Output
from raindrop.models.registry import MODELS, Entry

__all__ = ["MODELS", "DataSpec", "DirectModel", "Entry", "Model", "Output"]
