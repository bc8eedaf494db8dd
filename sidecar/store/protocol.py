"""A store keeps the fleet's state: it gives a view, and takes edits if nothing has changed since.

A store knows no rule of the fleet: it has tables of records, sorted times and counts. Its only check is the budget: it
refuses a grant over the number of tokens. The rules are in ``core.fleet``; ``budget`` connects the two.

A store raises ``StoreError`` with a machine word for a failure of its server, and no other error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from sidecar.core.claims import Beat
from sidecar.core.fleet.view import BeatReply, Edits, Listing, View
from sidecar.core.types import Entry

MAX_STRUCK: Final = 100
"""Maximum number of silent members that one beat removes: a beat must not keep the server busy."""

MAX_CAUSES: Final = 100
"""Maximum number of causes that are counted by name; the names come from apps."""

OTHER: Final = "other"
"""The name for all further causes."""

NOTED_S: Final = 24 * 3600
"""How long the store remembers that an entry was written."""

SHARED_S: Final = 600
"""How long the store remembers a key that several sidecars share (``Entry.once``)."""


class StoreError(Exception):
    """The store gave no clear answer; ``word`` is the cause (``timeout``, ``auth``, ``oom``, ...).

    ``said``: the address, and what Redis or the network said.
    """

    def __init__(self, word: str, said: str = "") -> None:
        super().__init__(word)
        self.word = word
        self.said = said


class Conflict(Exception):  # noqa: N818 - an answer, not a failure
    """The revision has changed: the caller reads and decides anew."""


class Over(Exception):  # noqa: N818 - an answer, not a failure
    """The window has no token left; nothing was written."""


class Store(Protocol):
    """Keeps the state of one service. Every method raises StoreError, and no other error but those it names."""

    lost: asyncio.Event
    """Set when a connection to the server has ended, until the next beat, which may reach another process."""

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        """The content now; rows that cannot be read are left out. Writes nothing."""

    async def commit(self, revision: int, edits: Edits) -> int:
        """Write if ``revision`` is still current; return the store's time of the commit. Raises Conflict and Over."""

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        """Record a beat; return the summary of the fleet. Needs no revision."""

    async def members(self, *, most: int, since_us: int) -> Listing:
        """At most ``most`` members, and as many that departed after ``since_us``."""

    async def count(self, key: str, window_s: int) -> int:
        """Increment the article's key, which expires ``window_s`` seconds later; return the count."""

    async def note(self, entries: Sequence[Entry]) -> int:
        """Write entries into the ledger; how many were new. An entry that is sent again is written once."""

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        """At most ``most`` entries of the ledger, written since (Unix seconds) and after that id; none: the end."""

    async def first(self, word: str, for_s: float) -> bool:
        """Whether this is the first call with ``word`` in the fleet within the ``for_s`` of the earlier call."""

    async def aclose(self) -> None:
        """Close the connection; the store is not used afterwards."""
