"""Takes out of a message what must not leave the app: it will stand on a page, and in a log that others keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase
from typing import Final

MASK: Final = "***"
LOOKED_AT: Final = 256
"""Characters. Bounds the work; what lies behind is cut off, with the word that would be cut in two."""

_NAMES: Final = (
    "pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    "|authorization|auth|session(?:[_-]?id)?|cookie|credentials?|signature|dsn"
)
_VALUE: Final = r"\"[^\"]*\"?|'[^']*'?|(?:bearer|basic|digest|token)\s+[^\s,;&]+|[^\s,;&)\]}]+"
_PATTERNS: Final = (
    # A name and its value: password=..., "api_key": "...", Authorization: Bearer ...
    ("", rf"(?:{_NAMES})[\"']?\s{{0,3}}[=:]\s{{0,3}}({_VALUE})"),
    ("bearer", r"bearer\s{1,3}([\w+/.~=-]{8,})"),
    ("basic", r"basic\s{1,3}([\w+/.~=-]{8,})"),
    # Name and password in a URL, whose host is left; e-mail addresses.
    ("@", r"://([^/\s@]{0,100})@[^/\s]*|((?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)"),
    # Opaque keys: JSON web tokens, and whatever is long, in one piece and with a digit.
    ("eyj", r"\b(eyj[\w-]{5,}(?:\.[\w-]*)*)"),
    ("", r"((?<![\w-])(?=[a-z_-]{0,60}\d)[\w-]{24,}={0,2})"),
    # Card numbers, telephone numbers, customers.
    ("", r"(\d(?:[ -]?\d){7,30})"),
)
_SECRETS: Final = tuple((sign, re.compile(pattern, re.ASCII)) for sign, pattern in _PATTERNS)
"""For text in lower case: a search that ignores case takes six times as long. Each is only tried where its sign occurs;
the group that matched is the secret."""

_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def redacted(text: str) -> str:
    """The text with ``***`` for passwords, tokens, keys, e-mail addresses and numbers of eight digits or more."""
    if len(text) > LOOKED_AT:
        text = text[:LOOKED_AT].rpartition(" ")[0]
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters become two
        lowered = text.translate(_LOWER)
    spans = [
        match.span(match.lastindex or 0)
        for sign, secret in _SECRETS
        if sign in lowered
        for match in secret.finditer(lowered)
    ]
    return "".join(_pieces(text, sorted(spans))) if spans else text


def _pieces(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    """The text between the spans, which may overlap, with masks."""
    end = 0
    for begin, until in spans:
        if begin >= end:
            yield text[end:begin]
            yield MASK
        end = max(end, until)
    yield text[end:]
