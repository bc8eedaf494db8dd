"""The only place where a state moves: ``step(standing, event, now, policy) -> (standing, effects)``.

Rules of the room:
- no clock, no randomness, no I/O: time and jitter arrive with the call, wishes leave as effects;
- every pair (state, event) stands in ``TRANSITIONS``; an event that means nothing in a state leaves it as it was;
- only ``Granted`` while the evidence still speaks leads to draining; ``Denied`` and ``Unknown`` never do;
- at most one claim is outstanding (``asking``), and an incarnation uses one claim id however often it asks;
- a granted container stays down until the app is another incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sidecar.core import sentences
from sidecar.core.words import (
    Answer,
    Denied,
    Granted,
    Judgement,
    Latch,
    Policy,
    Presence,
    State,
    Unknown,
    Verdict,
)

UNKNOWN_FIRST_S: Final = 1.0
UNKNOWN_CAP_S: Final = 30.0
UNNAMED: Final = "-"
DENIED_LEAST_S: Final = 1.0
JITTER: Final = 0.25
"""A claim comes up to this fraction later, so that a fleet that fell ill together does not ask together."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one incarnation of the app stands.

    ``app``: service and allocation. ``app_start``: the app's own word for its incarnation, once it is known;
    ``incarnation``: the word that claims are made under, which stays once one was made (``asked``).
    ``since``: when the state was entered, ``born``: when the incarnation began. ``due``: when the arbiter wants to be
    stepped again, if at all. ``bad_checks``: excessive checks in a row. ``asking``: a claim is on its way.
    ``unknowns``: unclear answers in a row. ``answer``: the last answer. ``nomad_told``: we were down when we stopped.
    ``would_culls``: culls that shadow mode did not carry out in this incarnation; ``would_down``: and the app has not
    recovered since.
    """

    state: State
    since: float
    app: str
    app_start: str | None = None
    incarnation: str = UNNAMED
    born: float = 0.0
    due: float | None = None
    verdict: Verdict | None = None
    bad_checks: int = 0
    asked: bool = False
    asking: bool = False
    unknowns: int = 0
    answer: Answer | None = None
    latch: Latch | None = None
    nomad_told: bool = False
    would_culls: int = 0
    would_down: bool = False

    @property
    def instance(self) -> str:
        """The allocation alone."""
        return self.app.rpartition("/")[2]

    @property
    def claim_id(self) -> str:
        """Service, allocation and incarnation: the same however often this incarnation asks."""
        return f"{self.app}/{self.life}"

    @property
    def life(self) -> str:
        """The incarnation, and in shadow mode which of the lives that culls would have given it."""
        number = self.would_culls + 1 - self.would_down
        return f"{self.incarnation}#{number}" if number > 1 else self.incarnation

    @property
    def presence(self) -> Presence:
        """What the fleet is told of it; in shadow mode, what it would be."""
        return Presence.DOWN if self.would_down and self.state is State.SUSPECT else _PRESENCE[self.state]

    @property
    def haproxy_up(self) -> bool:
        """Whether the balancer may send requests: no longer from the drain on, nor while we are stopping."""
        return self.state in _IN_BALANCE

    @property
    def nomad_up(self) -> bool:
        """Whether the container may live. A sidecar that stops is no reason to restart a healthy app."""
        return self.state is not State.DOWN and not self.nomad_told


_PRESENCE: Final = {
    State.STARTING: Presence.STARTING,
    State.UP: Presence.WELL,
    State.SUSPECT: Presence.WANTS,
    State.DRAINING: Presence.DOWN,
    State.DOWN: Presence.DOWN,
    State.STOPPING: Presence.GONE,
}
_IN_BALANCE: Final = frozenset({State.STARTING, State.UP, State.SUSPECT})


@dataclass(frozen=True, slots=True)
class Judged:
    """The window was judged: at a check, at a crossing ping, or because ``Standing.due`` has come.

    ``jitter`` from 0 to 1 spreads the claims of those that are as sick as each other. ``idle_at``: when the app said
    that no request was in flight, if that is the last it said of it.
    """

    verdict: Verdict
    is_check: bool = True
    jitter: float = 0.0
    idle_at: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The bucket's reply to the claim ``claim_id``; ``at`` is Unix time, for the latch, ``jitter`` from 0 to 1."""

    claim_id: str
    answer: Answer
    at: float
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Restarted:
    """The app named its incarnation: another one than we know of, or for the first time.

    Or it has gone without a name for the next one: then ``app_start`` is None, and ``incarnation`` a word of our own.
    """

    app_start: str | None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The sidecar was told to end."""


Event = Judged | Answered | Restarted | Stopped


@dataclass(frozen=True, slots=True)
class Ask:
    """Wish: claim a token under this id, and bring the reply back as ``Answered``."""

    claim_id: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Wish: write down what must survive us (incarnation, latch)."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Wish: empty the window; what it holds belongs to a grace or to an incarnation that has ended.

    ``heart``: also that a heart was heard. One that falls silent in the grace is as silent when that is over.
    """

    heart: bool = True


