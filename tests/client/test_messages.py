from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.client import messages
from sidecar.client.messages import DUE, REMEMBERED, message


@pytest.fixture(autouse=True)
def nothing_sent() -> Iterator[None]:
    DUE.clear()
    yield
    DUE.clear()


def test_first_message_of_a_fingerprint_in_a_second_goes_along_redacted() -> None:
    made: list[str] = []

    def text() -> str:
        made.append("")
        return "password=hunter2"

    assert [message("a", text), message("a", text), message("b", text)] == ["password=***", None, "password=***"]
    assert len(made) == 2, "a message that nobody needs is not even made"
    DUE["a"] -= messages.EVERY_S
    assert message("a", text) == "password=***"


def test_message_that_cannot_be_made_is_none() -> None:
    assert message("a", lambda: str(1 / 0)) is None


def test_memory_is_bounded() -> None:
    for number in range(3 * REMEMBERED):
        message(str(number), lambda: "text")
    assert len(DUE) <= REMEMBERED
