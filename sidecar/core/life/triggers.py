"""The triggers that move a container, and the effects that follow. What has happened then is in ``events``."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.types import NO_IDENTITY, Answer, Fleet, Load, Presence, RandomIdentity, Verdict

# -- triggers: ``jitter`` is from 0 to 1 and spreads claims of containers that are equally sick; ``at`` is Unix time --


@dataclass(frozen=True, slots=True)
class Judged:
    """The window was judged: at a check, after a report, or because ``Container.due`` has come.

    ``idle_at``: when the app reported no request in flight, None if it has reported some since. ``load``: its last.
    """

    verdict: Verdict
    idle_at: float | None = None
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    """The budget answered the claim ``claim_id`` after ``took_s``. ``capture``: output of the hook after a grant."""

    claim_id: str
    answer: Answer
    at: float
    jitter: float = 0.0
    took_s: float = 0.0
    capture: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseAnswered:
    """The budget answered, after ``took_s``, the request for a lease that ``holder`` would hold."""

    holder: str
    answer: Answer
    at: float
    jitter: float = 0.0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BeatAnswered:
    """The store answered a beat with the ``presence`` of the incarnation ``life``; ``fleet`` is its answer.

    ``wait_s``: seconds without claims, because the store was away.
    """

    presence: Presence
    life: str
    fleet: Fleet
    jitter: float = 0.0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BeatUnanswered:
    """A beat had no clear answer, for this ``error``. ``fleet``: the last answer, None if that is too old."""

    error: str
    fleet: Fleet | None = None


@dataclass(frozen=True, slots=True)
class AppRestarted:
    """The app reported the id of another incarnation, or for the first time that of the current one; or it exited.

    After an exit ``app_start`` is None and ``incarnation`` a random id. ``identity`` is for the new incarnation.
    """

    app_start: str | None
    incarnation: str | None = None
    identity: RandomIdentity = NO_IDENTITY


@dataclass(frozen=True, slots=True)
class CullOrdered:
    """A person ordered a cull of this container. The rules of the fleet apply to it."""

    author: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReviveOrdered:
    """A person ordered this container up again; ``incarnation`` and ``identity`` are for the life that begins."""

    author: str
    reason: str
    incarnation: str = ""
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
    """Empty the window: its counts are of the grace, or of an incarnation that has ended.

    ``heart``: forget the heartbeat as well. After a grace it is kept: heartbeats that stopped in it are still missing.
    """

    heart: bool = True


Effect = ClaimToken | RequestLease | GiveBack | SaveMemory | ClearWindow
