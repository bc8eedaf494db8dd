"""The state of one container: a value, how it begins, and the changes that several moves share."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from sidecar.core.life.events import Effect
from sidecar.core.types import NO_IDENTITY, Answer, Latch, Policy, Presence, RandomIdentity, State, Verdict
from sidecar.core.values import replace

UNNAMED: Final = "-"


class CullOrder(NamedTuple):
    """A person's order to cull. If it is refused, the container returns to the state ``back`` with its ``due``."""

    author: str
    reason: str
    back: State
    due: float | None


@dataclass(frozen=True, slots=True)
class Container:
    """The state of one incarnation of the app.

    ``app``: service and allocation. ``app_start``: the app's own id of its incarnation, once it is known.
    ``incarnation``: the id under which claims are made; it stays once a claim was made (``asked``). ``since``: when the
    state was entered. ``born``: when the incarnation began. ``due``: when the next step is due, if any. ``asking``: a
    claim is outstanding. ``unknowns``: unclear answers in a row.
    ``answer``: the last answer. ``stopped_down``: it was down when the sidecar stopped. ``would_culls``: culls of this
    incarnation that shadow mode did not carry out; ``would_down``: the app has not recovered since. ``order``: a
    person's order that is being claimed or was granted.

    Of a suspect: ``is_announced``: the store has answered a beat that announced it, and every beat since.
    ``refused``: a claim was denied. ``unclear``: the last claim may have been granted, without a clear answer.

    Of its retirement: ``identity``: its holder and jitter. ``leasing``: a request for a lease is outstanding.
    ``lease_answer``: the last answer to one. ``lease_ends``: when the lease ends. ``respite_until``: when the next
    retirement may be due. ``would_retire``: it was due in shadow mode.
    """

    state: State
    since: float
    app: str
    app_start: str | None = None
    incarnation: str = UNNAMED
    born: float = 0.0
    due: float | None = None
    verdict: Verdict | None = None
    asked: bool = False
    asking: bool = False
    unknowns: int = 0
    answer: Answer | None = None
    latch: Latch | None = None
    stopped_down: bool = False
    would_culls: int = 0
    would_down: bool = False
    order: CullOrder | None = None
    is_announced: bool = False
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
        asked=bool(asked_under),
        due=now + policy.grace_s,
        identity=identity,
    )


def resume(container: Container, latch: Latch, now: float, drained_for_s: float, policy: Policy) -> Container:
    """The container under a latch from disk: in the rest of its drain, or down; a lease ends that in time."""
    drained_for_s = max(0.0, drained_for_s)  # the wall clock may have stepped back
    container = replace(container, since=now, latch=latch)
    if latch.lease:
        container = replace(container, lease_ends=now + policy.retire_timeout_s - latch.spent_s - drained_for_s)
    if drained_for_s < policy.drain_s:
        return replace(container, state=State.DRAINING, due=now + policy.drain_s - drained_for_s)
    return replace(container, state=State.DOWN, due=container.lease_ends)


def enter(container: Container, state: State, now: float, due: float | None = None) -> Container:
    """The container in another state, from now on."""
    return replace(container, state=state, since=now, due=due, is_announced=False, refused=False, unclear=False)


def out_of_balance(container: Container, now: float, policy: Policy) -> Container:
    """The container after the grant of a token or a lease: draining, or down if the drain takes no time."""
    if policy.drain_s > 0:
        return enter(container, State.DRAINING, now, due=now + policy.drain_s)
    return enter(container, State.DOWN, now, due=container.lease_ends)


def is_drained(container: Container, idle_at: float | None, policy: Policy) -> bool:
    """Whether a drain may end early: the app was idle after every balancer had noticed the drain.

    An app that is idle earlier may be between two requests.
    """
    if container.state is not State.DRAINING or idle_at is None:
        return False
    return idle_at >= container.since + policy.drain_min_s


Step = tuple[Container, tuple[Effect, ...]]
"""The container after an event, and the effects that follow."""
