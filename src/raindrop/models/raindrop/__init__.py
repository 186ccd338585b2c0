"""Raindrop as in the paper: config.py, model.py (Sec. 3), messages.py (Eq. 1-3), temporal.py (Eq. 4-5, Sec. 3.4).

dense_messages.py computes the messages of embedded senders; slots.py adds summaries of each sensor, not in the paper.
"""

from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop

__all__ = ["Raindrop", "RaindropConfig"]
