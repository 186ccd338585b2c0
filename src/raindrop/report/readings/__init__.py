"""The report on an imputer or a forecaster: errors on hidden readings, and gaps with their filled values."""

from raindrop.report.readings.content import ReadingsReport, report_on_readings

__all__ = ["ReadingsReport", "report_on_readings"]
