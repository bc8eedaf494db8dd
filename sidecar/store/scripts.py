"""The scripts of the store on Redis: three files of Lua, each known to the server by its digest.

They are no functions of Redis, so they run on every server since 6.2 and need no right to install.
"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("lua")


class Script(NamedTuple):
    """The name of a script, its keys in order, and the SHA-1 that the server knows its text by."""

    name: str
    keys: tuple[str, ...]
    sha: str

    @property
    def text(self) -> bytes:
        """The Lua. A server needs it once, so it is not kept."""
        return _text(self.name)


def _script(name: str, keys: tuple[str, ...]) -> Script:
    return Script(name, keys, sha1(_text(name), usedforsecurity=False).hexdigest())


def _text(name: str) -> bytes:
    return (_FOLDER / f"{name}.lua").read_bytes()


_MEMBERS: Final = (
    *("state", "culls", "leases", "holds", "settings", "alive", "members", "causes", "control"),
    *("grants", "refunded", "departed"),
)
READ: Final = _script("read", _MEMBERS)
_TABLES: Final = ("state", "culls", "leases", "holds")
COMMIT: Final = _script("commit", (*_TABLES, "grants", "refunded", "events", "noted", "alive", "abouts"))
BEAT: Final = _script("beat", (*_MEMBERS, "errors", "ratios", "abouts"))
