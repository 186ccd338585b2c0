"""Models that run without torch: the scoring core as ONNX or a torch.export program, and a reader for NumPy."""

from raindrop.export.writing import FORMATS, Format, export_model

__all__ = ["FORMATS", "Format", "export_model"]
