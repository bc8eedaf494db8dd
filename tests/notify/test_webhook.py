"""The webhook: the JSON that it takes, which refusals are final, and what is never shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness import receiver as listening
from harness.ports import free_port
from harness.receiver import Receiver
from sidecar.config import syntax
from sidecar.config.settings import IdentityConfig
from sidecar.notify.messages import Alert, fields_of
from sidecar.notify.webhook import UndeliveredError, Webhook, body

OWN = IdentityConfig("shop.web", "default", "n1", mode="enforce")
PAUSED = Alert("paused:redis", "paused", "Culls for redis did not help.", cause="redis")
MESSAGE = fields_of(PAUSED, OWN, "", 0.0)


@pytest.mark.parametrize("template", ["", json.dumps({name: f"${name}" for name in syntax.TEMPLATE_FIELDS})])
def test_body_is_the_text_alone_or_the_template_with_every_field_as_text(template: str) -> None:
    message = fields_of(PAUSED, OWN, "", 0.0, sample='a "quote" \\ and\na line')
    assert json.loads(body(template, message)) == (message if template else {"text": message["text"]})


# -- posting ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening.webhook() as hook:
        yield hook


async def test_message_is_posted_to_the_url(receiver: Receiver) -> None:
    assert await Webhook(receiver.url, "").send(MESSAGE) == "127.0.0.1"
    assert (len(receiver.accepted), receiver.refused) == (1, [])


@pytest.mark.parametrize(("status", "is_final"), [(500, False), (429, False), (400, True), (302, False), (404, False)])
async def test_refusal_says_whether_another_attempt_makes_sense(
    receiver: Receiver, status: int, *, is_final: bool
) -> None:
    receiver.answer, receiver.headers = status, {"Location": "http://127.0.0.1:1/"}
    with pytest.raises(UndeliveredError, match=f"^status {status}$") as raised:
        await Webhook(receiver.url, "").send(MESSAGE)
    assert raised.value.is_final is is_final
    assert receiver.tries == 1, "no redirect is followed"


async def test_unreachable_host_and_wrong_certificate_are_causes_without_the_url(receiver: Receiver) -> None:
    for url, why in (
        (f"http://127.0.0.1:{free_port()}/s3cret", "connection"),
        (receiver.url.replace("http:", "https:"), "tls"),
    ):
        with pytest.raises(UndeliveredError, match=f"^{why}$"):
            await Webhook(url, "").send(MESSAGE)
