"""Selectors of series on a metrics page, as Prometheus writes them, with the kind of error that they count.

``http_requests_total{status=~"5..",handler!="/probe"}``, ``kind=db: db_errors_total``, ``kind_from=db_system:
db_errors_total``. This module knows neither pages nor counters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

UNKNOWN_KIND: Final = "unknown"
_KIND_LENGTH: Final = 64
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR: Final = re.compile(r"=~|!~|!=|=")
_STRING: Final = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`]*)`")
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_PREFIX: Final = re.compile(r"(kind|kind_from)\s*=\s*")
_KIND: Final = re.compile(rf"[A-Za-z0-9_./-]{{1,{_KIND_LENGTH}}}")
_NOT_OF_A_KIND: Final = re.compile(r"[^A-Za-z0-9_.:/-]")
_BLANKS: Final = re.compile(r"\s*")
_SEPARATOR: Final = re.compile(r"[,;]")
_COLON: Final = re.compile(":")
_COMMA: Final = re.compile(",")
_OPEN: Final = re.compile(r"\{")
_CLOSE: Final = re.compile(r"\}")


class BadSelectorError(ValueError):
    """A selector that cannot be read. The text says what is wrong, and at which character, counted from 1."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label: ``=``, ``!=``, ``=~`` or ``!~``. A label that is missing counts as empty."""

    label: str
    operator: str
    value: str
    _pattern: Any = field(default=None, compare=False, repr=False)  # a compiled expression of RE2

    def matches(self, value: str) -> bool:
        """Whether the label's value fits; an expression has to fit all of it."""
        fits = self._pattern.fullmatch(value) is not None if self._pattern else value == self.value
        return fits is not self.operator.startswith("!")


@dataclass(frozen=True, slots=True)
class Selector:
    """The series of one metric whose labels fit all matchers, and the kind of error that they count."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    kind: str = UNKNOWN_KIND
    kind_from: str | None = None

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a series with this name and these labels is selected."""
        return name == self.name and all(matcher.matches(labels.get(matcher.label, "")) for matcher in self.matchers)

    def kind_of(self, labels: Mapping[str, str]) -> str:
        """The kind of error of a selected series."""
        if self.kind_from is None:
            return self.kind
        return _NOT_OF_A_KIND.sub("_", labels.get(self.kind_from, ""))[:_KIND_LENGTH] or self.kind


def parse_selectors(text: str) -> tuple[Selector, ...]:
    """Read selectors with ``,``, ``;`` or a line's end between them; raise BadSelectorError if one cannot be read."""
    reader = _Reader(text)
    selectors = []
    while reader.at < len(text):
        selectors.append(reader.selector())
        if not reader.take(_SEPARATOR) and not reader.is_at_new_line and reader.at < len(text):
            reader.fail("expected , or ; or a new line before the next selector")
    return tuple(selectors)


class _Reader:
    """Reads the text of selectors from left to right; ``at`` is always behind the blanks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0
        self.is_at_new_line = False
        self.take(_BLANKS)

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        position = self.at if at is None else at
        where = f"at character {position + 1}" if position < len(self._text) else "at the end"
        raise BadSelectorError(f"{where}: {expected}")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self.at)
        if match:
            blanks = _BLANKS.match(self._text, match.end())
            self.at = blanks.end() if blanks else match.end()
            self.is_at_new_line = "\n" in self._text[match.end() : self.at]
        return match

    def selector(self) -> Selector:
        kind, kind_from = self._kind()
        name = self.take(_NAME) or self.fail("expected the name of a metric")
        matchers: list[Matcher] = []
        if self.take(_OPEN):
            while not self.take(_CLOSE):
                matchers.append(self._matcher())
                if not self.take(_COMMA) and self._text[self.at : self.at + 1] != "}":
                    self.fail("expected , or }")
        return Selector(name[0], tuple(matchers), kind, kind_from)

    def _kind(self) -> tuple[str, str | None]:
        prefix = self.take(_PREFIX)
        if not prefix:
            return UNKNOWN_KIND, None
        kind, label = UNKNOWN_KIND, None
        if prefix[1] == "kind":
            kind = (self.take(_KIND) or self.fail(f"a kind takes 1 to {_KIND_LENGTH} of A-Z a-z 0-9 _ . / -"))[0]
        else:
            label = (self.take(_LABEL) or self.fail("kind_from takes the name of a label"))[0]
        if not self.take(_COLON):
            self.fail("expected : behind the kind")
        return kind, label

    def _matcher(self) -> Matcher:
        label = (self.take(_LABEL) or self.fail("expected a label"))[0]
        operator = (self.take(_OPERATOR) or self.fail("expected one of = != =~ !~"))[0]
        begun = self.at
        value = self._string()
        if "~" not in operator:
            return Matcher(label, operator, value)
        try:
            return Matcher(label, operator, value, _compile(value))
        except ValueError as error:
            self.fail(f"not a regular expression of Prometheus: {error}", begun)

    def _string(self) -> str:
        begun = self.at
        string = self.take(_STRING) or self.fail("expected a value in quotes")
        if string[3] is not None:
            return string[3]

        def unescape(escape: re.Match[str]) -> str:
            if escape[1] not in _ESCAPED:
                self.fail(f"no such escape: {escape[0]} (in quotes a backslash is \\\\)", begun + 1 + escape.start())
            return _ESCAPED[escape[1]]

        return _ESCAPE.sub(unescape, string[1] if string[2] is None else string[2])


def _compile(expression: str) -> Any:
    """Compile with RE2, the engine of Prometheus: label values come from the network, and it matches in linear time."""
    import re2  # noqa: PLC0415 - 3 MiB, for sidecars whose selectors have a regular expression

    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        (cause,) = error.args
        raise ValueError(cause.decode() if isinstance(cause, bytes) else cause) from None
