"""Where one life of the app stands: the value that the arbiter moves, and where it begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from sidecar.core.types import NO_IDENTITY, Answer, Latch, Policy, Presence, RandomIdentity, State, Verdict

UNNAMED: Final = "-"


class Order(NamedTuple):
    """A cull that a person wants; if it is refused, the state ``back`` with its ``due`` is where it leads to again."""

    author: str
    reason: str
    back: State
    due: float | None


@dataclass(frozen=True, slots=True)
class Container:
    """Where one incarnation of the app stands.

    ``app``: service and allocation. ``app_start``: the app's own word for its incarnation, once it is known;
    ``incarnation``: the word that claims are made under, which stays once one was made (``asked``).
    ``since``: when the state was entered, ``born``: when the incarnation began. ``due``: when the arbiter wants to be
    stepped again, if at all. ``bad_checks``: excessive checks in a row. ``asking``: a claim is on its way.
    ``unknowns``: unclear answers in a row. ``answer``: the last answer. ``nomad_told``: we were down when we stopped.
    ``would_culls``: culls that shadow mode did not carry out in this incarnation; ``would_down``: and the app has not
    recovered since. ``order``: a person wants the cull that is claimed or granted.

    Of a suspect: ``is_heard``: the fleet has answered a beat that said so of this life, and none since went without an
    answer. ``refused``: a claim has been denied. ``unclear``: the last one may have been granted, though no answer said
    so.

    Of its retirement: ``identity``, what chance gave this life. ``leasing``: a lease was asked for, ``lease_answer``
    is the last answer to that, ``lease_ends`` when the one we have is over. ``respite_until``: not before that again.
    ``would_retire``: it was due in shadow mode.
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
    order: Order | None = None
    is_heard: bool = False
    refused: bool = False
    unclear: bool = False
    identity: RandomIdentity = NO_IDENTITY
    leasing: bool = False
    lease_answer: Answer | None = None
    lease_ends: float | None = None
    respite_until: float = -inf
    would_retire: bool = False

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
        """What the fleet is told of it; in shadow mode, what it would be. An order is no suffering."""
        if self.state is not State.SUSPECT:
            return _PRESENCE[self.state]
        if self.would_down:
            return Presence.DOWN
        return _PRESENCE[self.order.back if self.order else self.state]

    @property
    def lease(self) -> str:
        """The word that holds the lease under which this life is out of balance, if it is under one."""
        return self.latch.lease if self.latch else ""

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
    State.SUSPECT: Presence.SUSPECT,
    State.RETIRING: Presence.WELL,
    State.DRAINING: Presence.DOWN,
    State.DOWN: Presence.DOWN,
    State.STOPPING: Presence.GONE,
}
_IN_BALANCE: Final = frozenset({State.STARTING, State.UP, State.SUSPECT, State.RETIRING})


def start(
    app: str,
    now: float,
    policy: Policy,
    *,
    app_start: str | None = None,
    asked_under: str | None = None,
    nameless: str = UNNAMED,
    born: float | None = None,
    identity: RandomIdentity = NO_IDENTITY,
) -> Container:
    """Standing of a fresh incarnation: up for everybody, silent until its grace is over.

    ``asked_under`` is the word that a sidecar before us made a claim under, if it did, and ``born`` when that saw it
    begin. ``nameless``: the word for one that nobody has named yet; it differs from life to life, or the next one would
    go down by the token of the last.
    """
    return Container(
        State.STARTING,
        now,
        app,
        app_start,
        asked_under or app_start or nameless,
        born=now if born is None else min(born, now),
        asked=bool(asked_under),
        due=now + policy.grace_s,
        identity=identity,
    )


def resume(container: Container, latch: Latch, now: float, drained_for_s: float, policy: Policy) -> Container:
    """Standing of an incarnation whose latch was found on disk: down, or still in the rest of its drain.

    Under a lease it is down for the rest of that only.
    """
    gone_s = max(0.0, drained_for_s)  # the wall clock may have stepped back
    container = replace(container, since=now, latch=latch)
    if latch.lease:
        container = replace(container, lease_ends=now + policy.retire_timeout_s - latch.spent_s - gone_s)
    if gone_s < policy.drain_s:
        return replace(container, state=State.DRAINING, due=now + policy.drain_s - gone_s)
    return replace(container, state=State.DOWN, due=container.lease_ends)


def enter(container: Container, state: State, now: float, due: float | None = None) -> Container:
    """Standing in another state, from now on."""
    return replace(container, state=state, since=now, due=due, is_heard=False, refused=False, unclear=False)


def out_of_balance(container: Container, now: float, policy: Policy) -> Container:
    """Standing of a life that has just been granted its end: in its drain, or down if that takes no time."""
    if policy.drain_s > 0:
        return enter(container, State.DRAINING, now, due=now + policy.drain_s)
    return enter(container, State.DOWN, now, due=container.lease_ends)


def is_drained(container: Container, idle_at: float | None, policy: Policy) -> bool:
    """Whether a drain may end early: the app was idle at a moment at which every balancer had let go of it.

    Idle before that moment it may have been between two requests.
    """
    if container.state is not State.DRAINING or idle_at is None:
        return False
    return idle_at >= container.since + policy.drain_min_s
