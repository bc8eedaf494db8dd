"""What every command prints, and how it ends. It loads nothing, not even click, which ``run`` must not load.

Text from outside cannot move the cursor. click removes the colours where the output is no terminal, and ``NO_COLOR``
switches them off.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final

PROGRAM: Final = "health-arbiter"
COMPLETE: Final = "_HEALTH_ARBITER_COMPLETE"
"""The environment variable by which a shell asks for completions."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SIDECAR: Final = os.EX_UNAVAILABLE
EXIT_BUG: Final = os.EX_SOFTWARE

EXIT_CODES: Final = f"""\
Exit codes: 0 done; {EXIT_FAILED} not done: the answer is no, something failed, or Redis does not answer; {EXIT_USAGE}
the command line or a setting cannot be used, or the order is not allowed; {EXIT_NO_SIDECAR} no sidecar answers on this
machine or at --url."""
"""The sentence about them in each help. ``exec`` also has those of the command that it runs."""

_RED, _GREEN, _YELLOW, _MAGENTA, _CYAN, _GREY = 31, 32, 33, 35, 36, 90
COLOURS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("up", "ok", "granted", "recovered", "helped", "replaced", "redis_back"), _GREEN),
    **dict.fromkeys(("suspect", "warn", "denied", "hold", "paused", "would_cull", "unclear"), _YELLOW),
    **dict.fromkeys(("draining", "down", "culled", "FAIL", "not_honoured", "action_failed", "unhelped"), _RED),
    **dict.fromkeys(("redis_away", "data_loss", "hold_lost", "error"), _RED),
    **dict.fromkeys(("retiring", "retired"), _CYAN),
    **dict.fromkeys(("silent", "duplicate", "memory"), _MAGENTA),
    "gone": _GREY,
}
"""Colour by state of a container, word of the ledger, level of a finding, or label of a line about the fleet."""


def plain(text: object) -> str:
    """The text with a question mark for each character that cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def coloured(line: str, word: str) -> str:
    """``line`` with the first occurrence of ``word``, which is behind a blank or begins the line, in its colour."""
    if word not in COLOURS:
        return line
    in_colour = f"\x1b[{COLOURS[word]}m{word}\x1b[0m"
    return re.sub(rf"(?<!\S){re.escape(word)}\b", lambda _: in_colour, line, count=1)


def cause(error: Exception) -> str:
    """The error as text, in the words of the operating system or of OpenSSL if there are any."""
    if verified := getattr(error, "verify_message", ""):
        return f"certificate verify failed: {verified}; SSL_CERT_FILE can name the file of its authority"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def complain(text: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"{PROGRAM}: {plain(text)}\n")
