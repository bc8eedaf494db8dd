"""``--fail-if 'culls_per_day > 3'``: limits of figures, for a pipeline that has to stop."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_WRITTEN: Final = re.compile(r"\s*([a-z][a-z_.]*)\s*(>=|<=|==|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*")


class FigureLimit(NamedTuple):
    """One limit: the name of a figure in the JSON (``a.b`` is ``b`` inside of ``a``), a comparison, and a number."""

    text: str
    name: str
    sign: str
    number: float

    @classmethod
    def parse(cls, text: str) -> FigureLimit:
        """The limit of a text such as ``culls_per_day > 3``. Raises ValueError."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no limit: write a figure of --json, a comparison and a number: culls > 3")
        return cls(text.strip(), match[1], match[2], float(match[3]))

    def broken_by(self, column: Mapping[str, Any]) -> str:
        """The sentence about the figures of a column that are over it, empty if they are not. Raises ValueError."""
        value: Any = column
        for part in self.name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                known = (name for name, one in column.items() if isinstance(one, int | float))
                raise ValueError(f"{self.name}: no such figure; there are {', '.join(known)}")
            value = value[part]
        if value is None:  # there was none, such as a time to cull without a cull
            return ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.name}: is no number")  # noqa: TRY004 - of the command line
        broken = _OPERATORS[self.sign](value, self.number)
        return f"{column['rules']}: {self.name} is {value:g} (--fail-if {self.text!r})" if broken else ""


def broken(limits: Sequence[FigureLimit], columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """The sentences about all limits that these columns break. Raises ValueError for an unknown figure."""
    return [sentence for limit in limits for column in columns if (sentence := limit.broken_by(column))]
