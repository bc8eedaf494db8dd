"""The scripts of the store on Redis: three Lua files, each known to the server by its digest.

They run on every server since Redis 6.2. Redis functions would need Redis 7 and the permission to install them.
"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("lua")


class Script(NamedTuple):
    """The name of a script, its keys in order, and the SHA-1 of its text."""

    name: str
    keys: tuple[str, ...]
    sha: str

    @property
    def text(self) -> bytes:
        """The Lua text. A server needs it once, so it is not kept in memory."""
        return _text(self.name)


def _script(name: str, keys: tuple[str, ...]) -> Script:
    return Script(name, keys, sha1(_text(name), usedforsecurity=False).hexdigest())


def _text(name: str) -> bytes:
    return (_FOLDER / f"{name}.lua").read_bytes()


_MEMBERS: Final = (
    *("state", "culls", "leases", "holds", "settings", "alive", "members", "causes", "control"),
    *("grants", "refunded", "departed"),
)
READ: Final = _script("read", (*_MEMBERS, "errors"))
_TABLES: Final = ("state", "culls", "leases", "holds")
COMMIT: Final = _script("commit", (*_TABLES, "grants", "refunded", "events", "noted", "alive", "abouts"))
BEAT: Final = _script("beat", (*_MEMBERS, "errors", "ratios", "abouts"))
