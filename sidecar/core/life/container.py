"""The state of one container: a value, how it begins, and the changes that several moves share."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from sidecar.core.claims import NO_IDENTITY, Answer, Claim, GrantRequest, Presence, RandomIdentity
from sidecar.core.life.events import CullOrder, Effect, Event
from sidecar.core.types import Latch, Policy, State, Verdict

UNNAMED: Final = "-"


class Container(NamedTuple):
    """The state of one incarnation of the app; instants are monotonic seconds of one clock."""

    state: State
    since: float  # when the state was entered
    app: str  # service and allocation

    # the incarnation
    app_start: str | None = None  # the app's own id of it, once it is known
    incarnation: str = UNNAMED  # the id under which claims are made; it stays once a claim was made
    app_version: str = ""  # the version that the app has reported
    born: float = 0.0  # when it began
    identity: RandomIdentity = NO_IDENTITY  # the holder of its lease, and the jitter of its lifetime

    # when the state ends, or the next request is made: see ``due``
    grace_ends: float = 0.0
    ask_at: float | None = None  # when a token or a lease is asked for; None: no request is planned
    drain_ends: float = 0.0
    lease_ends: float | None = None  # of a retired container; None after a cull
    respite_until: float = -inf  # when the next retirement may be due

    # the verdict
    verdict: Verdict | None = None  # the last
    cause: str = ""  # why it is suspect, or was culled, as the fleet counts it
    is_announced: bool = False  # whether the store has answered a beat that announced the suspect, and every beat since
    order: CullOrder | None = None  # a person's order that is being claimed or was granted

    # its request for a token or a lease
    asked: bool = False  # whether a claim was made
    outstanding: GrantRequest | None = None  # the one whose answer is on its way
    answer: Answer | None = None  # the last answer to a claim since it was last suspect
    lease_answer: Answer | None = None  # the last answer to a request for a lease since it last began to retire
    answered_at: float = 0.0  # when the last answer came, to either
    unclear: GrantRequest | None = None  # the last one, if it may have been granted without a clear answer
    unknowns: int = 0  # unclear answers in a row
    refused: tuple[str, ...] = ()  # the reasons for which claims of this suspect were denied

    # out of balance
    latch: Latch | None = None  # the token or lease that put it there
    out_since: float | None = None  # when that was granted; in shadow mode: when it would have been
    is_overdue: bool = False  # whether an event has told that its cull is not honoured
    stopped_down: bool = False  # whether it was down when the sidecar stopped

    # in shadow mode
    would_culls: int = 0  # culls of this incarnation that were not carried out
    would_down: bool = False  # whether the app has not recovered since such a cull
    would_retire: bool = False  # whether its retirement was due

    @property
    def due(self) -> float | None:
        """When time alone brings the next step, if it does. A container whose request is outstanding waits for that."""
        if self.state in _ASKING:
            return None if self.outstanding else self.ask_at
        return {
            State.STARTING: self.grace_ends,
            State.DRAINING: self.drain_ends,
            State.DOWN: self.lease_ends,
        }.get(self.state)

    @property
    def asking(self) -> bool:
        """Whether a claim is outstanding."""
        return isinstance(self.outstanding, Claim)

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
        """The incarnation; after culls in shadow mode with the number of the life that would have begun."""
        number = self.would_culls + 1 - self.would_down
        return f"{self.incarnation}#{number}" if number > 1 else self.incarnation

    @property
    def presence(self) -> Presence:
        """The state that beats report; in shadow mode, what enforce mode would report. An order makes no suspect."""
        if self.state is not State.SUSPECT:
            return _PRESENCE[self.state]
        if self.would_down:
            return Presence.DOWN
        return _PRESENCE[self.order.back if self.order else self.state]

    @property
    def lease(self) -> str:
        """The holder of the lease under which this incarnation is out of balance; empty without one."""
        return self.latch.lease if self.latch else ""

    def out_s(self, now: float) -> float:
        """Seconds since the token or the lease; 0 without one."""
        return 0.0 if self.out_since is None else now - self.out_since

    @property
    def haproxy_up(self) -> bool:
        """Whether the balancer may send requests: not from the drain on, nor while the sidecar stops."""
        return self.state in _IN_BALANCE

    @property
    def nomad_up(self) -> bool:
        """Whether the scheduler may let the container run. A sidecar that stops does not restart a healthy app."""
        return self.state is not State.DOWN and not self.stopped_down


_PRESENCE: Final = {
    State.STARTING: Presence.STARTING,
    State.UP: Presence.WELL,
    State.SUSPECT: Presence.SUSPECT,
    State.RETIRING: Presence.WELL,
    State.DRAINING: Presence.DOWN,
    State.DOWN: Presence.DOWN,
    State.STOPPING: Presence.GONE,
}
_ASKING: Final = (State.SUSPECT, State.RETIRING)
_IN_BALANCE: Final = frozenset({State.STARTING, State.UP, State.SUSPECT, State.RETIRING})
_OUT_OF_BALANCE: Final = frozenset({State.DRAINING, State.DOWN})


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
    """A new incarnation: up for balancer and scheduler, and not judged until its grace is over.

    ``asked_under``: the id under which an earlier sidecar made a claim, if it did. ``born``: when that sidecar saw the
    incarnation begin. ``nameless``: the id of an incarnation whose own id is not known. It has to be unique, or the
    token of one incarnation would cull the next.
    """
    return Container(
        State.STARTING,
        now,
        app,
        app_start,
        asked_under or app_start or nameless,
        born=now if born is None else min(born, now),
        grace_ends=now + policy.grace_s,
        asked=bool(asked_under),
        identity=identity,
    )


def resume(container: Container, latch: Latch, now: float, drained_for_s: float, policy: Policy) -> Container:
    """The container under a latch from disk: in the rest of its drain, or down; a lease ends that in time."""
    drained_for_s = max(0.0, drained_for_s)  # the wall clock may have stepped back
    granted_at = now - drained_for_s
    return container._replace(
        state=State.DRAINING if drained_for_s < policy.drain_s else State.DOWN,
        since=now,
        drain_ends=granted_at + policy.drain_s,
        lease_ends=granted_at + policy.retire_timeout_s - latch.spent_s if latch.lease else None,
        latch=latch,
        out_since=granted_at,
    )


def enter(container: Container, state: State, now: float) -> Container:
    """The container in another state, from now on. It keeps its cause while it is out of balance."""
    cause = container.cause if state in _OUT_OF_BALANCE else ""
    container = container._replace(state=state, since=now, cause=cause, is_announced=False)
    return container._replace(ask_at=None, unclear=None, unknowns=0, refused=())


class Step(NamedTuple):
    """The container after a trigger, the effects that follow, and what has happened."""

    container: Container
    effects: tuple[Effect, ...] = ()
    events: tuple[Event, ...] = ()
