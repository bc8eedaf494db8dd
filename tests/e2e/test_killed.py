"""A sidecar or its app that ends at any moment: one token per incarnation, and a culled container stays down."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from bench import wire
from harness.command import command
from harness.ports import free_port
from harness.redis_proxy import RedisProxy, Where
from harness.sidecar import AT_ONCE, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

pytestmark = pytest.mark.process

GRANTS = "{ha:default/app}:grants"


def _await_redis(one: Sidecar) -> None:
    """Wait for the first beat; then the server has the scripts too."""
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=60, what="Redis is reached")


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


@pytest.mark.redis
@pytest.mark.parametrize(
    ("where", "granted", "app_start"),
    [("request", 0, None), ("reply", 1, "boot-1")],
    ids=["before Redis has the claim", "before the reply arrives"],
)
def test_killed_with_an_outstanding_claim_it_comes_back_up_and_asks_with_the_same_id(
    sidecar: StartSidecar, redis_server: RedisServer, where: Where, granted: int, app_start: str | None
) -> None:
    with RedisProxy(redis_server.port) as proxy:
        one = sidecar("one", **AT_ONCE, redis_url=proxy.url)
        _await_redis(one)
        proxy.lose(where)
        one.post_error(5, app_start=app_start)
        assert proxy.lost.wait(60)
        one.kill()
        assert redis_server.cli("ZCARD", GRANTS) == granted

        proxy.lose("nowhere")
        one.start()
        assert one.health() == (200, "up\n")
        one.post_error(5, app_start=app_start)
        wait_for(_is(one, "down"), timeout_s=60, what="the same claim is granted")
        assert redis_server.cli("ZCARD", GRANTS) == 1
        assert one.verdict()["claim"]["reason"] == ("replayed" if granted else "granted")


@pytest.mark.redis
def test_killed_while_draining_it_finishes_the_drain_goes_down_and_acts(
    sidecar: StartSidecar, redis_server: RedisServer, run_dir: Path
) -> None:
    """The drain lasts as long as the app has requests in flight."""
    acted = run_dir / "acted"
    action: dict[str, Setting] = {"action": "command", "action_command": f"touch {acted}"}
    one = sidecar("one", **{**AT_ONCE, "drain": "5m"}, **action, redis_url=redis_server.url)
    one.post_error(5, kind="redis")
    wait_for(lambda: _latched(one), timeout_s=60, what="the latch is on disk")
    one.kill()
    one.start()
    assert one.verdict()["state"] == "draining"
    assert (one.health("/health/haproxy")[0], one.health("/health/nomad")[0]) == (503, 200)
    assert "5 server errors in 60 s (5 of them redis)" in one.health()[1]

    def is_down_when_idle() -> bool:
        one.request("local", "POST", "/results", '{"in_flight": 0}')
        return _is(one, "down")()

    wait_for(is_down_when_idle, timeout_s=60, what="the app is idle, and the drain over")
    assert one.health("/health/nomad")[0] == 503
    assert redis_server.cli("ZCARD", GRANTS) == 1
    wait_for(acted.exists, timeout_s=60, what="the command has run")


def _latched(one: Sidecar) -> bool:
    files = list(one.directory.glob("one.state/health-arbiter-*.json"))
    return bool(files) and '"reason"' in files[0].read_text()


# -- at the first 503 that a poller sees, also without Redis ----------------------------------------------------------

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


# -- an app that is restarted beside its sidecar and says nothing: the socket at its port tells ------------------------

CULL: Final[dict[str, Setting]] = {**AT_ONCE, "drain": "100ms"}


def _listening(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


@pytest.mark.redis
def test_culled_app_that_is_restarted_in_place_is_up_again_and_a_restarted_sidecar_knows_it(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    port = free_port()
    one = sidecar("one", app_port=port, redis_url=redis_server.url, **CULL)
    with closing(_listening(port)) as app:
        _see_cull(one, app)
        wait_for(lambda: "culled" in _events(one), timeout_s=60, what="the ledger has the cull")
        one.kill()
        one.start()
        assert [one.health()[0] for _ in range(20)] == [503] * 20, "the app is the one that it culled"
    assert [one.health()[0] for _ in range(20)] == [503] * 20, "it stays down while nobody listens"
    with closing(_listening(port)) as app:
        one.await_health(200)
        assert one.verdict()["evidence"]["errors"] == 0
        wait_for(lambda: "restarted" in _events(one), timeout_s=60, what="the ledger has the restart")
        _see_cull(one, app)
        one.kill()
    with closing(_listening(port)):
        one.start()
        one.await_health(200)


def _see_cull(one: Sidecar, app: socket.socket) -> None:
    """Wait until the app is culled, and its sidecar has saved the latch and the socket."""
    wait_for(lambda: one.metrics()["arbiter_app_listening"] == 1, timeout_s=60, what="the port is seen")
    one.post_error(5, kind="redis")
    one.await_health(503)
    state, socket_id = Path(str(one.settings["state_dir"])), str(os.fstat(app.fileno()).st_ino)
    wait_for(lambda: _has_saved(state, socket_id), timeout_s=60, what="the latch and the socket are saved")


def _has_saved(directory: Path, socket_id: str) -> bool:
    text = "".join(file.read_text() for file in directory.glob("*.json"))
    return '"latch": {' in text and socket_id in text


def _events(one: Sidecar) -> set[str]:
    """What the ledger of the service tells."""
    done = command(one, "events", "--json")
    assert done.code == 0, done
    return {json.loads(line)["what"] for line in done.out.splitlines()}
