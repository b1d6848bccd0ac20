"""CSV: the one table of an answer, every row, at full precision.

Cells that hold a comma or a quote are quoted (RFC 4180), line breaks and controls are escapes; an undefined number is
an empty cell.
Words like `null` and `NA` are tokens here: read the file with `pandas.read_csv(path, keep_default_na=False)`.
"""

from __future__ import annotations

import csv
import io
import math

from inspect_embed.errors import OutputError
from inspect_embed.report import Report, Value, printable

SUFFIXES = (".csv",)


def render(report: Report) -> str:
    """The report's sheet as CSV; OutputError where the report has none."""
    if report.sheet is None:
        raise OutputError(
            "This answer is no single table, so it cannot be written as CSV.", "Use --format json."
        )
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([printable(column.name) for column in report.sheet.columns])
    writer.writerows([[_cell(value) for value in row] for row in report.sheet.rows])
    return lines.getvalue()


def _cell(value: Value) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value
