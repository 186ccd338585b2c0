"""Searching for better settings of a model, with Optuna.

The trials are stored in a journal that several processes share, and that survives a kill at any moment.
"""

from raindrop.search.result import SearchResult, TrialRecord
from raindrop.search.tuning import tune

__all__ = ["SearchResult", "TrialRecord", "tune"]
