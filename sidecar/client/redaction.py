"""Removes secrets from a message, because it will be shown on a page and kept in logs.

The sidecar uses it too, for reports that do not come from this client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase
from typing import Final

MASK: Final = "***"
LOOKED_AT: Final = 256
"""Number of characters, to bound the work: the rest is cut off, together with a word that would be cut in two."""

_NAMES: Final = (
    "pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key"
    "|authorization|auth|session(?:[_-]?id)?|cookie|credentials?|signature|dsn|otp|cvv"
)
_VALUE: Final = (
    r"\\?\"[^\"]*\"?|'[^']*'?|(?:bearer|basic|token)\s+[^\s,;&]+"
    r"|(?:digest|hawk|oauth|aws4-hmac-sha256)\s[^\n]*|[^\s,;&)\]}]+"
)
_PATTERNS: Final = (
    # A private key in PEM, to its end or to the end of the text.
    ("private key-", r"private key-{2,5}(.*?)(?:-{2,5}end|\Z)"),
    # A header that holds several values.
    ("cookie", r"cookie[\"']?\s{0,3}:\s{0,3}([^\n\"']+)"),
    # A name and its value: password=..., "api_key": "...", Authorization: Bearer ...
    ("", rf"(?:{_NAMES})\\?[\"']?\]?\s{{0,3}}(?:[=:]>?|is\b)\s{{0,3}}({_VALUE})"),
    # An option of a program, as the list of processes shows it, and mysql's, which takes no blank.
    ("--", rf"--[\w-]{{0,40}}?(?:{_NAMES})\s{{1,3}}({_VALUE})"),
    (" -p", r"mysql[^\n]{0,99}? -p(\S+)"),
    ("<", rf"<[\w:-]{{0,40}}?(?:{_NAMES})>([^<]*)"),
    ("bearer", r"bearer\s{1,3}([\w+/.~=-]{8,})"),
    ("basic", r"basic\s{1,3}([\w+/.~=-]{8,})"),
    # Name and password in a URL, whose host is left; e-mail addresses.
    (
        "@",
        (
            r"://([^/\s]{0,200})@[^/\s@]*|://([^/\s:@]{0,64}:[^\s@]{1,200})@[^/\s]*"
            r"|((?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)"
        ),
    ),
    ("%40", r"((?<![\w.+-])[\w.+-]{1,64}%40[\w-]{1,63}(?:\.[\w-]{1,63})+)"),
    # Opaque keys: JSON web tokens, those of Amazon, and any long word with a digit.
    ("eyj", r"\b(eyj[\w-]{5,}(?:\.[\w-]*)*)"),
    ("akia", r"\b(akia[a-z0-9]{12,})"),
    ("asia", r"\b(asia[a-z0-9]{12,})"),
    ("", r"((?<![\w-])(?=[a-z_-]{0,60}\d)[\w-]{24,}={0,2})"),
    # Card numbers, telephone numbers, customers; not a port and the address behind it.
    ("", r"(\d(?:(?:[ -]|\)[ -]?| ?\()?\d){7,30})(?!\d{0,3}(?:\.\d{1,3}){2})"),
    (".", r"(\d{3,5}\.\d{3}\.\d{4,})"),
    ("/", r"(\d{3,5}/\d{6,})"),
)
_SECRETS: Final = tuple((sign, re.compile(pattern, re.ASCII | re.DOTALL)) for sign, pattern in _PATTERNS)
"""For text in lower case, because a search that ignores case takes six times as long. A pattern is tried only if its
sign occurs; the group that matched is the secret."""

_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_TO_A_BLANK: Final = re.compile(r".*(?=\s)", re.DOTALL)
_TO_A_MARK: Final = re.compile(r".*(?=[,;\s]|[^\x00-\x7f])", re.DOTALL)
"""JSON may have no blanks, and Chinese has none. A secret ends at these characters too, except in a URL."""

_USER: Final = re.compile(r"(?<=://)[^\s@]*\Z")


def redacted(text: str, looked_at: int = LOOKED_AT) -> str:
    """Return the text with ``***`` for passwords, tokens, keys, e-mail addresses and numbers of 8 digits or more.

    A text of more than ``looked_at`` characters is cut there, before its last blank, or before a comma or the like if
    its words are long. A single long word becomes ``***``.
    """
    if len(text) > looked_at:
        text = _beginning(text[:looked_at])
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


def _beginning(text: str) -> str:
    """Return the text without its last word: half of it might be a secret that no pattern recognises."""
    words = _TO_A_BLANK.match(text)
    if words and 2 * words.end() >= len(text):
        return words[0]
    parts = _TO_A_MARK.match(text)
    return _USER.sub("", parts[0]) if parts and parts[0] else MASK


def _pieces(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    """Yield the text between the spans, which may overlap, and a mask for each."""
    end = 0
    for begin, until in spans:
        if begin >= end:
            yield text[end:begin]
            yield MASK
        end = max(end, until)
    yield text[end:]
