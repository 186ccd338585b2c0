"""The report on an imputer or a forecaster: errors on hidden readings, and gaps with what they were filled from."""

from raindrop.report.readings.content import ReadingsReport, report_on_readings

__all__ = ["ReadingsReport", "report_on_readings"]
