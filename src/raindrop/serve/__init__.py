"""Models in use: readings come in one by one or in batches, and scores and filled readings go out.

`stream.py` holds the live samples and scores those that changed; a service is built on it.
"""

from raindrop.serve.stream import Pushed, Stream

__all__ = ["Pushed", "Stream"]
