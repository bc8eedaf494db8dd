"""The values that the rules read and return: what a store holds, requests, and edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from sidecar.core.claims import Beat, Claim, LeaseRequest, Presence
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot
from sidecar.core.types import US_PER_S, Entry

AHEAD_US: Final = US_PER_S
"""Tolerance for instants ahead of the clock: they were written between two readings of it."""


class MemberKey(NamedTuple):
    """What tells two containers of one name apart: the incarnation, and the random identity that its sidecar keeps."""

    incarnation: str = ""
    identity: str = ""

    @classmethod
    def load(cls, row: str) -> Self:
        """The key in a member row."""
        incarnation, _, rest = row.partition("\n")
        return cls(incarnation, rest.partition("\n")[0] if rest.count("\n") > 1 else "")

    def is_other(self, other: MemberKey) -> bool:
        """Whether both are known and differ; an older version tells no identity."""
        return differ(self.incarnation, other.incarnation) or differ(self.identity, other.identity)


def differ(text: str, other: str) -> bool:
    """Whether both are known and differ."""
    return bool(text) and bool(other) and text != other


class View(NamedTuple):
    """What the store holds at one instant, for a claim or another request of one instance."""

    now_us: int
    """The store's clock."""
    state: FleetState = FleetState()
    epoch: Epoch = Epoch()
    grants: Mapping[str, int] = {}
    """Claim ids of the last two windows, and when each was granted."""
    refunded: frozenset[str] = frozenset()
    """Those of them whose token was given back."""
    revision: int = 0
    """Grows with each commit; 0: nothing was ever committed."""
    run_id: str = ""
    """The process of the server; ``""`` if it does not tell."""
    culls: Mapping[str, Cull] = {}
    leases: Mapping[str, Slot] = {}
    holds: Mapping[str, HoldRow] = {}
    settings: tuple[FleetSettings, ...] = ()
    """All in force."""
    settings_texts: tuple[str, ...] = ()
    """The texts of those that a beat brought lately, also of those that cannot be read."""
    alive: int = 0
    """Members that beat within the expiry."""
    beating: Mapping[str, str] = {}
    """Of the instances in ``culls``, those that beat within the expiry, and the incarnation that each beats for."""
    newest_us: int = 0
    """The latest beat of any member."""
    causes: Mapping[str, int] = {}
    """Suspects by cause."""
    control: Mapping[str, int] = {}
    """By ``"<refused|recovered|ended>|<cause>"``: suspects that were refused, and of these that recovered or ended."""
    member: MemberKey = MemberKey()
    """That of the last beat under the requester's name."""
    seen_us: int = 0
    """The requester's last beat."""
    departed_us: int = 0
    """When it left or was struck off; 0: not known."""
    median_errors: int = -1
    """The upper median of the members' errors in their windows; -1: not known."""

    @property
    def is_ahead(self) -> bool:
        """Whether the store holds instants that are later than its clock, which has stepped back."""
        return max((self.newest_us, *self.grants.values())) > self.now_us + AHEAD_US


def settings_in_force(heard: Mapping[str, int], now_us: int) -> tuple[FleetSettings, ...]:
    """All readable settings that a beat brought within their own expiry, each once. ``heard``: when, by their text."""
    loaded = ((FleetSettings.load(text), heard_us) for text, heard_us in heard.items())
    return tuple(
        dict.fromkeys(
            settings
            for settings, heard_us in loaded
            if settings is not None and now_us - heard_us <= settings.expiry_us
        )
    )


# -- what is asked ----------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """What a sidecar remembers of its last exchange with the store, to notice a data loss; zeros: there was none."""

    epoch: Epoch = Epoch()
    now_us: int = 0
    """The store's clock then."""
    elapsed_us: int = 0
    """The time since on the sidecar's clock, give or take the slack."""
    slack_us: int = 0


NEVER_MET: Final = Known()


class ReturnGrant(NamedTuple):
    """Give back a lease by its ``holder``, or a token by its claim id."""

    instance: str
    holder: str


class Attend(NamedTuple):
    """Process what a beat shows to be due: arrivals, outcomes, ends."""

    beat: Beat
    struck: tuple[str, ...] = ()
    """As in ``BeatReply``, with the next two."""
    silent: int = 0
    alive: int = 0
    waited_us: int = 0
    """How long the container has waited for a place since its first beat."""
    is_hold_lost: bool = False
    """A hold is gone that was not released."""


