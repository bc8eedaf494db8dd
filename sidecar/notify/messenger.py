"""The messenger: looks once a second what is worth telling, and lets one sidecar of the fleet tell it.

It watches and never acts: observers hand it records and answers of beats, which it only keeps; everything that waits
does so in tasks of its own. Who may send is asked of the bucket (``Budget.first``). When Redis is away nobody can be
asked, so there is a speaker, chosen while it was there: who was first to say so, for ``SPEAKER_S``. The speaker alone
tells that Redis is away. A sidecar that has never reached Redis cannot know of any other, and speaks for itself.

Who tells may end before a receiver has taken the message: it is often the container that is culled. So it says when
all have it, or when it has tried for ``IN_HAND_S``; and the others look some time later whether that was said, and the
first who finds that it was not tells it instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from random import Random
from typing import Final, Protocol

from sidecar.core.life.events import Answered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Fleet, Granted, Roll, Unknown
from sidecar.notify.episodes import Occasion, Occasions
from sidecar.notify.message import Context, Message
from sidecar.notify.outbox import Outbox
from sidecar.notify.receivers import REPEAT_S
from sidecar.notify.watch import Watch

LOOK_S: Final = 1.0
SPEAKER: Final = "message:speaker"
SPEAKER_S: Final = 150.0
SPEAKER_ASKED_S: Final = 60.0
SPEAKER_LATE_S: Final = 5.0
REPEAT: Final = "message:repeat"
REPEAT_CLAIM_S: Final = 50.0
UNCLAIMED_MOST: Final = 100
CLAIM_WAITS_S: Final = 60.0
"""So long an occasion waits for a Redis that does not say whose it is; then it is the speaker's."""

IN_HAND_S: Final = 15.0
LOOK_AFTER_S: Final = (30.0, 45.0)
"""When those who do not tell look whether it was told: not all at once, and later than who tells has said so."""

SAID_FOR_S: Final = 90.0
"""How long it is said to have been told: sidecars see a spell some beats apart, and look later by as much."""

TOLD_S: Final = 120.0


