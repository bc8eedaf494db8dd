"""The values of a day's file, by table and key. Every problem is one sentence with the place."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from math import ceil, isfinite
from typing import Any, Final, TypeVar

from sidecar.runlock import durations

T = TypeVar("T")

MAX_DURATION_S: Final = 366 * 86_400.0


class DayError(Exception):
    """The day cannot be simulated; the text is one sentence with the place."""


class DayTable:
    """One table of the file, and its place for messages."""

    def __init__(self, place: str, content: Mapping[str, Any]) -> None:
        self.place = place
        self.content = content

    def problem(self, key: str, sentence: str) -> DayError:
        """The problem with a key of this table."""
        return DayError(f"{self.place}: {key}: {sentence}")

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse keys that nothing reads: they would be misspelt ones."""
        for key in self.content:
            if key not in known:
                raise self.problem(key, f"unknown key{similar(key, known)}")

    def table(self, name: str) -> DayTable:
        """A table in this one; empty if it is missing."""
        content = self.content.get(name, {})
        if not isinstance(content, dict):
            raise self.problem(name, f"must be a table, written [{name}]")
        return DayTable(f"{self.place}: [{name}]", content)

    def tables(self, name: str) -> Iterator[tuple[int, DayTable]]:
        """The tables of an array, numbered from 1."""
        rows = self.content.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.problem(name, f"must be tables, each written [[{name}]]")
        for number, row in enumerate(rows, 1):
            yield number, DayTable(f"{self.place}: [[{name}]] {number}", row)

    def seconds(
        self, key: str, default: float | None = None, *, least: float = 0, most: float = MAX_DURATION_S
    ) -> float:
        """A duration in seconds."""
        value = self._value(key, default)
        try:
            seconds = durations.parse(value)
        except ValueError as error:
            raise self.problem(key, f"{value!r} {error}") from None
        if not least <= seconds <= most:
            raise self.problem(key, f"{value!r} must be from {durations.write(least)} to {durations.write(most)}")
        return seconds

    def number(self, key: str, default: float | None = None, *, least: float, most: float) -> float:
        """A number within these bounds."""
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or not least <= value <= most:
            raise self.problem(key, f"{value!r} must be a number from {least:g} to {most:g}")
        return float(value)

    def part(self, key: str, default: float) -> float:
        """A part from 0 to 1."""
        return self.number(key, default, least=0, most=1)

    def count(self, key: str, default: int | None = None, *, most: int) -> int:
        """A whole number from 1."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self.problem(key, f"{value!r} must be a whole number from 1 to {most}")
        return value

    def affected(self, size: int, default: int | None = None) -> int:
        """The number of affected containers, from ``count`` or as ``share`` of the fleet."""
        if "share" in self.content:
            if "count" in self.content:
                raise self.problem("share", "cannot be given together with count")
            return max(1, ceil(size * self.number("share", least=0, most=1)))
        return self.count("count", default, most=size)

    def switch(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.problem(key, f"{value!r} must be true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self._value(key, default)
        if not isinstance(value, str) or not value.isprintable() or not value:
            raise self.problem(key, f"{value!r} must be a text")
        return value

    def _value(self, key: str, default: T | None) -> T | Any:
        value = self.content.get(key, default)
        if value is None:
            raise self.problem(key, "is missing")
        return value


def similar(word: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown word, with a known one that looks like it; empty without one."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
