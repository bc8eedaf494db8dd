"""What the rules read, and what they want written: a view of the store as values, requests, and edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sidecar.core.fleet.records import Cull, Epoch, HoldRow, Slot, State
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Beat, Claim, Entry, Lease


class Server(NamedTuple):
    """One server that answered: its number among those configured, what it remembers of itself, and its grants.

    ``grants``: claim ids of the last two windows and when each was granted; ``refunded``: those of them whose token was
    given back. ``is_ahead``: it holds instants that are later than its clock, which has stepped back. ``offset_us``:
    how much more the clock of the view shows than its own. ``is_behind``: it lacks something of the view, because
    it was away for a commit or took one that others did not.
    """

    number: int
    epoch: Epoch = Epoch()
    grants: Mapping[str, int] = {}
    refunded: frozenset[str] = frozenset()
    is_ahead: bool = False
    offset_us: int = 0
    is_behind: bool = False


class Known(NamedTuple):
    """What a sidecar knows of one server from its last exchange with it, to notice that it lost its memory.

    ``epoch`` as it was then, ``now_us`` the server's clock then (its own, not that of the view), and ``elapsed_us``
    what this process has counted since, give or take ``slack_us``. Zeros: nothing is known yet.
    """

    epoch: Epoch = Epoch()
    now_us: int = 0
    elapsed_us: int = 0
    slack_us: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What the store holds at one instant, as records; of several servers, merged, by the clock of the first.

    ``servers``: those of ``configured`` servers that answered, in the order in which tokens are to be taken.
    ``beating``: instances with a row in ``culls`` that are heard as alive, and the life that each beats for.
    ``settings``: all terms in force. ``life``: that of the requester's last beat; ``seen_us`` and ``departed_us`` as in
    ``store.Raw``. ``unsettled``: instances whose grant reached too few servers to count.
    """

    now_us: int
    state: State = field(default_factory=State)
    servers: tuple[Server, ...] = (Server(0),)
    configured: int = 1
    culls: Mapping[str, Cull] = field(default_factory=dict)
    leases: Mapping[str, Slot] = field(default_factory=dict)
    holds: Mapping[str, HoldRow] = field(default_factory=dict)
    settings: tuple[Terms, ...] = ()
    alive: int = 0
    beating: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    control: Mapping[str, int] = field(default_factory=dict)
    life: str = ""
    seen_us: int = 0
    departed_us: int = 0
    unsettled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Resign:
    """Give back a lease, by the word of its ``holder``, or a token that was not used, by its claim id."""

    instance: str
    holder: str


@dataclass(frozen=True, slots=True)
class Attend:
    """Look after what a beat found to be due: arrivals, outcomes, what is over.

    ``beat``: the beat of this sidecar. ``struck``: members struck off by it; ``silent`` of ``alive`` were silent.
    """

    beat: Beat
    struck: tuple[str, ...] = ()
    silent: int = 0
    alive: int = 0


@dataclass(frozen=True, slots=True)
class PutHold:
    """Freeze the service, or the instance that is named, for ``for_us`` microseconds."""

    instance: str
    author: str
    reason: str
    for_us: int


@dataclass(frozen=True, slots=True)
class Release:
    """End a hold; that of the service also forgives every cause whose culls are paused."""

    instance: str


Asked = Claim | Lease | Resign | Attend | PutHold | Release


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, by which terms, and what the sidecar knows of each server in ``View.servers``.

    ``is_duplicate``: two lives beat under this instance name.
    """

    asked: Asked
    terms: Terms
    known: tuple[Known, ...] = (Known(),)
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Attended:
    """What came of looking after a beat. ``is_watched``: this container replaces another one, and is on trial."""

    is_watched: bool = False


@dataclass(frozen=True, slots=True)
class Edits:
    """What is to be written: records by name, None for those to be removed; only what differs from the view.

    ``epochs``: by place in ``View.servers``. ``grant``: the claim id that is granted or renewed, with a token of
    ``View.servers[server]``, and that server's bounds as in ``store.Changes``. ``refund``: claim ids.
    """

    state: State | None = None
    epochs: Mapping[int, Epoch] = field(default_factory=dict)
    culls: Mapping[str, Cull | None] = field(default_factory=dict)
    leases: Mapping[str, Slot | None] = field(default_factory=dict)
    holds: Mapping[str, HoldRow | None] = field(default_factory=dict)
    grant: str = ""
    server: int = 0
    capacity: int = 0
    most: int = 0
    window_us: int = 0
    refund: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is to be written."""
        rows = (self.epochs, self.culls, self.leases, self.holds, self.refund, self.entries)
        return self.state is not None or bool(self.grant) or any(rows)