class Bucket(Protocol):
    """What a messenger needs of a budget."""

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether nobody of the fleet has said the word, or only longer ago."""

    async def roll(self) -> Roll | Unknown:
        """The fleet member by member, and the tokens in use."""


class Messenger:
    """Tells people by way of ``outboxes``; ``clock`` gives monotonic seconds, ``wall`` Unix seconds.

    ``capacity``: tokens a window, 0 if that depends on the fleet. ``on_failure`` is told of exceptions that nobody has
    foreseen.
    """

    def __init__(
        self,
        occasions: Occasions,
        outboxes: Sequence[Outbox],
        bucket: Bucket,
        watch: Watch,
        context: Context,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Random,
        on_failure: Callable[[Exception], None],
        capacity: int = 0,
    ) -> None:
        self._occasions = occasions
        self._outboxes = outboxes
        self._bucket = bucket
        self._watch = watch
        self._context = context
        self._clock = clock
        self._wall = wall
        self._rng = rng
        self._on_failure = on_failure
        self._capacity = capacity
        self._unclaimed: deque[tuple[Occasion, float]] = deque(maxlen=UNCLAIMED_MOST)
        self._in_hand: deque[tuple[Occasion, float]] = deque(maxlen=UNCLAIMED_MOST)
        self._left: deque[tuple[Occasion, float]] = deque(maxlen=UNCLAIMED_MOST)
        self._own_told: set[str] = set()
        self._speaks_until = -inf
        self._ask_speaker_at = 0.0
        self._repeat_at = clock() + REPEAT_S * rng.random()

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent, at all receivers."""
        return sum(map(len, self._outboxes))

    @property
    def own(self) -> dict[str, float]:
        """Since when lasts what this sidecar alone has told, and alone will tell the end of, by topic."""
        return {topic: since for topic, since in self._occasions.own.items() if topic in self._own_told}

    def go_on(self, own: Mapping[str, float]) -> None:
        """Go on where another process for this container has ended: what it told, on our clock."""
        for topic, since in own.items():
            self._occasions.go_on(topic, since)
            self._own_told.add(topic)

    # -- observers ----------------------------------------------------------------------------------------------------

    def notice(self, record: Record) -> None:
        """Keep what a step says of the own container and of the tokens."""
        self._watch.step(record, self._clock())
        if isinstance(record.event, Answered):
            self._answered(record.event.answer)

    def beaten(self, answer: Fleet | Unknown) -> None:
        """Keep what came of a beat."""
        self._watch.beaten(answer, self._clock())

    def _answered(self, answer: object) -> None:
        if isinstance(answer, Granted) and not answer.replayed:
            # What was in use before this token was for those to tell who spent it.
            self._watch.count(answer.used - 1, answer.capacity, self._clock())
            self._look(but="budget")
        if isinstance(answer, (Granted, Denied)) and answer.capacity > 0:
            refused = isinstance(answer, Denied) and answer.reason == "window"
            self._watch.count(answer.used, answer.capacity, self._clock(), refused=refused)
            self._look()

    # -- looking ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look and send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for outbox in self._outboxes:
                tasks.create_task(self._for_ever(outbox.run))
            await self._for_ever(self.turn)

    async def turn(self) -> None:
        """Look once, and pass on what this sidecar may tell."""
        self._look()
        await self._claim_all()
        await self._say_told()
        await self._look_after()
        now = self._clock()
        if now >= self._ask_speaker_at and isinstance(self._watch.answer, Fleet):
            await self._ask_speaker(now)
        if now >= self._repeat_at:
            await self._repeat(now)

    async def _claim_all(self) -> None:
        for _ in range(len(self._unclaimed)):
            occasion, noticed_at = self._unclaimed.popleft()
            is_ours = await self._is_ours(occasion)
            if isinstance(is_ours, Unknown):
                is_late = self._clock() - noticed_at >= CLAIM_WAITS_S
                if not is_late:
                    self._unclaimed.append((occasion, noticed_at))
                is_ours = is_late and self._is_speaker()
            if is_ours:
                self._send(occasion)
            elif is_ours is False and _is_for_all(occasion):
                self._left.append((occasion, self._clock() + self._rng.uniform(*LOOK_AFTER_S)))

    async def _say_told(self) -> None:
        """Say what this sidecar has told; again and again, for the word of a spell before may end before they look."""
        for _ in range(len(self._in_hand)):
            occasion, since = self._in_hand.popleft()
            age_s = self._clock() - since
            if not self.waiting or age_s >= IN_HAND_S:
                await self._bucket.first(*_told(occasion))
            if age_s < SAID_FOR_S:
                self._in_hand.append((occasion, since))

    async def _look_after(self) -> None:
        """Tell what another one was to tell, and has not."""
        now = self._clock()
        for occasion, due in [one for one in self._left if one[1] <= now]:
            self._left.remove((occasion, due))
            if await self._bucket.first(*_told(occasion)) is True:
                self._send(occasion)

    def _look(self, but: str = "") -> None:
        now = self._clock()
        found = self._occasions.look(now, self._watch.seen(now))
        self._unclaimed += [(occasion, now) for occasion in found if occasion.topic != but]

    async def _for_ever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - messages must not end the sidecar
                self._on_failure(error)
            await asyncio.sleep(LOOK_S)

    # -- who sends ----------------------------------------------------------------------------------------------------

    async def _is_ours(self, occasion: Occasion) -> bool | Unknown:
        """Whether it is for this sidecar to send."""
        if occasion.is_own and occasion.is_over:
            return occasion.topic in self._own_told
        if occasion.topic == "redis":
            return self._is_speaker()
        return await self._bucket.first(occasion.claim, occasion.claim_s)

    def _is_speaker(self) -> bool:
        """Whether this one was the speaker when Redis was last heard of; who never heard of it speaks for itself."""
        return self._watch.clear_at is None or self._speaks_until + SPEAKER_LATE_S > self._watch.clear_at

    async def _ask_speaker(self, now: float) -> None:
        if await self._bucket.first(SPEAKER, SPEAKER_S) is True:
            self._speaks_until = now + SPEAKER_S
            # Not before it is over: who asks again while it lasts is told yes, and gets no longer.
            self._ask_speaker_at = self._clock() + SPEAKER_S + 1
            return
        self._ask_speaker_at = now + SPEAKER_ASKED_S * self._rng.uniform(0.8, 1.2)

    async def _repeat(self, now: float) -> None:
        """Once a minute, one of the fleet tells those again who forget; and the speaker looks after the tokens."""
        self._repeat_at = now + REPEAT_S
        if self._speaks_until > now and self._watch.must_ask_tokens:
            await self._ask_tokens()
        boxes = [outbox for outbox in self._outboxes if outbox.receiver.repeats]
        ongoing = self._occasions.ongoing if boxes else []
        own = [occasion for occasion in ongoing if occasion.topic in self._own_told]
        shared = [occasion for occasion in ongoing if not occasion.is_own]
        if shared and await self._bucket.first(REPEAT, REPEAT_CLAIM_S) is not True:
            shared = []
        for occasion in own + shared:
            for box in boxes:
                box.put(self._message(occasion), is_repeat=True)

    async def _ask_tokens(self) -> None:
        roll = await self._bucket.roll()
        capacity = self._capacity or self._watch.capacity
        if isinstance(roll, Roll) and capacity:
            self._watch.count(roll.used, capacity, self._clock())

    def _send(self, occasion: Occasion) -> None:
        if occasion.is_own:
            (self._own_told.discard if occasion.is_over else self._own_told.add)(occasion.topic)
        message = self._message(occasion)
        for outbox in self._outboxes:
            if outbox.receiver.wants(occasion):
                outbox.put(message)
        if _is_for_all(occasion):
            self._in_hand.append((occasion, self._clock()))

    def _message(self, occasion: Occasion) -> Message:
        at = self._wall()
        return Message(occasion, self._context, at - (self._clock() - occasion.since), at)


def _is_for_all(occasion: Occasion) -> bool:
    """Whether others could tell it as well: they claim it."""
    return occasion.topic != "redis" and not (occasion.is_own and occasion.is_over)


def _told(occasion: Occasion) -> tuple[str, float]:
    """The word for that, and how many seconds it is kept: whoever the claim keeps from telling has to find it."""
    return f"{occasion.claim}:told", max(TOLD_S, occasion.claim_s)