Effect = Ask | Remember | Forget
Step = tuple[Standing, tuple[Effect, ...]]
Move = Callable[..., Step]
"""``(standing, event, now, policy)``; each move takes the one event that the table pairs it with."""


def start(
    app: str,
    now: float,
    policy: Policy,
    *,
    app_start: str | None = None,
    asked_under: str | None = None,
    nameless: str = UNNAMED,
) -> Standing:
    """Standing of a fresh incarnation: up for everybody, silent until its grace is over.

    ``asked_under`` is the word that a sidecar before us made a claim under, if it did. ``nameless``: the word for one
    that nobody has named yet; it differs from life to life, or the next one would go down by the token of the last.
    """
    word = asked_under or app_start or nameless
    return Standing(
        State.STARTING, now, app, app_start, word, born=now, asked=bool(asked_under), due=now + policy.grace_s
    )


def resume(standing: Standing, latch: Latch, now: float, drained_for_s: float, policy: Policy) -> Standing:
    """Standing of an incarnation whose latch was found on disk: down, or still in the rest of its drain."""
    left = min(policy.drain_s - drained_for_s, policy.drain_s)  # the wall clock may have stepped back
    if left > 0:
        return replace(standing, state=State.DRAINING, since=now, due=now + left, latch=latch)
    return replace(standing, state=State.DOWN, since=now, due=None, latch=latch)


def step(standing: Standing, event: Event, now: float, policy: Policy) -> Step:
    """Answer one event: the standing after it, and the wishes that follow from it."""
    return TRANSITIONS[standing.state, type(event)](standing, event, now, policy)


def _stay(standing: Standing, _event: Event, _now: float, _policy: Policy) -> Step:
    return standing, ()


def _enter(standing: Standing, state: State, now: float, due: float | None = None) -> Standing:
    return replace(standing, state=state, since=now, due=due)


