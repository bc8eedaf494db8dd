"""A reader of HCL, as far as job files of Nomad need it: blocks, attributes and their literal values.

An expression (a reference, a call, a condition, an operator) is not evaluated: it becomes an ``Expression``, which has
its text. Only ``var.NAME`` and ``local.NAME`` get their values, the former from the default of the variable. The syntax
is that of HCL's specification (github.com/hashicorp/hcl, hclsyntax/spec.md).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final, NoReturn

Body = dict[str, Any]
"""A value for each attribute, and a list of bodies for each kind of block. ``name`` is the first label of a block."""

_BLANK: Final = re.compile(r"(?:[ \t\r]|/\*.*?\*/|(?:#|//)[^\n]*)*", re.DOTALL)
_SPACE: Final = re.compile(r"(?:\s|/\*.*?\*/|(?:#|//)[^\n]*)*", re.DOTALL)
_NAME: Final = re.compile(r"[^\W\d][\w-]*")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_HEREDOC: Final = re.compile(r"<<(-?)([\w-]+)\r?\n(.*?)^[ \t]*\2[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_ESCAPE: Final = re.compile(r'\\(u[0-9a-fA-F]{4}|[nrt"\\])')
_FOR: Final = re.compile(r"[\[{]\s*for\b")
_REFERENCE: Final = re.compile(r"\$\{\s*(var|local)\.([\w-]+)\s*\}")
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}


class HclError(ValueError):
    """The text is not HCL, or more than this reader knows; ``line`` counts from 1."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


class Expression(str):
    """An expression that was not evaluated, as ``${text}``, and its line in the file."""

    __slots__ = ("line",)
    line: int


def loads(text: str) -> Body:
    """Return the body of a file. Raises HclError."""
    reader = _HclReader(text)
    body = reader.body(is_file=True)
    values = {f"var.{each['name']}": each["default"] for each in body.get("variable", ()) if "default" in each}
    values |= {f"local.{name}": value for block in body.get("locals", ()) for name, value in block.items()}
    return {name: _resolved(value, values) for name, value in body.items()}


def _resolved(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _resolved(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, values) for each in value]
    if not isinstance(value, str):
        return value
    if (whole := _REFERENCE.fullmatch(value)) and ".".join(whole.groups()) in values:
        return values[".".join(whole.groups())]
    text = _REFERENCE.sub(lambda found: str(values.get(".".join(found.groups()), found[0])), value)
    return value if text == value else text


