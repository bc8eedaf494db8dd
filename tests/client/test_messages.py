from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sidecar.client import messages
from sidecar.client.messages import DUE, REMEMBERED, message


@pytest.fixture(autouse=True)
def nothing_sent() -> Iterator[None]:
    DUE.clear()
    yield
    DUE.clear()


def _refuse() -> str:
    raise AssertionError("nobody needs it")


def test_first_message_of_a_fingerprint_goes_along_redacted() -> None:
    assert message("a", lambda: "password=hunter2") == "password=***"
    assert message("b", lambda: "other") == "other"


def test_further_messages_within_a_second_are_not_even_made() -> None:
    message("a", lambda: "first")
    assert message("a", _refuse) is None


def test_message_is_sent_again_later() -> None:
    message("a", lambda: "first")
    DUE["a"] -= messages.EVERY_S
    assert message("a", lambda: "second") == "second"


@pytest.mark.parametrize("fail", [_refuse, lambda: str(1 / 0)], ids=["assertion", "division"])
def test_message_that_cannot_be_made_is_none(fail: Callable[[], str]) -> None:
    assert message("a", fail) is None


def test_memory_is_bounded() -> None:
    for number in range(3 * REMEMBERED):
        message(str(number), lambda: "text")
    assert len(DUE) <= REMEMBERED