def _begin(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Judge a starting app only once its grace is over, and not by what it did in it."""
    standing = replace(standing, verdict=event.verdict)
    if standing.due is not None and now < standing.due:
        return standing, ()
    standing = _enter(standing, State.UP, now)
    if policy.grace_s > 0:
        return replace(standing, verdict=None), (Forget(heart=False),)
    return _suspect(standing, event, now, policy)


def _suspect(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app once the evidence has spoken at ``confirm`` checks in a row, and settle."""
    bad_checks = 0 if event.verdict.judgement is Judgement.FINE else standing.bad_checks + event.is_check
    standing = replace(standing, verdict=event.verdict, bad_checks=bad_checks)
    if event.verdict.judgement is Judgement.FINE or bad_checks < policy.confirm > 1:
        return standing, ()
    settle_s = _spread(policy.settle_s, event.jitter, standing)
    due = max(now + settle_s, standing.born + policy.min_age_s)
    return _pursue(_enter(standing, State.SUSPECT, now, due=due), event, now, policy)


def _pursue(standing: Standing, event: Judged, now: float, _policy: Policy) -> Step:
    """Settle, then claim, as long as the evidence speaks; without it go back up."""
    standing = replace(standing, verdict=event.verdict)
    if standing.asking:
        return standing, ()
    if event.verdict.judgement is Judgement.FINE:
        return _recover(standing, now), ()
    if standing.due is None or now < standing.due:
        return standing, ()
    first = () if standing.asked else (Remember(),)
    return replace(standing, asked=True, asking=True, due=None), (*first, Ask(standing.claim_id))


def _recover(standing: Standing, now: float) -> Standing:
    return replace(_enter(standing, State.UP, now), bad_checks=0, unknowns=0, would_down=False)


def _answered(standing: Standing, event: Answered, now: float, policy: Policy) -> Step:
    """Act on a reply. One to another claim than the outstanding one says nothing about us.

    A refused container asks again at the next check, as the seed article does: what refused it may be lifted
    before ``retry_after_s`` by a person. If that is over sooner it asks sooner.
    """
    if not standing.asking or event.claim_id != standing.claim_id:
        return standing, ()
    standing = replace(standing, asking=False, answer=event.answer)
    if isinstance(event.answer, Unknown):
        delay = unknown_delay(standing.unknowns)
        return _again(replace(standing, unknowns=standing.unknowns + 1), now, delay, event.jitter), ()
    standing = replace(standing, unknowns=0)
    if not isinstance(event.answer, Granted):
        return _again(standing, now, _denied_delay(event.answer, policy), event.jitter), ()
    if standing.verdict is None or standing.verdict.judgement is Judgement.FINE:
        return _recover(standing, now), ()
    return _cull(standing, event, now, policy)


def _denied_delay(answer: Denied, policy: Policy) -> float:
    """Seconds to wait after a refusal, before jitter; what is no answer at all waits for the next check."""
    sooner = getattr(answer, "retry_after_s", policy.check_interval_s)
    return min(policy.check_interval_s, max(DENIED_LEAST_S, sooner))


def _again(standing: Standing, now: float, delay: float, jitter: float) -> Standing:
    return replace(standing, due=now + _spread(delay, jitter, standing))


def _spread(delay: float, jitter: float, standing: Standing) -> float:
    """Lengthen a delay by a random part that grows with health, so that the sickest of a fleet mostly asks first."""
    return delay * (1 + JITTER * jitter * _health(standing.verdict))


def _health(verdict: Verdict | None) -> float:
    """How close to its limit the worst number is: 1 is just there, near 0 is far beyond."""
    reasons = verdict.reasons if verdict else ()
    return min((reason.limit / reason.value for reason in reasons if reason.value > reason.limit > 0), default=1.0)


def unknown_delay(unknowns: int) -> float:
    """Seconds to wait after the ``unknowns + 1``-th unclear answer in a row, before jitter."""
    return float(min(UNKNOWN_CAP_S, UNKNOWN_FIRST_S * 2 ** min(unknowns, 10)))


def _cull(standing: Standing, event: Answered, now: float, policy: Policy) -> Step:
    """Spend the token: drain and remember it; in shadow mode only say so."""
    if not policy.enforce:
        return replace(standing, would_culls=standing.would_culls + 1, would_down=True, due=None), ()
    latch = Latch(event.claim_id, event.at, sentences.verdict(standing.verdict))
    standing = replace(standing, latch=latch)
    if policy.drain_s > 0:
        return _enter(standing, State.DRAINING, now, due=now + policy.drain_s), (Remember(),)
    return _enter(standing, State.DOWN, now), (Remember(),)


def _drain(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as nothing is left to wait for."""
    standing = replace(standing, verdict=event.verdict)
    if standing.due is not None and now < standing.due and not is_drained(standing, event.idle_at, policy):
        return standing, ()
    return _enter(standing, State.DOWN, now), ()


def is_drained(standing: Standing, idle_at: float | None, policy: Policy) -> bool:
    """Whether a drain may end early: the app was idle at a moment at which every balancer had let go of it.

    Idle before that moment it may have been between two requests.
    """
    if standing.state is not State.DRAINING or idle_at is None:
        return False
    return idle_at >= standing.since + policy.drain_least_s


def _watch(standing: Standing, event: Judged, _now: float, _policy: Policy) -> Step:
    return replace(standing, verdict=event.verdict), ()


def _named(standing: Standing, event: Restarted, now: float, policy: Policy) -> Step:
    """Take the first name that we hear as the name of the life we have been watching."""
    if standing.app_start is not None or event.app_start is None:
        return _restart(standing, event, now, policy)
    incarnation = standing.incarnation if standing.asked else event.app_start
    return replace(standing, app_start=event.app_start, incarnation=incarnation), (Remember(),)


def _restart(standing: Standing, event: Restarted, now: float, policy: Policy) -> Step:
    """Begin anew with another incarnation: no latch, no window, no claim of the old one.

    A culled app that had no name is replaced by one that has: a name that comes late comes from a new life.
    """
    fresh = start(standing.app, now, policy, app_start=event.app_start)
    fresh = replace(fresh, incarnation=event.incarnation or fresh.incarnation)
    return fresh, (Forget(), Remember())


def _stop(standing: Standing, _event: Event, now: float, _policy: Policy) -> Step:
    """Leave the balance; what Nomad has been told stays told, and nothing else is."""
    return replace(_enter(standing, State.STOPPING, now), nomad_told=not standing.nomad_up), ()


TRANSITIONS: Final[Mapping[tuple[State, type], Move]] = {
    (State.STARTING, Judged): _begin,
    (State.STARTING, Answered): _stay,
    (State.STARTING, Restarted): _named,
    (State.STARTING, Stopped): _stop,
    (State.UP, Judged): _suspect,
    (State.UP, Answered): _stay,
    (State.UP, Restarted): _named,
    (State.UP, Stopped): _stop,
    (State.SUSPECT, Judged): _pursue,
    (State.SUSPECT, Answered): _answered,
    (State.SUSPECT, Restarted): _named,
    (State.SUSPECT, Stopped): _stop,
    (State.DRAINING, Judged): _drain,
    (State.DRAINING, Answered): _stay,
    (State.DRAINING, Restarted): _restart,
    (State.DRAINING, Stopped): _stop,
    (State.DOWN, Judged): _watch,
    (State.DOWN, Answered): _stay,
    (State.DOWN, Restarted): _restart,
    (State.DOWN, Stopped): _stop,
    (State.STOPPING, Judged): _watch,
    (State.STOPPING, Answered): _stay,
    (State.STOPPING, Restarted): _stay,
    (State.STOPPING, Stopped): _stay,
}