class _HclReader:
    """Reads from ``_at`` on, and moves it behind what was read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def body(self, *, is_file: bool = False) -> Body:
        """Attributes and blocks up to the closing brace, or to the end of the file."""
        found: Body = {}
        while True:
            self._skip(_SPACE)
            if self._at == len(self._text) and is_file:
                return found
            if self._took("}") and not is_file:
                return found
            name = self._matched(_NAME) or self._fail("a name of an attribute or block is missing")
            self._skip(_BLANK)
            if self._took("="):
                found[name] = self._value()
                self._skip(_BLANK)
                if not (self._sees("\n", "}") or self._at == len(self._text)):
                    self._fail("an attribute has to end with its line")
            else:
                found.setdefault(name, []).append(self._block(name))

    def _block(self, name: str) -> Body:
        labels = []
        while not self._took("{"):
            label = self._string() if self._sees('"') else self._matched(_NAME)
            labels.append(label or self._fail("= or { is missing"))
            self._skip(_BLANK)
        if name == "dynamic":
            self._fail("a dynamic block is not read: give the output of nomad job run -output FILE")
        body = self.body()
        return {"name": labels[0], **body} if labels else body

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self) -> Any:
        self._skip(_BLANK)
        begin = self._at
        if self._is_literal():
            value = self._literal()
            self._skip(_BLANK)
            if self._sees("\n", ",", "]", "}") or self._at == len(self._text):
                return value
            self._at = begin
        return self._expression()

    def _is_literal(self) -> bool:
        if _FOR.match(self._text, self._at):
            return False
        word = _NAME.match(self._text, self._at)
        return word[0] in _WORDS if word else self._sees('"', "[", "{", "<<") or bool(self._number())

    def _number(self) -> re.Match[str] | None:
        return _NUMBER.match(self._text, self._at)

    def _literal(self) -> Any:
        if self._sees('"'):
            return self._string()
        if self._sees("<<"):
            return self._heredoc()
        if self._took("["):
            return self._list()
        if self._took("{"):
            return self._map()
        if text := self._matched(_NUMBER):
            return json.loads(text) if not re.match(r"-?0\d", text) else int(text)
        return _WORDS[self._matched(_NAME)]

    def _list(self) -> list[Any]:
        found: list[Any] = []
        while True:
            self._skip(_SPACE)
            if self._took("]"):
                return found
            found.append(self._value())
            self._skip(_SPACE)
            if not (self._took(",") or self._sees("]")):
                self._fail(", or ] is missing")

    def _map(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            self._skip(_SPACE)
            if self._took("}"):
                return found
            name = self._string() if self._sees('"') else self._matched(_NAME)
            self._skip(_BLANK)
            if not (self._took("=") or self._took(":")):
                self._fail("= is missing")
            found[name] = self._value()
            self._skip(_BLANK)
            if not (self._took(",") or self._sees("\n", "}")):
                self._fail(", or } is missing")

    def _string(self) -> str:
        begin = self._at
        self._quoted()
        return _ESCAPE.sub(lambda found: str(json.loads(f'"{found[0]}"')), self._text[begin + 1 : self._at - 1])

    def _heredoc(self) -> str:
        found = _HEREDOC.match(self._text, self._at)
        if found is None:
            self._fail("the end of the heredoc is missing")
        self._at = found.end()
        return textwrap.dedent(found[3]) if found[1] else found[3]

    def _expression(self) -> Expression:
        """All up to the end of the line, or to the comma or bracket that ends the value."""
        begin = self._at
        self._balanced(("\n", ",", "]", "}"))
        text = self._text[begin : self._at].strip()
        found = Expression(f"${{{text or self._fail('a value is missing')}}}")
        found.line = self._line(begin)
        return found

    def _balanced(self, ends: tuple[str, ...]) -> None:
        """Move to the first of ``ends`` outside of brackets and strings; the end of the file is one for values."""
        while self._at < len(self._text):
            if self._sees(*ends):
                return
            if self._sees('"'):
                self._quoted()
            elif heredoc := _HEREDOC.match(self._text, self._at):
                self._at = heredoc.end()
            elif self._sees("(", "[", "{"):
                end = {"(": ")", "[": "]", "{": "}"}[self._text[self._at]]
                self._at += 1
                self._balanced((end,))
                self._at += 1
            elif (comment := _BLANK.match(self._text, self._at)) and comment.end() > self._at:
                self._at = comment.end()
            else:
                self._at += 1
        if "\n" not in ends:
            self._fail(f"{ends[0]} is missing")

    def _quoted(self) -> None:
        """Move behind the string that begins here; ``${...}`` in it may have strings of its own."""
        begin = self._at
        self._at += 1
        while not self._took('"'):
            if self._at >= len(self._text) or self._sees("\n"):
                self._at = begin
                self._fail('the closing " is missing')
            if self._sees("$${", "%%{"):
                self._at += 3
            elif self._sees("${", "%{"):
                self._at += 2
                self._balanced(("}",))
                self._at += 1
            else:
                self._at += 2 if self._sees("\\") else 1

    # -- the text -----------------------------------------------------------------------------------------------

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._matched(pattern)

    def _matched(self, pattern: re.Pattern[str]) -> str:
        """The text of the pattern here, and behind it; "" if it does not match."""
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""

    def _sees(self, *beginnings: str) -> bool:
        return self._text.startswith(beginnings, self._at)

    def _took(self, beginning: str) -> bool:
        is_here = self._sees(beginning)
        self._at += len(beginning) if is_here else 0
        return is_here

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    def _fail(self, sentence: str) -> NoReturn:
        raise HclError(self._line(self._at), sentence)
