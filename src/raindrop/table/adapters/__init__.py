"""Data of other shapes and libraries as long frames: one module each, used by the `from_...` methods of EventTable.

An adapter only rearranges the data; its content is validated in `table/build.py`.
"""
