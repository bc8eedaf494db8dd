"""The webhook: what it takes, what is tried again, and what is never shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from harness import receiver as listening
from harness.ports import free_port
from harness.receiver import Receiver
from harness.virtual_time import in_virtual_time, settle
from sidecar.config import syntax
from sidecar.config.settings import IdentityConfig
from sidecar.notify.messages import Alert, fields_of
from sidecar.notify.webhook import (
    GIVE_UP_S,
    MOST_WAITING,
    Delivery,
    Outbox,
    UndeliveredError,
    Webhook,
    body,
)

OWN = IdentityConfig("shop.web", "default", "n1", mode="enforce")
PAUSED = Alert("paused:redis", "paused", "Culls for redis did not help.", cause="redis")


def fields(alert: Alert = PAUSED) -> dict[str, str]:
    return fields_of(alert, OWN, "", 0.0)


@pytest.mark.parametrize("template", ["", json.dumps({name: f"${name}" for name in syntax.TEMPLATE_FIELDS})])
def test_body_is_the_text_alone_or_the_template_with_every_field_as_text(template: str) -> None:
    message = fields_of(PAUSED, OWN, "", 0.0, sample='a "quote" \\ and\na line')
    assert json.loads(body(template, message)) == (message if template else {"text": message["text"]})


# -- posting ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening.webhook() as one:
        yield one


async def test_message_is_posted_to_the_url(receiver: Receiver) -> None:
    assert await Webhook(receiver.url, "").send(fields()) == "127.0.0.1"
    assert (len(receiver.accepted), receiver.refused) == (1, [])


@pytest.mark.parametrize(("status", "is_final"), [(500, False), (429, False), (400, True), (302, False), (404, False)])
async def test_refusal_says_whether_another_attempt_makes_sense(
    receiver: Receiver, status: int, *, is_final: bool
) -> None:
    receiver.answer, receiver.headers = status, {"Location": "http://127.0.0.1:1/"}
    with pytest.raises(UndeliveredError, match=f"^status {status}$") as raised:
        await Webhook(receiver.url, "").send(fields())
    assert raised.value.is_final is is_final
    assert receiver.tries == 1, "no redirect is followed"


async def test_unreachable_host_and_wrong_certificate_are_causes_without_the_url(receiver: Receiver) -> None:
    for url, why in (
        (f"http://127.0.0.1:{free_port()}/s3cret", "connection"),
        (receiver.url.replace("http:", "https:"), "tls"),
    ):
        with pytest.raises(UndeliveredError, match=f"^{why}$"):
            await Webhook(url, "").send(fields())


# -- the queue --------------------------------------------------------------------------------------------------------


class Answers(Webhook):
    """A webhook that gives these answers, one for each attempt, and then takes everything."""

    def __init__(self, *answers: UndeliveredError) -> None:
        super().__init__("http://a", "")
        self.answers = list(answers)
        self.taken: list[tuple[str, float]] = []

    async def send(self, fields: Mapping[str, str]) -> str:
        await asyncio.sleep(0)
        if self.answers:
            raise self.answers.pop(0)
        self.taken.append((fields["sentence"], asyncio.get_running_loop().time()))
        return "host"


class RunningOutbox:
    """An outbox in virtual time, with what it reports."""

    def __init__(self, webhook: Webhook) -> None:
        self.outcomes: list[Delivery] = []
        self.box = Outbox(webhook, clock=asyncio.get_running_loop().time, rng=Random(1), observe=self.outcomes.append)
        self.task = asyncio.get_running_loop().create_task(self.box.run())

    def put(self, *sentences: str) -> None:
        for sentence in sentences:
            self.box.put(fields(PAUSED._replace(sentence=sentence)))

    async def end(self) -> list[str]:
        self.task.cancel()
        await settle()
        return [one.outcome for one in self.outcomes]


@in_virtual_time
async def test_messages_are_sent_in_order_and_tried_again_after_growing_pauses() -> None:
    webhook = Answers(*(UndeliveredError("status 500") for _ in range(8)))
    began = asyncio.get_running_loop().time()
    outbox = RunningOutbox(webhook)
    outbox.put("one", "two")
    await asyncio.sleep(1000)
    assert [sentence for sentence, _ in webhook.taken] == ["one", "two"]
    assert 0.5 * (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60) <= webhook.taken[0][1] - began <= 1.5 * 183
    assert await outbox.end() == ["failed"] * 8 + ["sent"] * 2


@in_virtual_time
async def test_message_is_given_up_after_an_hour_or_at_once_if_it_will_never_be_taken() -> None:
    webhook = Answers(UndeliveredError("status 400", is_final=True), *(UndeliveredError("x") for _ in range(300)))
    outbox = RunningOutbox(webhook)
    outbox.put("bad", "late")
    await asyncio.sleep(GIVE_UP_S + 200)
    outcomes = await outbox.end()
    assert outcomes[0] == "dropped"
    assert outcomes[-1] == "dropped"
    assert outcomes.count("dropped") == 2
    assert len(outbox.box) == 0


@in_virtual_time
async def test_oldest_message_is_dropped_when_too_many_wait() -> None:
    webhook = Answers(UndeliveredError("x"))
    outbox = RunningOutbox(webhook)
    assert len(outbox.box) == 0
    outbox.put("first")
    await settle()
    outbox.put(*map(str, range(MOST_WAITING + 1)))
    assert len(outbox.box) == MOST_WAITING + 1, "and one that is being sent"
    await asyncio.sleep(10)
    taken = [sentence for sentence, _ in webhook.taken]
    assert taken == ["first", *map(str, range(1, MOST_WAITING + 1))], "none is lost or sent twice but the oldest"
    assert (await outbox.end()).count("dropped") == 1
