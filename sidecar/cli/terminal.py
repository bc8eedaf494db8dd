"""What commands print: text that others wrote cannot move the cursor, and a poor terminal is no reason to fail."""

from __future__ import annotations

import sys


def plain(text: object) -> str:
    """The text with a question mark for whatever cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def cause(error: Exception) -> str:
    """What went wrong, in the system's words if it has some."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def say(text: str) -> None:
    """Print lines; letters that the terminal does not know become question marks."""
    encoding = sys.stdout.encoding
    sys.stdout.write(f"{text}\n".encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def complain(text: str) -> None:
    """Print one line to standard error, which knows what to do with strange letters."""
    sys.stderr.write(f"health-arbiter: {plain(text)}\n")
