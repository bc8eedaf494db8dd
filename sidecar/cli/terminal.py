"""Printing for all commands. Text from outside cannot move the cursor."""

from __future__ import annotations

import sys
from typing import Final

PROGRAM: Final = "health-arbiter"
COMPLETE: Final = "_HEALTH_ARBITER_COMPLETE"
"""The environment variable by which a shell asks for completions."""


def plain(text: object) -> str:
    """The text with a question mark for each character that cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


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
