"""The values that the rules read and return: a view of the store, requests, and edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Beat, Claim, Entry, LeaseRequest


class ServerView(NamedTuple):
    """One server that answered: its number among the configured ones, its epoch, and its grants.

    ``grants``: claim ids of the last two windows and when each was granted; ``refunded``: those whose token was given
    back. ``is_ahead``: it holds instants that are later than its clock, which has stepped back. ``offset_us``: how far
    the clock of the view is ahead of its own. ``is_behind``: it lacks a part of the view, because it missed a commit.
    ``run_id``: its process, ``""`` if it does not tell.
    """

    number: int
    epoch: Epoch = Epoch()
    grants: Mapping[str, int] = {}
    refunded: frozenset[str] = frozenset()
    is_ahead: bool = False
    offset_us: int = 0
    is_behind: bool = False
    run_id: str = ""


class MemberKey(NamedTuple):
    """What tells two containers of one name apart: the incarnation, and the random identity that its sidecar keeps."""

    life: str = ""
    identity: str = ""

    def is_other(self, other: MemberKey) -> bool:
        """Whether both are known and differ; an older version tells no identity."""
        return _differ(self.life, other.life) or _differ(self.identity, other.identity)


def _differ(one: str, other: str) -> bool:
    return bool(one) and bool(other) and one != other


class Known(NamedTuple):
    """What a sidecar remembers of its last exchange with one server, to notice a data loss.

    ``epoch`` and ``now_us``: the server's epoch and own clock then. ``elapsed_us``: the time since on the sidecar's
    clock, give or take ``slack_us``. Zeros: there was no exchange yet.
    """

    epoch: Epoch = Epoch()
    now_us: int = 0
    elapsed_us: int = 0
    slack_us: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What the store holds at one instant, as records; several servers are merged, on the clock of the first.

    ``servers``: those of ``configured`` servers that answered, in the order in which tokens are to be taken.
    ``beating``: instances with a row in ``culls`` that beat as alive, and the incarnation that each beats for.
    ``settings``: all terms in force. ``life``, ``identity``: of the last beat under the requester's name; ``seen_us``
    and ``departed_us`` as in ``Raw``. ``unsettled``: instances whose grant reached too few servers to count.
    ``median_errors``: of the members' errors in their windows; -1: not known.
    """

    now_us: int
    state: FleetState = field(default_factory=FleetState)
    servers: tuple[ServerView, ...] = (ServerView(0),)
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
    identity: str = ""
    seen_us: int = 0
    departed_us: int = 0
    unsettled: frozenset[str] = frozenset()
    median_errors: int = -1


@dataclass(frozen=True, slots=True)
class ReturnGrant:
    """Give back a lease by its ``holder``, or a token by its claim id."""

    instance: str
    holder: str


@dataclass(frozen=True, slots=True)
class Attend:
    """Process what a beat shows to be due: arrivals, outcomes, ends.

    ``struck``: members that the beat struck off; ``silent`` of ``alive`` were silent. ``waited_us``: how long the
    container has waited for a place since its first beat. ``is_hold_lost``: a hold is gone that was not released.
    """

    beat: Beat
    struck: tuple[str, ...] = ()
    silent: int = 0
    alive: int = 0
    waited_us: int = 0
    is_hold_lost: bool = False


@dataclass(frozen=True, slots=True)
class PutHold:
    """Freeze the service, or one ``instance``, for ``for_us`` microseconds."""

    instance: str
    author: str
    reason: str
    for_us: int


@dataclass(frozen=True, slots=True)
class EndHold:
    """End a hold; the end of a hold on the service also ends all pauses of causes."""

    instance: str


Asked = Claim | LeaseRequest | ReturnGrant | Attend | PutHold | EndHold


@dataclass(frozen=True, slots=True)
class Request:
    """A request, the sidecar's terms, and what the sidecar remembers of each server in ``View.servers``.

    ``is_duplicate``: two containers use this instance name.
    """

    asked: Asked
    terms: Terms
    known: tuple[Known, ...] = (Known(),)
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Attended:
    """The answer to Attend. ``is_watched``: this container is a replacement whose probation is not over.

    ``is_waiting``: it is new, and may be the replacement of a container whose sidecar has not been silent for long.
    """

    is_watched: bool = False
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class Edits:
    """What has to be written: records by name, None for those to be removed; only what differs from the view.

    ``epochs``: by place in ``View.servers``. ``grant``: the claim id that is granted or renewed, with a token of
    ``View.servers[server]``, and that server's bounds as in ``store.Changes``. ``refund``: claim ids.
    """

    state: FleetState | None = None
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
        """Whether there is anything to write."""
        rows = (self.epochs, self.culls, self.leases, self.holds, self.refund, self.entries)
        return self.state is not None or bool(self.grant) or any(rows)
