"""The messenger checks once a second whether a notification is due, and makes one sidecar of the fleet send it.

It only observes: it gets records from the controller and answers from the membership, and waits in tasks of its own.
The sidecars agree on the sender in the store (``MessageClaims.first``). While Redis is away they cannot, so they elect
a leader beforehand, for ``LEADER_S`` at a time. Only the leader reports that Redis is away. A sidecar that has never
reached Redis knows of no other, and sends for itself. That the action of a container failed only its own sidecar sees,
and sends.

The sender may end before a receiver has the message, often because its container is culled. So it notes in the store
that all receivers have it, or that it has tried for ``SENDING_S``. The others check some time later, and the first that
finds no such note sends the message instead.

A receiver never gets "10 of 10" before "8 of 10", although different sidecars may send them. The sender of a level
claims the lower levels too, so that nobody sends them any more. Where another sidecar has claimed one, the sender waits
for its note that the message is delivered, for ``SENDING_S`` at most. And a sender that is late drops a message that is
not the last word by what it sees itself (``Outbox``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Final, NamedTuple, Protocol

from sidecar.core.fleet.about import MemberList
from sidecar.core.life.events import ClaimAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Entry, Fleet, Granted, Unknown
from sidecar.notify.episodes import Episodes, Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.outbox import Outbox
from sidecar.notify.receivers import REPEAT_S
from sidecar.notify.watch import Watch

INTERVAL_S: Final = 1.0
LEADER: Final = "message:leader"
LEADER_S: Final = 150.0
LEADER_RETRY_S: Final = 60.0
LEADER_GRACE_S: Final = 5.0
REPEAT: Final = "message:repeat"
REPEAT_CLAIM_S: Final = 50.0
MAX_WAITING: Final = 100
CLAIM_TIMEOUT_S: Final = 60.0
"""How long a notification waits for an answer to its claim; then the leader sends it."""

SENDING_S: Final = 15.0
CHECK_AFTER_S: Final = (30.0, 45.0)
"""When the others check that a message was sent: at different times, and after the sender has noted it."""

PEEK_S: Final = 0.001
"""A claim that lasts so short only tells whether the word is free."""

NOTE_FOR_S: Final = 90.0
"""How long the sender repeats its note: other sidecars may see the episode, and look for the note, some beats later."""

NOTE_LASTS_S: Final = 120.0


async def no_details(_: Notification) -> Mapping[str, object]:
    """No facts beside those of the rule."""
    return {}


class MessageClaims(Protocol):
    """The part of the store that the messenger needs."""

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Claim ``word`` for ``for_s`` seconds; False if another sidecar holds it."""

    async def member_list(self) -> MemberList | Unknown:
        """Return the members of the fleet, and the tokens in use."""


