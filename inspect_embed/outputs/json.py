"""JSON: the result record itself, at full precision; null where a number is undefined."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, is_dataclass
from typing import Any

from inspect_embed.report import Report

SUFFIXES = (".json",)
_SURROGATES = re.compile("[\ud800-\udfff]")


def render(report: Report, ascii: bool = False) -> str:
    """The result as one JSON object, with a newline at its end; with `ascii`, JSON's own escapes for all else."""
    text = json.dumps(plain(report.result), ensure_ascii=ascii, indent=2, allow_nan=False) + "\n"
    # A lone surrogate has no bytes in UTF-8; inside a string of JSON its escape means the same.
    return _SURROGATES.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)


def plain(value: Any) -> Any:
    """Records as dictionaries, numbers that JSON knows; NaN and infinities as None."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON does not know")