class PutHold(NamedTuple):
    """Freeze the service, or one ``instance``, for ``for_us`` microseconds."""

    instance: str
    author: str
    reason: str
    for_us: int


class EndHold(NamedTuple):
    """End a hold; the end of a hold on the service also ends all pauses of causes."""

    instance: str


Asked = Claim | LeaseRequest | ReturnGrant | Attend | PutHold | EndHold


class Request(NamedTuple):
    """A request, and what the rules have to know of the sidecar that sends it."""

    asked: Asked
    settings: FleetSettings
    known: Known = NEVER_MET
    is_duplicate: bool = False
    """Two containers use this instance name."""


class Attended(NamedTuple):
    """The answer to Attend."""

    is_watched: bool = False
    """This container is a replacement whose probation is not over."""
    is_waiting: bool = False
    """It is new, and may be the replacement of a container whose sidecar has not been silent for long."""


# -- what is written --------------------------------------------------------------------------------------------------


class Edits(NamedTuple):
    """The content of one commit, which is written whole or not at all: only what differs from the view."""

    state: FleetState | None = None
    epoch: Epoch | None = None
    culls: Mapping[str, Cull | None] = {}
    leases: Mapping[str, Slot | None] = {}
    holds: Mapping[str, HoldRow | None] = {}
    """The rows by name; None removes a row."""
    grant: str = ""
    """The claim id that gets a token; one that has a token within the window renews it at no cost."""
    capacity: int = 0
    """The store refuses the grant if so many others of the window are not refunded; 0 is no limit."""
    most: int = 0
    """The store refuses the grant if so many others of the window were made; 0 is no limit."""
    window_us: int = 0
    refund: tuple[str, ...] = ()
    """Claim ids whose token is given back."""
    entries: tuple[Entry, ...] = ()
    """For the ledger."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        rows = (self.culls, self.leases, self.holds, self.refund, self.entries)
        return self.state is not None or self.epoch is not None or bool(self.grant) or any(rows)


# -- beats and lists --------------------------------------------------------------------------------------------------


class BeatReply(NamedTuple):
    """The store's answer to a beat; of a record that cannot be read it has the defaults."""

    now_us: int
    epoch: Epoch = Epoch()
    state: FleetState = FleetState()
    alive: int = 0
    """Members, the silent and this one included."""
    silent: int = 0
    """Those of them that did not beat within the expiry."""
    struck: tuple[str, ...] = ()
    """The first hundred of these at most, which this beat has struck off."""
    former: str = ""
    """The member row of this instance before."""
    causes: Mapping[str, int] = {}
    """Suspects by cause."""
    settings: int = 1
    """Number of different settings in force."""
    median_errors: int = -1
    median_ratio: int = -1
    """The upper medians of what members reported; -1 if none did."""
    holds: Mapping[str, HoldRow] = {}
    """Those of the service and of the instance."""
    used: int = 0
    """Grants of the last ``window_us`` that were not refunded."""
    run_id: str = ""
    """The process of the server; ``""`` if it does not tell."""
    draining: int = 0
    """Containers that drain after a cull, as far as their sidecars say."""


class Listing(NamedTuple):
    """The members of the fleet, for people."""

    members: Sequence[tuple[str, int, str, str]] = ()
    """By name: instance, last beat, member row, and the description by its sidecar."""
    departed: Sequence[tuple[str, int]] = ()
    """Instances that left, and when; the newest first."""
    culled: Mapping[str, str] = {}
    """Instances in the table ``culls``, and the last description by their sidecars."""


def member_row(beat: Beat) -> str:
    """The text that the store keeps of a member, in lines; a line break in a text becomes a space.

    The lines: incarnation, identity (left out if it has none), cause (empty unless it is suspect), ``0`` or ``1``
    (refused).
    """
    is_suspect = beat.presence is Presence.SUSPECT
    cause = (beat.cause or "unknown") if is_suspect else ""
    incarnation, identity, cause = (text.replace("\n", " ") for text in (beat.incarnation, beat.identity, cause))
    member = f"{incarnation}\n{identity}" if identity else incarnation
    return f"{member}\n{cause}\n{int(is_suspect and beat.refused)}"
