"""Where the fleet's state is kept: a store that hands out a view, and takes edits if nothing has changed since.

A store knows no rule of the fleet and reads no record: tables of texts, sorted times, counts. The one thing that it
checks by itself is the budget: it refuses a grant over the number of tokens, whatever asked for it. The rules stand in
``core.fleet``; ``budget`` puts the two together.

Failures of a server are raised by its store as ``StoreError`` with the machine's word; nothing else leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from sidecar.core.fleet.raw import Heard, Raw
from sidecar.core.types import Beat, Entry

__all__ = ["MOST_STRUCK", "Changes", "Conflict", "Heard", "Listing", "Over", "Raw", "Store", "StoreError", "Write"]

MOST_STRUCK: Final = 100
"""Members that fell silent and are struck off by one beat, at most: a beat must not hold the server."""


class StoreError(Exception):
    """The store gave no clear answer; ``word`` says why (``timeout``, ``auth``, ``oom``, ...)."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Write(NamedTuple):
    """One text to keep in ``table`` (``state``, ``culls``, ``leases``, ``holds``) under ``name``; ``""`` removes it.

    The records ``epoch`` and ``state`` are in the table ``state``, under these names.
    """

    table: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What one commit writes, all of it or nothing.

    ``grant``: a claim id that is granted a token now; one that has been granted within the window is granted anew from
    now on, and costs nothing. It is refused (``Over``) where, without it, ``capacity`` grants of the last ``window_us``
    are not refunded, or ``most`` were made at all; 0 is no limit. ``refund``: claim ids whose token is given back.
    ``entries``: for the ledger.
    """

    writes: Sequence[Write] = ()
    grant: str = ""
    window_us: int = 0
    capacity: int = 0
    most: int = 0
    refund: Sequence[str] = ()
    entries: Sequence[Entry] = ()


class Conflict(Exception):  # noqa: N818 - an answer, not a failure
    """The revision is another one by now: read again, and decide anew."""


class Over(Exception):  # noqa: N818 - an answer, not a failure
    """The window has no token left: nothing was written."""


class Listing(NamedTuple):
    """The members for a person: rows ``(instance, last beat, member row, what its sidecar tells)``, first by name.

    ``departed``: those who left within the time asked for and when, the newest first. ``culled``: instances in the
    table ``culls``, and what their sidecars told last.
    """

    members: Sequence[tuple[str, int, str, str]] = ()
    departed: Sequence[tuple[str, int]] = ()
    culled: Mapping[str, str] = {}


class Store(Protocol):
    """One place that keeps the state of one service. Every method raises StoreError, and only that besides its own."""

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> Raw:
        """What is there now; ``window_us`` and ``expiry_us`` as in ``Raw``. Writes nothing."""

    async def commit(self, revision: int, changes: Changes) -> int:
        """Write, if the revision is still this one; the instant of it. Raises Conflict and Over."""

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> Heard:
        """Take in a sign of life and answer with the summary. Waits for no revision."""

    async def members(self, *, most: int, since_us: int) -> Listing:
        """At most so many members, and those who departed after ``since_us``."""

    async def count(self, key: str, window_s: int) -> int:
        """Count one up under the article's key, which ends ``window_s`` seconds later (INCR and EXPIRE); the count."""

    async def note(self, entries: Sequence[Entry]) -> int:
        """Write entries into the ledger, each of them once however often it is sent; how many were new."""

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        """At most so many of the ledger, written since (Unix seconds) and after that id; none is the end."""

    async def first(self, word: str, for_s: float) -> bool:
        """Whether nobody of the fleet has said the word, or only longer ago than the seconds named then."""

    async def aclose(self) -> None:
        """Let go of what the store holds; it is not used afterwards."""
