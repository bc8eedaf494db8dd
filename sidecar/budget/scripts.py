"""The scripts of the shared bucket: files of Lua beside this one, put together and named by their digest.

They are not imported and not Redis functions, so they run on every server since 6.2 and need no right to install.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Final

_TURN: Final = ("turn", "terms")
_FLEET: Final = ("records", "roster", "incident", "trials", "fleet")


@dataclass(frozen=True, slots=True)
class Script:
    """A text of Lua, and the SHA-1 that the server knows it by."""

    text: bytes
    sha: str


def _script(*files: str) -> Script:
    text = b"\n".join(Path(__file__).with_name(f"{file}.lua").read_bytes() for file in files)
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


def read() -> tuple[Script, Script]:
    """Claim and beat: what every sidecar needs."""
    claim = (*_TURN, "asked", *_FLEET, "sizes", "grants", "claim")
    beat = (*_TURN, "asked", "calm", *_FLEET, "beat")
    return _script(*claim), _script(*beat)


def read_hold() -> Script:
    """Freeze the service or an instance."""
    return _script(*_TURN, "records", "hold")


def read_release() -> Script:
    """End a hold."""
    return _script("turn", "records", "release")


def read_roll() -> Script:
    """Show the fleet."""
    return _script(*_TURN, *_FLEET, "roll")