class Messenger:
    """Puts due notifications into ``outboxes``. ``clock`` gives monotonic seconds, ``wall`` Unix seconds.

    ``capacity``: tokens per window, 0 if it depends on the fleet. ``on_failure`` receives unforeseen exceptions.
    ``details`` finds the facts that a reader needs first: containers, cause, a sample error, the command.
    """

    def __init__(
        self,
        episodes: Episodes,
        outboxes: Sequence[Outbox],
        claims: MessageClaims,
        watch: Watch,
        context: Context,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Random,
        on_failure: Callable[[Exception], None],
        capacity: int = 0,
        details: Callable[[Notification], Awaitable[Mapping[str, object]]] = no_details,
    ) -> None:
        self._episodes = episodes
        self._outboxes = outboxes
        self._claims = claims
        self._watch = watch
        self._context = context
        self._clock = clock
        self._wall = wall
        self._rng = rng
        self._on_failure = on_failure
        self._capacity = capacity
        self._details = details
        self._unclaimed: deque[tuple[Notification, float]] = deque(maxlen=MAX_WAITING)
        self._in_order: deque[_Turn] = deque(maxlen=MAX_WAITING)
        self._sending: deque[tuple[Notification, float]] = deque(maxlen=MAX_WAITING)
        self._to_check: deque[tuple[Notification, float]] = deque(maxlen=MAX_WAITING)
        self._sent_local_topics: set[str] = set()
        self._leads_until = -inf
        self._next_leader_claim = 0.0
        self._next_repeat = clock() + REPEAT_S * rng.random()
        for outbox in outboxes:
            outbox.is_current = lambda message: episodes.is_current(message.notification)

    @property
    def waiting(self) -> int:
        """The number of messages that wait, for all receivers together."""
        return sum(map(len, self._outboxes))

    # -- observers ----------------------------------------------------------------------------------------------------

    def notice(self, record: Record) -> None:
        """Observe a step of the controller."""
        self._watch.step(record, self._clock())
        if isinstance(record.event, ClaimAnswered):
            self._count_tokens(record.event.answer)

    def beaten(self, answer: Fleet | Unknown) -> None:
        """Observe the answer to a beat."""
        self._watch.beaten(answer, self._clock())

    def acted(self, entry: Entry) -> None:
        """Observe the result of the action that should have the container restarted."""
        self._watch.acted(entry)

    def _count_tokens(self, answer: object) -> None:
        if isinstance(answer, Granted) and not answer.replayed:
            # The sidecars that reached earlier levels of the budget have reported them.
            self._watch.count(answer.used - 1, answer.capacity, self._clock())
            self._look(except_topic="budget")
        if isinstance(answer, (Granted, Denied)) and answer.capacity > 0:
            refused = isinstance(answer, Denied) and answer.reason == "window"
            self._watch.count(answer.used, answer.capacity, self._clock(), refused=refused)
            self._look()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look and send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for outbox in self._outboxes:
                tasks.create_task(self._repeat_forever(outbox.run))
            await self._repeat_forever(self.turn)

    async def turn(self) -> None:
        """Look once, and do what is due."""
        self._look()
        await self._claim_all()
        await self._send_in_order()
        await self._note_sent()
        await self._check_others()
        now = self._clock()
        if now >= self._next_leader_claim and isinstance(self._watch.answer, Fleet):
            await self._claim_leadership(now)
        if now >= self._next_repeat:
            await self._repeat(now)

    async def _repeat_forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - messages must not end the sidecar
                self._on_failure(error)
            await asyncio.sleep(INTERVAL_S)

    def _look(self, except_topic: str = "") -> None:
        now = self._clock()
        due = self._episodes.look(now, self._watch.observation(now))
        self._unclaimed += [(notification, now) for notification in due if notification.topic != except_topic]

    async def _claim_all(self) -> None:
        for _ in range(len(self._unclaimed)):
            notification, since = self._unclaimed.popleft()
            is_sender = await self._is_sender(notification)
            if isinstance(is_sender, Unknown):
                is_late = self._clock() - since >= CLAIM_TIMEOUT_S
                if not is_late:
                    self._unclaimed.append((notification, since))
                is_sender = is_late and self._is_leader()
            if is_sender:
                self._in_order.append(await self._turn_of(notification))
            elif is_sender is False and _is_claimed(notification):
                self._to_check.append((notification, self._clock() + self._rng.uniform(*CHECK_AFTER_S)))

    async def _turn_of(self, notification: Notification) -> _Turn:
        """Claim what comes before this notification, and find out which of it another sidecar is sending now."""
        waits_for = []
        for claim in notification.earlier_claims:
            # The end of an episode claims nothing: the next episode needs these claims.
            is_free = await self._claims.first(claim, PEEK_S if notification.is_over else notification.claim_s)
            if is_free is False:
                waits_for.append(f"{claim}{_DELIVERED}")
            elif is_free is True and not notification.is_over:
                await self._claims.first(*_note(claim, notification.claim_s))
        return _Turn(notification, self._clock() + SENDING_S, waits_for)

    async def _send_in_order(self) -> None:
        """Send what waits for no earlier message of another sidecar any more."""
        for _ in range(len(self._in_order)):
            turn = self._in_order.popleft()
            while turn.waits_for and await self._claims.first(turn.waits_for[0], PEEK_S) is False:
                del turn.waits_for[0]
            if turn.waits_for and self._clock() < turn.until:
                self._in_order.append(turn)
            else:
                await self._send(turn.notification)

    async def _note_sent(self) -> None:
        """Note repeatedly what this sidecar has sent: a note of an earlier episode may expire before the check."""
        for _ in range(len(self._sending)):
            notification, since = self._sending.popleft()
            age_s = self._clock() - since
            note, lasts_s = _note(notification.claim, notification.claim_s)
            if not self.waiting:
                await self._claims.first(f"{notification.claim}{_DELIVERED}", lasts_s)
            if not self.waiting or age_s >= SENDING_S:
                await self._claims.first(note, lasts_s)
            if age_s < NOTE_FOR_S:
                self._sending.append((notification, since))

    async def _check_others(self) -> None:
        """Send the messages that another sidecar has claimed and not sent."""
        now = self._clock()
        for notification, due in [each for each in self._to_check if each[1] <= now]:
            self._to_check.remove((notification, due))
            if await self._claims.first(*_note(notification.claim, notification.claim_s)) is not True:
                continue
            if self._episodes.is_current(notification):
                await self._send(notification)

    # -- the sender ---------------------------------------------------------------------------------------------------

    async def _is_sender(self, notification: Notification) -> bool | Unknown:
        if notification.is_local and notification.is_over:
            return notification.topic in self._sent_local_topics
        if notification.topic == "action":
            return True
        if notification.topic == "redis":
            return self._is_leader()
        return await self._claims.first(notification.claim, notification.claim_s)

    def _is_leader(self) -> bool:
        """Whether this sidecar was the leader when Redis last answered. Without any answer it is its own leader."""
        return self._watch.answered_at is None or self._leads_until + LEADER_GRACE_S > self._watch.answered_at

    async def _claim_leadership(self, now: float) -> None:
        if await self._claims.first(LEADER, LEADER_S) is True:
            self._leads_until = now + LEADER_S
            # After its end: a claim before that is granted, but does not prolong the leadership.
            self._next_leader_claim = self._clock() + LEADER_S + 1
            return
        self._next_leader_claim = now + LEADER_RETRY_S * self._rng.uniform(0.8, 1.2)

    async def _repeat(self, now: float) -> None:
        """Each minute one sidecar repeats ongoing conditions to receivers that need it. The leader counts tokens."""
        self._next_repeat = now + REPEAT_S
        if self._leads_until > now and self._watch.must_ask_tokens:
            await self._ask_tokens()
        boxes = [outbox for outbox in self._outboxes if outbox.receiver.repeats]
        ongoing = self._episodes.ongoing if boxes else []
        local = [notification for notification in ongoing if notification.topic in self._sent_local_topics]
        shared = [notification for notification in ongoing if not notification.is_local]
        if shared and await self._claims.first(REPEAT, REPEAT_CLAIM_S) is not True:
            shared = []
        for notification in local + shared:
            message = await self._message(notification)
            for box in boxes:
                box.put(message, is_repeat=True)

    async def _ask_tokens(self) -> None:
        members = await self._claims.member_list()
        capacity = self._capacity or self._watch.capacity
        if isinstance(members, MemberList) and capacity:
            self._watch.count(members.used, capacity, self._clock())

    async def _send(self, notification: Notification) -> None:
        if notification.is_local:
            topics = self._sent_local_topics
            (topics.discard if notification.is_over else topics.add)(notification.topic)
        message = await self._message(notification)
        for outbox in self._outboxes:
            if outbox.receiver.wants(notification):
                outbox.put(message)
        if _is_claimed(notification):
            self._sending.append((notification, self._clock()))

    async def _message(self, notification: Notification) -> Message:
        details = {} if notification.is_over else await self._details(notification)
        at = self._wall()
        notification = replace(notification, facts={**notification.facts, **details})
        return Message(notification, self._context, at - (self._clock() - notification.since), at)


def _is_claimed(notification: Notification) -> bool:
    """Whether other sidecars could send it too, so that a claim has to choose the sender."""
    return notification.topic not in ("action", "redis") and not (notification.is_local and notification.is_over)


class _Turn(NamedTuple):
    """A notification that waits until its predecessors are delivered, or until the time ``until``."""

    notification: Notification
    until: float
    waits_for: list[str]


_DELIVERED: Final = ":delivered"


def _note(claim: str, claim_s: float) -> tuple[str, float]:
    """Return the claim that means "sent" and its duration: sidecars whose claim was refused look for it."""
    return f"{claim}:sent", max(NOTE_LASTS_S, claim_s)
