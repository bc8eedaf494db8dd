"""What may happen to a life of the app, and what may be wished for then: the words of the arbiter."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.types import NO_IDENTITY, Answer, Fleet, Load, Presence, RandomIdentity, Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """The window was judged: at a check, at a crossing ping, or because ``Container.due`` has come.

    ``jitter`` from 0 to 1 spreads the claims of those that are as sick as each other. ``idle_at``: when the app said
    that no request was in flight, if that is the last it said of it. ``load``: the last it said of how busy it is.
    """

    verdict: Verdict
    is_check: bool = True
    jitter: float = 0.0
    idle_at: float | None = None
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The bucket's reply to the claim ``claim_id``; ``at`` is Unix time, for the latch, ``jitter`` from 0 to 1."""

    claim_id: str
    answer: Answer
    at: float
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Leased:
    """The bucket's reply to who asked for a lease as ``holder``, ``took_s`` before; the rest as in ``Answered``."""

    holder: str
    answer: Answer
    at: float
    jitter: float = 0.0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BeatAnswered:
    """The store has answered a beat that told ``presence`` of the incarnation ``life``; ``fleet`` is its answer.

    ``jitter`` as in ``Judged``. ``wait_s``: no claim for so many seconds, because the store has been away.
    """

    presence: Presence
    life: str
    fleet: Fleet
    jitter: float = 0.0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BeatUnanswered:
    """A beat had no clear answer, for this ``error``. ``fleet``: the last one, None if it is too old to be believed."""

    error: str
    fleet: Fleet | None = None


@dataclass(frozen=True, slots=True)
class Restarted:
    """The app named its incarnation: another one than we know of, or for the first time.

    Or it has gone without a name for the next one: then ``app_start`` is None, and ``incarnation`` a word of our own.
    ``identity`` is for the life that begins.
    """

    app_start: str | None
    incarnation: str | None = None
    identity: RandomIdentity = NO_IDENTITY


@dataclass(frozen=True, slots=True)
class CullOrdered:
    """A person wants this container culled; whoever may not be culled by all rules of the fleet still may not."""

    author: str
    reason: str


@dataclass(frozen=True, slots=True)
class Revived:
    """A person wants this container up again; ``incarnation`` and ``identity`` are for the life that begins so."""

    author: str
    reason: str
    incarnation: str = ""
    identity: RandomIdentity = NO_IDENTITY


@dataclass(frozen=True, slots=True)
class Stopped:
    """The sidecar was told to end."""


Event = Judged | Answered | Leased | BeatAnswered | BeatUnanswered | Restarted | CullOrdered | Revived | Stopped


@dataclass(frozen=True, slots=True)
class Ask:
    """Wish: claim a token under this id, and bring the reply back as ``Answered``."""

    claim_id: str


@dataclass(frozen=True, slots=True)
class AskLease:
    """Wish: ask for the lease of a retirement in this name, and bring the reply back as ``Leased``."""

    holder: str


@dataclass(frozen=True, slots=True)
class Resign:
    """Wish: give the lease of this name back; nobody waits for what comes of it, since it expires anyway."""

    holder: str


@dataclass(frozen=True, slots=True)
class ReturnToken:
    """Wish: give back the token that this claim was granted, or may have been; nothing here will use it."""

    claim_id: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Wish: write down what must survive us (incarnation, age, latch)."""


@dataclass(frozen=True, slots=True)
class ClearWindow:
    """Wish: empty the window; what it holds belongs to a grace or to an incarnation that has ended.

    ``heart``: also that a heart was heard. One that falls silent in the grace is as silent when that is over.
    """

    heart: bool = True


Effect = Ask | AskLease | Resign | ReturnToken | Remember | ClearWindow
