"""Which raindrop this is."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("raindrop-ts")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+source"
