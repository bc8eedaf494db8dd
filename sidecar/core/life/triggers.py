"""The triggers that move a container, and the effects that follow. What has happened then is in ``events``."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.app_reports import Load
from sidecar.core.beats import Fleet
from sidecar.core.claims import NO_IDENTITY, Answer, Presence, RandomIdentity
from sidecar.core.types import Verdict

# -- triggers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The window was judged: at a check, after a report, or because ``Container.due`` has come."""

    verdict: Verdict
    idle_at: float | None = None  # when the app reported no request in flight; None if it has reported some since
    load: Load | None = None  # the last that it reported


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    """The budget answered a claim."""

    claim_id: str
    answer: Answer
    at: float  # Unix time
    jitter: float = 0.0  # from 0 to 1; it spreads claims of containers that are equally sick
    took_s: float = 0.0
    capture: str | None = None  # output of the hook after a grant


@dataclass(frozen=True, slots=True)
class LeaseAnswered:
    """The budget answered a request for a lease."""

    holder: str
    answer: Answer
    at: float  # Unix time
    jitter: float = 0.0  # as for a claim
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BeatAnswered:
    """The store answered a beat."""

    presence: Presence  # what the beat reported
    life: str  # of this incarnation
    fleet: Fleet
    jitter: float = 0.0  # as for a claim
    wait_s: float = 0.0  # seconds without claims, because the store was away


@dataclass(frozen=True, slots=True)
class BeatUnanswered:
    """A beat had no clear answer."""

    error: str
    fleet: Fleet | None = None  # by the last answer; None if that is too old


@dataclass(frozen=True, slots=True)
class AppRestarted:
    """The app reported the id of another incarnation, or for the first time that of the current one."""

    app_start: str
    identity: RandomIdentity = NO_IDENTITY  # of the new incarnation


@dataclass(frozen=True, slots=True)
class CullOrdered:
    """A person ordered a cull of this container. The rules of the fleet apply to it."""

    author: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReviveOrdered:
    """A person ordered this container up again."""

    author: str
    reason: str
    incarnation: str = ""  # of the life that begins
    identity: RandomIdentity = NO_IDENTITY


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The sidecar has to stop."""


Trigger = (
    Judged
    | ClaimAnswered
    | LeaseAnswered
    | BeatAnswered
    | BeatUnanswered
    | AppRestarted
    | CullOrdered
    | ReviveOrdered
    | StopRequested
)

# -- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimToken:
    """Claim a token under this id; the reply is ``ClaimAnswered``."""

    claim_id: str


@dataclass(frozen=True, slots=True)
class RequestLease:
    """Ask for the lease of a retirement for this holder; the reply is ``LeaseAnswered``."""

    holder: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back the token of a claim, or the lease of a holder, that was or may have been granted and is not used."""

    holder: str


@dataclass(frozen=True, slots=True)
class SaveMemory:
    """Write down what has to survive the sidecar: incarnation, age, latch."""


@dataclass(frozen=True, slots=True)
class ClearWindow:
    """Empty the window: its counts are of the grace, or of an incarnation that has ended."""

    heart: bool = True  # forget the heartbeat, too; heartbeats that stopped in a grace are still missing


Effect = ClaimToken | RequestLease | GiveBack | SaveMemory | ClearWindow
