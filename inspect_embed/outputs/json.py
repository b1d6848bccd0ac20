"""JSON: the result record itself, at full precision; null where a number is undefined."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from inspect_embed.report import Report

SUFFIXES = (".json",)


def render(report: Report) -> str:
    """The result as one JSON object, with a newline at its end."""
    return json.dumps(plain(report.result), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Records as dictionaries, numbers that JSON knows; NaN and infinities as None."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON does not know")
