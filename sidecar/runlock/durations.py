"""Durations as people write them: ``10``, ``10s``, ``500ms``, ``5m``, ``1h``, ``1.5s``, ``7d``. Seconds inside."""

from __future__ import annotations

import math
import re

_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ms|s|m|h|d)?")
# (times, by): multiply by the first, divide by the second. Dividing by 1000 is exact, multiplying by 0.001 is not.
_UNITS: dict[str | None, tuple[int, int]] = {
    None: (1, 1),
    "ms": (1, 1000),
    "s": (1, 1),
    "m": (60, 1),
    "h": (3600, 1),
    "d": (86400, 1),
}
_HINT = "is not a duration: write a number with ms, s, m, h or d, such as 10s, 500ms or 1.5s"


def parse(value: object) -> float:
    """Return the seconds that ``value`` means: a number of seconds, or text such as ``500ms``.

    Raises ValueError for anything that is not a finite duration of zero or more.
    """
    if isinstance(value, str):
        value = _read(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(_HINT)  # noqa: TRY004 - to pydantic a ValueError is a bad value, a TypeError a bug
    if value < 0:
        raise ValueError("must not be negative")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError("must be finite")
    return seconds


def write(seconds: float) -> str:
    """Return ``seconds`` in the unit a person would take: ``500ms``, ``60s``, ``10m``, ``24h``."""
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds > size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    if 0 < seconds < 1:
        return f"{_plain(seconds * 1000)}ms"
    return f"{_plain(seconds)}s"


def _read(text: str) -> float:
    if re.match(r"-[0-9.]", text):
        raise ValueError("must not be negative")
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError(_HINT)
    number, unit = match.groups()
    times, by = _UNITS[unit]
    return float(number) * times / by


def _plain(number: float) -> str:
    """Write a number with at most nine decimals, without exponent or trailing zeros."""
    return f"{number:.9f}".rstrip("0").rstrip(".")
