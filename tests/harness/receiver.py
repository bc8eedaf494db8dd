"""A receiver of messages on loopback, which accepts what the page documents and refuses all others."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from harness.http_server import Asked, Said, http_server
from sidecar.config import syntax

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH: Final = "/hook?token=s3cret"
_BARE: Final = re.compile(r"&(?!amp;|lt;|gt;)|[<>]|@(?!\u200b)")


class Receiver:
    """``accepted`` has the valid payloads, ``refused`` the problems of the others.

    ``answer`` is the status for a valid payload; ``tries`` counts all requests.
    """

    def __init__(self) -> None:
        self.url = ""
        self.answer = 200
        self.headers: dict[str, str] = {}
        self.accepted: list[Any] = []
        self.refused: list[str] = []
        self.tries = 0

    def take(self, asked: Asked) -> Said:
        """Answer a request."""
        self.tries += 1
        said = (asked.method, asked.headers.get_content_type(), asked.path)
        wrong = [] if said == ("POST", "application/json", PATH) else [f"the request is {said}"]
        try:
            payload = json.loads(asked.body)
        except ValueError as error:
            wrong.append(f"no JSON: {error}")
        else:
            wrong += check_webhook(payload)
        if wrong:
            self.refused += wrong
            return Said(400, "; ".join(wrong).encode())
        if self.answer < 300:
            self.accepted.append(payload)
        return Said(self.answer, headers=self.headers)


def check_webhook(message: Any) -> list[str]:
    """The default of deploy/messages.md, which Slack, Mattermost and Teams take, or fields of a template beside it."""
    wrong = [f"unknown field {name}" for name in message.keys() - {*syntax.TEMPLATE_FIELDS}]
    text = message.get("text", "")
    if not isinstance(text, str) or not 0 < len(text) <= 40_000:
        wrong.append(f"text is {text!r}")
    return [*wrong, *([f"not escaped: {text!r}"] if _BARE.search(text) else [])]


@contextmanager
def webhook() -> Iterator[Receiver]:
    """A receiver that listens while the context lasts."""
    receiver = Receiver()
    with http_server(receiver.take) as port:
        receiver.url = f"http://127.0.0.1:{port}{PATH}"
        yield receiver
