"""Models in production: readings come in one by one or in batches, scores and filled readings go out.

`stream.py` holds the live samples and scores those that changed. `service.py` answers over HTTP (`raindrop serve`): it
reads requests within limits, and separate processes hold the models (`pool.py`, `worker.py`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raindrop.serve.stream import Pushed, Stream

__all__ = ["Pushed", "Stream"]


def __getattr__(name: str) -> Any:  # lazy: the HTTP process does not need torch, which a stream imports
    if name not in __all__:
        raise AttributeError(f"module 'raindrop.serve' has no attribute '{name}'")
    return getattr(import_module("raindrop.serve.stream"), name)
