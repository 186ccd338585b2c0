"""Raindrop, as the paper has it: config.py, model.py (Sec. 3), messages.py (Eq. 1-3), temporal.py (Eq. 4-5).

sending.py is the fast path for embedded senders, slots.py the per-sensor summaries that are not in the paper.
"""

from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop

__all__ = ["Raindrop", "RaindropConfig"]
