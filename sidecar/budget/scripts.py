"""The scripts of the shared bucket: files of Lua beside this one, put together and named by their digest.

They are not imported and not Redis functions, so they run on every server since 6.2 and need no right to install.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Final, NamedTuple

# What begins with it is the body of a function: its functions then take over what they use of before, where otherwise
# Lua would look for each of these among all the locals that are in use.
_WITHIN: Final = "within"

_TURN: Final = ("turn", _WITHIN, "terms")
_FLEET: Final = ("records", _WITHIN, "roster", "incident", "culls", "trials", "leases", "fleet")
_TOKENS: Final = ("sizes", "grants")
_GATES: Final = (*_TURN, "asked", *_FLEET, "shares", "sizes", "gates", "evicted")


class Script(NamedTuple):
    """The files of a script, and the SHA-1 that the server knows their text by."""

    files: tuple[str, ...]
    sha: str

    @property
    def text(self) -> bytes:
        """The Lua. A server needs it once, so it is not kept."""
        return _text(self.files)


def _script(*files: str) -> Script:
    return Script(files, sha1(_text(files), usedforsecurity=False).hexdigest())


def _text(files: tuple[str, ...]) -> bytes:
    parts = (b"return (function()" if file == _WITHIN else _read(file) for file in files)
    return b"\n".join((*parts, b"end)()" * files.count(_WITHIN)))


def _read(file: str) -> bytes:
    return Path(__file__).with_name(f"{file}.lua").read_bytes()


def read() -> tuple[Script, Script]:
    """Claim and beat: what every sidecar needs."""
    claim = (*_GATES, "grants", "claim")
    beat = ("turn", "asked", "shares", "calm", _WITHIN, "terms", *_FLEET, *_TOKENS, "beat")
    return _script(*claim), _script(*beat)


@cache  # a fleet that is due asks at every beat
def read_retire() -> Script:
    """Go for one's age, under a lease."""
    return _script(*_GATES, "retire")


def read_resign() -> Script:
    """Give a lease back."""
    return _script("turn", "records", _WITHIN, "culls", "trials", "leases", "resign")


def read_hold() -> Script:
    """Freeze the service or an instance."""
    return _script(*_TURN, "records", "hold")


def read_release() -> Script:
    """End a hold."""
    return _script("turn", "records", "release")


def read_note() -> Script:
    """Write entries into the ledger."""
    return _script("note")


def read_first() -> Script:
    """Be the first of the fleet to say a word."""
    return _script("first")


def read_roll() -> Script:
    """Show the fleet."""
    return _script(*_TURN, *_FLEET, "shares", *_TOKENS, "roll")
