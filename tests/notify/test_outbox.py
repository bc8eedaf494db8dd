"""The queue of one receiver: in order, with retries, bounded, and without messages that are too old."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import Any, cast

from harness.virtual_time import in_virtual_time, settle
from sidecar.notify.episodes import Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.outbox import GIVE_UP_S, LIMIT, Delivery, Outbox
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.receivers import Receiver
from sidecar.notify.rules import Severity

AWAY = UndeliveredError("connection")


class FakeReceiver:
    """Raises the given answers one by one, the last one for ever; None accepts and remembers the message."""

    name = "fake"

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.taken: list[str] = []
        self.tried_at: list[float] = []

    async def send(self, message: Message) -> str:
        self.tried_at.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else (self.answers or [None])[0]
        if answer is not None:
            raise answer
        self.taken.append(message.notification.word)
        return "host"


def message(word: str = "w") -> Message:
    return Message(Notification("test", word, Severity.ERROR, "s", 0.0), Context("web", "prod", "a"), 0.0, 0.0)


class Story:
    """One outbox that runs for a number of seconds."""

    def __init__(self, *answers: Exception | None) -> None:
        self.receiver = FakeReceiver(*answers)
        self.deliveries: list[Delivery] = []
        clock = asyncio.get_running_loop().time
        fake = cast("Receiver", cast("Any", self.receiver))
        self.box = Outbox(fake, clock=clock, rng=Random(1), observe=self.deliveries.append)

    @property
    def outcomes(self) -> list[str]:
        return [one.outcome for one in self.deliveries]

    async def run(self, seconds: float) -> None:
        task = asyncio.get_running_loop().create_task(self.box.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await settle()


@in_virtual_time
async def test_messages_are_sent_in_order() -> None:
    story = Story()
    for word in ("a", "b", "c"):
        story.box.put(message(word))
    await story.run(1)
    assert story.receiver.taken == ["a", "b", "c"]
    assert story.outcomes == ["sent"] * 3


@in_virtual_time
async def test_failure_is_tried_again_later_and_later() -> None:
    story = Story(AWAY, AWAY, AWAY, None)
    story.box.put(message())
    await story.run(60)
    assert story.outcomes == ["failed", "failed", "failed", "sent"]
    tried = story.receiver.tried_at
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert [0.5 * 2**n <= pause <= 1.5 * 2**n for n, pause in enumerate(pauses)] == [True] * 3


@in_virtual_time
async def test_message_is_given_up_when_it_is_old_and_the_next_one_gets_its_turn() -> None:
    story = Story(AWAY)
    story.box.put(message("a"))
    await story.run(GIVE_UP_S / 2)
    story.box.put(message("b"))
    await story.run(GIVE_UP_S / 2 + 1)
    assert [(one.outcome, one.message.notification.word) for one in story.deliveries if one.outcome == "dropped"] == [
        ("dropped", "a")
    ]
    story.receiver.answers = [None]
    await story.run(61)
    assert story.receiver.taken == ["b"]


@in_virtual_time
async def test_message_that_waited_too_long_behind_another_is_dropped_too() -> None:
    story = Story(AWAY)
    for word in ("a", "b", "c"):
        story.box.put(message(word))
    await story.run(GIVE_UP_S + 10)
    assert [one.message.notification.word for one in story.deliveries if one.outcome == "dropped"] == ["a", "b", "c"]


@in_virtual_time
async def test_receiver_that_is_back_after_a_quarter_of_an_hour_gets_everything() -> None:
    story = Story(AWAY)
    story.box.put(message("a"))
    await story.run(900)
    story.box.put(message("b"))
    story.receiver.answers = [None]
    await story.run(61)
    assert story.receiver.taken == ["a", "b"]


@in_virtual_time
async def test_hopeless_message_is_dropped_at_once() -> None:
    story = Story(UndeliveredError("status 400", is_final=True), None)
    story.box.put(message("a"))
    story.box.put(message("b"))
    await story.run(1)
    assert story.outcomes == ["dropped", "sent"]


@in_virtual_time
async def test_receiver_that_asks_for_a_pause_gets_it() -> None:
    story = Story(UndeliveredError("status 429", retry_after_s=100), None)
    story.box.put(message())
    await story.run(99)
    assert story.outcomes == ["failed"]
    await story.run(2)
    assert story.outcomes == ["failed", "sent"]


@in_virtual_time
async def test_message_that_cannot_be_written_does_not_end_the_others() -> None:
    story = Story(KeyError("s3cret"), None)
    story.box.put(message("a"))
    story.box.put(message("b"))
    await story.run(1)
    assert [(one.outcome, one.detail) for one in story.deliveries] == [("dropped", "KeyError"), ("sent", "host")]


@in_virtual_time
async def test_too_many_push_the_oldest_out() -> None:
    story = Story()
    for number in range(LIMIT + 5):
        story.box.put(message(str(number)))
    assert len(story.box) == LIMIT
    await story.run(1)
    assert story.receiver.taken == [str(number) for number in range(5, LIMIT + 5)]
    assert story.outcomes == ["dropped"] * 5 + ["sent"] * LIMIT


@in_virtual_time
async def test_repeat_is_skipped_behind_another_message_and_tried_once() -> None:
    story = Story(AWAY)
    story.box.put(message("a"), is_repeat=True)
    story.box.put(message("a"), is_repeat=True)
    await story.run(30)
    assert story.outcomes == ["dropped"]
