"""The hall: the only writer of state.

Messages come in through one inbox (pings from the doors, answers to claims, the order to stop) and time through
``run``; each is turned into events for the arbiter, whose wishes are carried out here. Nothing in it waits for the
budget, the disk or a door: a claim is a task of its own, and its reply is a message like any other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from sidecar.core import arbiter
from sidecar.core.arbiter import Answered, Ask, Effect, Event, Forget, Judged, Remember, Restarted, Standing, Stopped
from sidecar.core.detectors import complaint, judge
from sidecar.core.records import Record, Snapshot
from sidecar.core.weight import Weight
from sidecar.core.witness import Witness
from sidecar.core.words import Answer, Claim, Evidence, Gone, Judgement, Ping, Policy, Report, Sample, State, Unknown
from sidecar.inbox import Inbox, Message
from sidecar.journal import Journal, Memory

ENDED_NAMES: Final = 16
PAGE: Final = "page:"
"""Before what a metrics page calls an incarnation, so that nobody takes it for what the app itself calls it."""

JOURNAL_WAIT_S: Final = 1.0
CLAIM_LIMIT_S: Final = 30.0
"""A bucket bounds its claims itself; this is for one that does not, so that no claim is outstanding for ever."""


class Claims(Protocol):
    """What the hall needs of a budget: an answer as a value, and never an exception for a failure."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the hall looks: at every check, and at once after a ping if ``on_ping``.

    A check comes by up to ``jitter`` of its interval earlier or later; without jitter nothing else is spread either.
    """

    jitter: float = 0.1
    on_ping: bool = True


class Hall:
    """Holds standing and witness of one app, and lets the arbiter move the one by the evidence of the other.

    ``clock`` gives monotonic seconds, ``wall`` Unix seconds. ``weight`` is where the app begins. ``observe`` is called
    once a step, ``on_failure`` with every exception that a step or an observer let out; neither may block.
    """

    def __init__(
        self,
        standing: Standing,
        *,
        policy: Policy,
        pace: Pace,
        witness: Witness,
        weight: Weight,
        budget: Claims,
        journal: Journal,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Random,
        observe: Callable[[Record], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.standing = standing
        self.weight = weight
        self.success_rate: float | None = None
        self.checked_at: float | None = None
        self.lag_s = 0.0
        self.stale_reports = 0
        self.witness = witness
        self.inbox = Inbox()
        self._policy = policy
        self._pace = pace
        self._budget = budget
        self._journal = journal
        self._clock = clock
        self._wall = wall
        self._rng = rng
        self._observe = observe
        self._on_failure = on_failure
        self._ended: deque[str] = deque(maxlen=ENDED_NAMES)
        self._names = {_source(standing.app_start): standing.app_start} if standing.app_start else {}
        self._claim: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._next_check = 0.0
        self._not_before = 0.0
        self._weighed_s = 0
        self._has_news = False
        self._tasks: asyncio.TaskGroup | None = None

    # -- what the doors see -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state of affairs now; costs some microseconds and waits for nothing."""
        now = self._clock()
        evidence = self.witness.evidence(now)
        return Snapshot(now, self.standing, evidence, self.checked_at, self.weight.percent, self.success_rate)

    def evidence(self) -> Evidence:
        """What the window holds."""
        return self.witness.evidence(self._clock())

    # -- the loop ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                now = self._clock()
                wake_at = self._wake_at(now)
                messages = await self.inbox.take(wake_at - now)
                self.advance(messages, self._clock(), wake_at)

    def advance(self, messages: Sequence[Message] | deque[Message], now: float, wake_at: float) -> None:
        """Take in what has come and do what is due at ``now``; ``wake_at`` is when the clock was to wake us."""
        if now >= wake_at:
            self.lag_s = now - wake_at
        self._guarded(self._turn, now)
        self._has_news = False
        for message in messages:
            self._guarded(self._handle, message, now)
        if now >= self._next_check:
            self._guarded(self._check, now)
        elif self._has_news and self._pace.on_ping and self.standing.state is State.UP:
            self._guarded(self._glance, now)
        elif (now >= self._due(now) or self._is_drained()) and not self._guarded(self._judge, now):
            self._not_before = now + 1.0

    def _wake_at(self, now: float) -> float:
        """The next whole second turns the ring; a check or the arbiter may want to be earlier."""
        return max(now, min(int(now) + 1.0, self._next_check, self._due(now)))

    def _due(self, now: float) -> float:
        """When the arbiter wants to be stepped; after a failed step not again at once, which would spin."""
        due = self.standing.due
        return now + 1.0 if due is None else max(due, self._not_before)

    def _is_drained(self) -> bool:
        return self._has_news and arbiter.is_drained(self.standing, self.witness.idle_at, self._policy)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> bool:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - one bad step must not end the house
            self._on_failure(error)
            return False
        return True

    def _turn(self, now: float) -> None:
        """Once a second turn the ring and weigh the app; in between there is nothing to do."""
        now_s = int(now)
        self.witness.turn(now_s)
        if now_s > self._weighed_s:
            self.success_rate = self.witness.success_rate(now)
            self.weight = self.weight.step(self.success_rate, now_s - self._weighed_s)
            self._weighed_s = now_s

    def _check(self, now: float) -> None:
        jitter = self._pace.jitter
        first = self.checked_at is None and jitter > 0
        spread = self._rng.random() if first else 1 + jitter * self._rng.uniform(-1, 1)
        self._next_check = now + self._policy.check_interval_s * spread
        self._judge(now, is_check=True)
        self.checked_at = now

    def _judge(self, now: float, *, is_check: bool = False) -> None:
        verdict = judge(self.witness.evidence(now), self._policy)
        self._step(Judged(verdict, is_check, self._jitter(), self.witness.idle_at), now)

    def _glance(self, now: float) -> None:
        """Judge what has just been reported. Under a flood this is done once a turn: only what speaks is a step."""
        verdict = judge(self.witness.evidence(now), self._policy)
        if verdict.judgement is not Judgement.FINE:
            self._step(Judged(verdict, is_check=False, jitter=self._jitter()), now)

    def _jitter(self) -> float:
        return self._rng.random() if self._pace.jitter else 0.0

    # -- messages ---------------------------------------------------------------------------------------------

    def _handle(self, message: Message, now: float) -> None:
        if isinstance(message, Answered):
            if self.standing.asking:
                self._guarded(self._judge, now)  # the window may have emptied while the answer was on its way
            self._step(message, now, claim_s=now - self._asked_at)
        elif isinstance(message, Stopped):
            self._step(message, now)
        else:
            self._receive(message, now)

    def _receive(self, reports: Sequence[Report], now: float) -> None:
        for report in reports:
            if isinstance(report, Gone):
                self._bury(now)
            elif (name := _name(report)) and not self._is_alive(name, now):
                self.stale_reports += 1
            else:
                self.witness.take(report, now)
        self._has_news = True

    def _bury(self, now: float) -> None:
        """The app has ended. Who comes next is another incarnation, though we do not know its name yet."""
        self._step(Restarted(None, f"after-{self._rng.getrandbits(64):016x}"), now)
        self._rename({})

    def _is_alive(self, name: str, now: float) -> bool:
        """Whether a report of this incarnation counts; the first one of a new incarnation begins its life.

        What the app says and what its metrics page says are two names of one life: each is compared with its own kind.
        """
        source = _source(name)
        if self._names.get(source) == name:
            return True
        if name in self._ended:
            return False
        if self._names and source not in self._names:
            self._names[source] = name
            return True
        self._step(Restarted(name), now)
        self._rename({source: name})
        return True

    def _rename(self, names: dict[str, str]) -> None:
        self._ended.extend(self._names.values())
        self._names = names

    # -- steps and wishes -------------------------------------------------------------------------------------

    def _step(self, event: Event, now: float, claim_s: float | None = None) -> None:
        before = self.standing
        self.standing, effects = arbiter.step(before, event, now, self._policy)
        for effect in effects:
            self._guarded(self._carry_out, effect, now)
        self._guarded(self._observe, Record(event, before, self.standing, self.witness.evidence(now), claim_s))

    def _carry_out(self, effect: Effect, now: float) -> None:
        if isinstance(effect, Ask):
            self._ask(effect.claim_id, now)
        elif isinstance(effect, Remember):
            self._spawn(self._journal.save, self._memory())
        elif isinstance(effect, Forget):
            self._forget(effect)

    def _forget(self, effect: Forget) -> None:
        self.witness.clear(heart=effect.heart)
        if effect.heart:
            self.weight, self.success_rate = self.weight.fresh(), None
        if self._claim is not None:
            self._claim.cancel()  # a token for an incarnation that has ended helps nobody

    def _memory(self) -> Memory:
        standing = self.standing
        return Memory(standing.app, standing.app_start, standing.incarnation, standing.latch)

    def _ask(self, claim_id: str, now: float) -> None:
        standing = self.standing
        kind = complaint(standing.verdict, self.witness.evidence(now))
        self._asked_at = now
        self._claim = self._spawn(self._fetch, Claim(claim_id, standing.instance, standing.life, kind))

    async def _fetch(self, claim: Claim) -> None:
        try:
            await self._journal.settled(JOURNAL_WAIT_S)
            async with asyncio.timeout(CLAIM_LIMIT_S):
                answer = await self._budget.claim(claim)
        except Exception as error:  # noqa: BLE001 - a failing budget is an unclear answer, never an exception
            self._on_failure(error)
            answer = Unknown("internal")
        self.inbox.put(Answered(claim.claim_id, answer, self._wall(), self._jitter()))

    def _spawn(self, work: Callable[..., Awaitable[None]], argument: object) -> asyncio.Task[None]:
        if self._tasks is None:
            raise RuntimeError("the hall is not running")
        return self._tasks.create_task(self._contained(work, argument))

    async def _contained(self, work: Callable[..., Awaitable[None]], argument: object) -> None:
        try:
            await work(argument)
        except Exception as error:  # noqa: BLE001 - as in _guarded: the group would end the house
            self._on_failure(error)


def _name(report: Report) -> str | None:
    """What a report calls the incarnation that it is of, if anything."""
    if isinstance(report, Sample):
        return f"{PAGE}{report.app_start}" if report.app_start else None
    return report.app_start if isinstance(report, Ping) else None


def _source(name: str) -> str:
    return PAGE if name.startswith(PAGE) else ""
