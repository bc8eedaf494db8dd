"""``--fail-if 'culls_per_day > 3'``: limits of figures, for a pipeline that has to stop."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sidecar.core.explain.reasons import REFUSALS
from sidecar.simulation.day_table import similar

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_WRITTEN: Final = re.compile(r"\s*([a-z_]+)(?:\.([^<>=]*[^<>=\s]))?\s*(>=|<=|==|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*")

_COUNTED: Final[Mapping[str, Collection[str] | None]] = {
    "culls_by_cause": None,
    "refused_claims": REFUSALS,
    "refused_containers": REFUSALS,
}
"""Figures that have a count for each key that came up, 0 for the others; with the keys that there are, if known."""

_OF_OTHERS: Final = "avoidable_less_than"
"""The figure that has a number for each of the other columns."""


class FigureLimit(NamedTuple):
    """One limit: the name of a figure in the JSON, a key inside of it or an empty one, a comparison, and a number."""

    text: str
    name: str
    key: str
    sign: str
    number: float

    @classmethod
    def parse(cls, text: str) -> FigureLimit:
        """The limit of a text such as ``culls_per_day > 3`` or ``culls_by_cause.502 > 0``. Raises ValueError."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no limit: write a figure of --json, a comparison and a number: culls > 3")
        return cls(text.strip(), match[1], match[2] or "", match[3], float(match[4]))

    def broken_by(self, column: Mapping[str, Any]) -> str:
        """The sentence about the figures of a column that are over it, empty if they are not. Raises ValueError."""
        value = self._value(column)
        if value is None:  # there was none, such as a time to cull without a cull
            return ""
        broken = _OPERATORS[self.sign](value, self.number)
        return f"{column['rules']}: {self._path} is {value:g} (--fail-if {self.text!r})" if broken else ""

    @property
    def _path(self) -> str:
        return f"{self.name}.{self.key}" if self.key else self.name

    def _value(self, column: Mapping[str, Any]) -> float | None:
        if self.name not in column:
            raise ValueError(f"{self.name}: no such figure{similar(self.name, column)}; {_there_are(column)}")
        value = column[self.name]
        if isinstance(value, Mapping):
            if not self.key:
                raise ValueError(
                    f"{self.name}: is no number: write one of its keys behind a point; {_there_are(value)}"
                )
            value = self._of_key(value)
        elif self.key and value is not None:
            raise ValueError(f"{self.name}: has no keys such as {self.key}")
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ValueError(f"{self._path}: is no number")  # noqa: TRY004 - of the command line
        return value

    def _of_key(self, counts: Mapping[str, Any]) -> Any:
        known = _COUNTED.get(self.name, counts)
        if known is not None and self.key not in known and self.key not in counts:
            raise ValueError(f"{self._path}: no such figure{similar(self.key, known)}; {_there_are(known)}")
        return counts.get(self.key, 0)


def _there_are(known: Collection[str]) -> str:
    return f"there are {', '.join(known)}"


def check(limits: Sequence[FigureLimit], example: Mapping[str, Any]) -> None:
    """Raise ValueError for a limit of a figure that a column like this ``example`` does not have."""
    for limit in limits:
        if limit.name != _OF_OTHERS or limit.name not in example or not limit.key:
            limit.broken_by(example)


def broken(limits: Sequence[FigureLimit], columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """The sentences about all limits that these columns break. Raises ValueError for an unknown figure."""
    return [sentence for limit in limits for column in columns if (sentence := limit.broken_by(column))]
