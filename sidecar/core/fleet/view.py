"""The values that the rules read and return: what a store holds, as texts and as records, requests, and edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord
from sidecar.core.types import US_PER_S, Beat, Claim, Entry, LeaseRequest


@dataclass(frozen=True, slots=True)
class Raw:
    """What the store holds at one instant, for a claim or another request of one instance.

    ``now_us``: the store's clock. ``revision``: grows with each commit; 0: nothing was ever committed. ``epoch`` and
    ``state``: texts of these records, ``""`` where there is none. ``culls``, ``leases`` and ``holds``: whole tables,
    texts by instance. ``settings``: texts of the settings in force, and when a beat last brought each. ``alive``:
    members that beat within the expiry. ``beating``: of the instances in ``culls``, those that beat within the expiry,
    each with the member row as below. ``newest_us``: the latest beat of any member. ``causes``: suspects by cause.
    ``control``: ``"<refused|recovered|ended>|<cause>"``, suspects that were refused, and of these that recovered or
    ended otherwise. ``grants``: claim ids of the last two windows and when each was granted; ``refunded``: those of
    them whose token was given back. ``member``: the requester's own row, four lines: incarnation, identity (left out if
    it has none), cause (empty unless it is suspect), ``0`` or ``1`` (refused). ``seen_us``: its last beat,
    ``departed_us``: when it left or was struck off; 0: not known.
    ``run_id``: names the server process; ``""`` if the server does not tell. ``median_errors`` as in ``BeatReply``.
    """

    now_us: int
    revision: int = 0
    epoch: str = ""
    state: str = ""
    culls: Mapping[str, str] = field(default_factory=dict)
    leases: Mapping[str, str] = field(default_factory=dict)
    holds: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)
    alive: int = 0
    beating: Mapping[str, str] = field(default_factory=dict)
    newest_us: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    control: Mapping[str, int] = field(default_factory=dict)
    grants: Mapping[str, int] = field(default_factory=dict)
    refunded: frozenset[str] = frozenset()
    member: str = ""
    seen_us: int = 0
    departed_us: int = 0
    run_id: str = ""
    median_errors: int = -1


@dataclass(frozen=True, slots=True)
class BeatReply:
    """The store's answer to a beat; of a record that cannot be read it has the defaults.

    ``alive``: members, the silent and this one included. ``silent``: how many of them did not beat within the expiry;
    ``struck``: the first hundred of these at most, struck off by this beat. ``former``: the row of this instance before
    (``Raw.member``). ``causes`` as in ``Raw``. ``policies``: different settings in force. ``median_errors`` and
    ``median_ratio``: the upper median of what members reported; -1 if none did. ``holds``: the rows of the hold on the
    service and of that on the instance. ``used``: grants of the last ``window_us`` that were not refunded.
    ``run_id`` as in ``Raw``.
    """

    now_us: int
    epoch: Epoch = field(default_factory=Epoch)
    state: FleetState = field(default_factory=FleetState)
    alive: int = 0
    silent: int = 0
    struck: tuple[str, ...] = ()
    former: str = ""
    causes: Mapping[str, int] = field(default_factory=dict)
    policies: int = 1
    median_errors: int = -1
    median_ratio: int = -1
    holds: tuple[HoldRow | None, HoldRow | None] = (None, None)
    used: int = 0
    run_id: str = ""


class Listing(NamedTuple):
    """The members, by name, as ``(instance, last beat, member row, description by its sidecar)``.

    ``departed``: instances that left and when, the newest first. ``culled``: instances in the table ``culls``, with the
    last description by their sidecars.
    """

    members: Sequence[tuple[str, int, str, str]] = ()
    departed: Sequence[tuple[str, int]] = ()
    culled: Mapping[str, str] = {}


class MemberKey(NamedTuple):
    """What tells two containers of one name apart: the incarnation, and the random identity that its sidecar keeps."""

    incarnation: str = ""
    identity: str = ""

    def is_other(self, other: MemberKey) -> bool:
        """Whether both are known and differ; an older version tells no identity."""
        return _differ(self.incarnation, other.incarnation) or _differ(self.identity, other.identity)


def member_incarnation(row: str) -> str:
    """The incarnation in a member row."""
    return row.partition("\n")[0]


def member_of(row: str) -> MemberKey:
    """The incarnation and the identity in a member row."""
    incarnation, _, rest = row.partition("\n")
    identity = rest.partition("\n")[0] if rest.count("\n") > 1 else ""
    return MemberKey(incarnation, identity)


def _differ(own: str, other: str) -> bool:
    return bool(own) and bool(other) and own != other


R = TypeVar("R", bound=StoredRecord)

AHEAD_US: Final = US_PER_S
"""Tolerance for instants ahead of the clock: they were written between two readings of it."""


class Known(NamedTuple):
    """What a sidecar remembers of its last exchange with the store, to notice a data loss.

    ``epoch`` and ``now_us``: the store's epoch and clock then. ``elapsed_us``: the time since on the sidecar's
    clock, give or take ``slack_us``. Zeros, as in ``NEVER_MET``: there was no exchange yet.
    """

    epoch: Epoch = Epoch()
    now_us: int = 0
    elapsed_us: int = 0
    slack_us: int = 0


NEVER_MET: Final = Known()


@dataclass(frozen=True, slots=True)
class View:
    """What the store holds at one instant, as records.

    ``grants``: claim ids of the last two windows and when each was granted; ``refunded``: those whose token was given
    back. ``is_ahead``: the store holds instants that are later than its clock, which has stepped back. ``run_id``: the
    process of the server, ``""`` if it does not tell. ``beating``: instances with a row in ``culls`` that beat as
    alive, and the incarnation that each beats for. ``settings``: all in force. ``incarnation``, ``identity``: of the
    last beat under the requester's name; ``seen_us`` and ``departed_us`` as in ``Raw``. ``median_errors``: of the
    members' errors in their windows; -1: not known.
    """

    now_us: int
    state: FleetState = field(default_factory=FleetState)
    epoch: Epoch = field(default_factory=Epoch)
    grants: Mapping[str, int] = field(default_factory=dict)
    refunded: frozenset[str] = frozenset()
    is_ahead: bool = False
    run_id: str = ""
    culls: Mapping[str, Cull] = field(default_factory=dict)
    leases: Mapping[str, Slot] = field(default_factory=dict)
    holds: Mapping[str, HoldRow] = field(default_factory=dict)
    settings: tuple[FleetSettings, ...] = ()
    alive: int = 0
    beating: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    control: Mapping[str, int] = field(default_factory=dict)
    incarnation: str = ""
    identity: str = ""
    seen_us: int = 0
    departed_us: int = 0
    median_errors: int = -1

    @classmethod
    def of(cls, raw: Raw) -> View:
        """The records of what the store returns; rows that cannot be read are left out."""
        member = member_of(raw.member)
        return cls(
            raw.now_us,
            FleetState.load(raw.state) or FleetState(),
            Epoch.load(raw.epoch) or Epoch(),
            raw.grants,
            raw.refunded,
            is_ahead=max((raw.newest_us, *raw.grants.values())) > raw.now_us + AHEAD_US,
            run_id=raw.run_id,
            culls=_rows(raw.culls, Cull),
            leases=_rows(raw.leases, Slot),
            holds=_rows(raw.holds, HoldRow),
            settings=_settings(raw),
            alive=raw.alive,
            beating={name: member_incarnation(row) for name, row in raw.beating.items()},
            causes=raw.causes,
            control={word: count for word, count in raw.control.items() if count > 0},
            incarnation=member.incarnation,
            identity=member.identity,
            seen_us=raw.seen_us,
            departed_us=raw.departed_us,
            median_errors=raw.median_errors,
        )


def _rows(texts: Mapping[str, str], kind: type[R]) -> dict[str, R]:
    return {name: row for name, text in texts.items() if (row := kind.load(text)) is not None}


def _settings(raw: Raw) -> tuple[FleetSettings, ...]:
    """All readable terms that a beat brought within their own expiry, each once."""
    heard = ((FleetSettings.load(text), heard_us) for text, heard_us in raw.settings.items())
    return tuple(
        dict.fromkeys(
            terms for terms, heard_us in heard if terms is not None and raw.now_us - heard_us <= terms.expiry_us
        )
    )


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
    """A request, the sidecar's terms, and what the sidecar remembers of the store.

    ``is_duplicate``: two containers use this instance name.
    """

    asked: Asked
    terms: FleetSettings
    known: Known = NEVER_MET
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

    ``grant``: the claim id that is granted or renewed, with the bounds as in ``store.Changes``. ``refund``: claim ids.
    """

    state: FleetState | None = None
    epoch: Epoch | None = None
    culls: Mapping[str, Cull | None] = field(default_factory=dict)
    leases: Mapping[str, Slot | None] = field(default_factory=dict)
    holds: Mapping[str, HoldRow | None] = field(default_factory=dict)
    grant: str = ""
    capacity: int = 0
    most: int = 0
    window_us: int = 0
    refund: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        rows = (self.culls, self.leases, self.holds, self.refund, self.entries)
        return self.state is not None or self.epoch is not None or bool(self.grant) or any(rows)
