"""What goes into a step of the container (triggers), and what comes out: effects to carry out, and events.

An event is what has happened, with what a line, a counter, an entry or a message needs. Log, metrics, ledger, history
and messages are tables of them; nobody else finds out what a step has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sidecar.core.app_reports import Load
from sidecar.core.claims import NO_IDENTITY, Answer, Fleet, GrantRequest, Presence, RandomIdentity
from sidecar.core.types import State, Verdict

# -- triggers ------------------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """The window was judged: at a check, after a report, or because ``Container.due`` has come."""

    verdict: Verdict
    idle_at: float | None = None  # when the app reported no request in flight; None if it has reported some since
    load: Load | None = None  # the last that it reported


class Answered(NamedTuple):
    """The budget answered a request."""

    request: GrantRequest
    answer: Answer
    at: float  # Unix time
    jitter: float = 0.0  # from 0 to 1; it spreads requests of containers that are equally sick
    took_s: float = 0.0
    capture: str | None = None  # output of the hook after a token was granted


class BeatAnswered(NamedTuple):
    """The store answered a beat."""

    presence: Presence  # what the beat reported
    life: str  # of this incarnation
    fleet: Fleet
    jitter: float = 0.0  # as for a request
    wait_s: float = 0.0  # seconds without claims, because the store was away


class BeatUnanswered(NamedTuple):
    """A beat had no clear answer."""

    error: str
    fleet: Fleet | None = None  # by the last answer; None if that is too old


class AppRestarted(NamedTuple):
    """The app reported the id of another incarnation, or for the first time that of the current one."""

    app_start: str
    identity: RandomIdentity = NO_IDENTITY  # of the new incarnation


class CullOrdered(NamedTuple):
    """A person ordered a cull of this container. The rules of the fleet apply to it."""

    author: str
    reason: str


class ReviveOrdered(NamedTuple):
    """A person ordered this container up again."""

    author: str
    reason: str
    incarnation: str = ""  # of the life that begins
    identity: RandomIdentity = NO_IDENTITY


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The sidecar has to stop."""


Trigger = Judged | Answered | BeatAnswered | BeatUnanswered | AppRestarted | CullOrdered | ReviveOrdered | StopRequested

# -- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back the token of a claim, or the lease of a holder, that was or may have been granted and is not used."""

    holder: str


@dataclass(frozen=True, slots=True)
class SaveIncarnation:
    """Write down what has to survive the sidecar: incarnation, age, latch."""


@dataclass(frozen=True, slots=True)
class ClearWindow:
    """Empty the window: its counts are of the grace, or of an incarnation that has ended."""

    heart: bool = True  # forget the heartbeat, too; heartbeats that stopped in a grace are still missing


# A request is an effect, too; its reply is ``Answered``.
Effect = GrantRequest | GiveBack | SaveIncarnation | ClearWindow


# -- events ------------------------------------------------------------------------------------------------------


class CullOrder(NamedTuple):
    """A person's order to cull."""

    author: str
    reason: str
    back: State  # the container returns to it if the order is refused


class Event:
    """What has happened in a step."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Checked(Event):
    """The window was judged."""

    verdict: Verdict


# -- moves to another state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Event):
    """The container went from the state ``was`` to another one."""

    was: State
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspected(Moved):
    """The app is judged to be sick, or a person ordered a cull."""

    verdict: Verdict | None
    by_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Moved):
    """A suspect is well again."""

    suspect_s: float
    would_down_s: float | None = None  # since the cull that shadow mode did not carry out; None without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Culled(Moved):
    """A token put the container out of balance."""

    why: str = ""
    verdict: Verdict | None
    order: CullOrder | None
    suspect_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired(Moved):
    """A lease put the container out of balance."""

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WentDown(Moved):
    """The drain is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revived(Moved):
    """The container is up again: by a person's ``order``, or because its lease ended before it was replaced."""

    out_s: float  # since the token or the lease
    order: ReviveOrdered | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(Moved):
    """Another incarnation of the app began. It may have ``was`` in the state ``starting`` as well."""

    app_start: str
    out_s: float | None  # since the token or the lease of the incarnation that ended; None without one


# -- answers to requests -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenAnswered(Event):
    """A claim was answered."""

    claim_id: str
    answer: Answer
    took_s: float
    is_late: bool = False  # no longer wanted
    is_repeated: bool = False  # denied for a reason for which this suspect was denied before
    order: CullOrder | None = None  # the person's order that it was for


@dataclass(frozen=True, slots=True)
class RetirementAnswered(Event):
    """A request for a lease was answered."""

    answer: Answer


# -- orders of a person, shadow mode, and what does not happen -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class OrderTaken(Event):
    """A person's order to cull is being claimed."""

    order: CullOrdered


@dataclass(frozen=True, slots=True)
class OrderIgnored(Event):
    """A person's order changes nothing in this state."""

    order: CullOrdered | ReviveOrdered


@dataclass(frozen=True, slots=True)
class WouldCull(Event):
    """Shadow mode did not carry out a cull."""

    verdict: Verdict | None
    order: CullOrder | None = None


@dataclass(frozen=True, slots=True)
class WouldRetire(Event):
    """Shadow mode did not carry out a retirement."""


@dataclass(frozen=True, slots=True)
class NotHonoured(Event):
    """A culled container is still there, ``out_s`` after its token."""

    claim_id: str
    out_s: float
