"""Work for more than one process: scoring and benchmark jobs on a pool of processes, or on a Ray cluster.

`predict` cuts a table into parts of whole samples (parts), lets an engine score them (pool, ray_engine) and joins the
results (parts_folder). Every engine runs the function `score_part`; other engines, such as Spark, can use it too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raindrop.scale.score import score_part
    from raindrop.scale.scoring import predict

__all__ = ["predict", "score_part"]

# Imported on first use: a worker imports only what it needs.
_MODULES = {"predict": "raindrop.scale.scoring", "score_part": "raindrop.scale.score"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'raindrop.scale' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
