"""A sidecar that is ended at the first 503 that a poller sees keeps its container down, without Redis, too."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from bench import wire

if TYPE_CHECKING:
    import socket

    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

pytestmark = pytest.mark.process
LIMIT = 5
LIVES, MOST_LIVES = 3, 30
"""Lives that count, and lives: a disk that many share may take longer than ``WAIT_S``."""

MOST_POLLS = 100_000
WAIT_S = 0.25
"""After this time a disk that hangs does not hold up the answer, and the latch may be lost."""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=lambda ending: ending.name)
def test_container_stays_down_when_its_sidecar_ends_at_the_first_503(
    sidecar: StartSidecar, ending: signal.Signals
) -> None:
    one = sidecar("one", settle="0s", drain="0s", check_interval="1s", error_limit=LIMIT)
    answers: list[int] = []
    for life in range(MOST_LIVES):
        was_prompt = _end_at_first_503(one, ending, f"life-{life}")
        one.start()
        answers += [one.health()[0]] if was_prompt else []
        if len(answers) == LIVES:
            break
    assert answers == [503] * LIVES


def _end_at_first_503(one: Sidecar, ending: signal.Signals, app_start: str) -> bool:
    """Begin an incarnation of the app, have it culled, and end the sidecar as soon as a poll says so.

    Return whether the answer came so soon that the sidecar cannot have given up waiting for the disk.
    """
    with wire.connect(one.address("public")) as health:
        one.post_error(count=0, app_start=app_start)
        _poll_until(200, health)
        begun = time.monotonic()
        one.post_error(LIMIT, app_start=app_start)
        _poll_until(503, health)
        took_s = time.monotonic() - begun
        one.kill() if ending is signal.SIGKILL else one.terminate()
    one.wait()
    return took_s < WAIT_S


def _poll_until(status: int, health: socket.socket) -> None:
    poll = wire.request("GET", "/health")
    assert any(wire.status(wire.ask(health, poll)) == status for _ in range(MOST_POLLS)), f"no {status}"
