"""Data of other shapes and libraries as long frames: one module for each, used by the `from_...` of EventTable.

An adapter only rearranges; checks and messages about the content are those of `table/build.py`.
"""
