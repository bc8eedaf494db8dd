"""An app that is restarted beside its sidecar and says nothing: the sidecar notices by the socket at its port."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.ports import free_port
from harness.sidecar import AT_ONCE, Setting, Sidecar, command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.process]

CULL: Final[dict[str, Setting]] = {**AT_ONCE, "drain": "100ms"}


def _listening(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _await_health(one: Sidecar, status: int) -> None:
    wait_for(lambda: one.health()[0] == status, timeout_s=60, what=f"health is {status}")


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("", id="by the kernel's table"),
        pytest.param("127.0.0.1:", id="by connecting", marks=pytest.mark.site),
    ],
)
def test_culled_app_that_is_restarted_in_place_is_up_again(
    sidecar: StartSidecar, redis_server: RedisServer, host: str
) -> None:
    port = free_port()
    with closing(_listening(port)):
        one = sidecar("one", app_port=f"{host}{port}", redis_url=redis_server.url, **CULL)
        one.post_error(5, kind="redis")
        _await_health(one, 503)
    assert [one.health()[0] for _ in range(20)] == [503] * 20, "it stays down while nobody listens"
    # By connecting a restart shows only if a connection was refused meanwhile.
    wait_for(lambda: _is_seen_to_be_away(one, host), timeout_s=60, what="a look finds nobody")
    with closing(_listening(port)):
        _await_health(one, 200)
        assert one.verdict()["evidence"]["errors"] == 0
        one.post_error(1, kind="redis")
        wait_for(lambda: one.verdict()["evidence"]["errors"] == 1, timeout_s=60, what="the new life is counted")
    wait_for(lambda: {"culled", "restarted"} <= _events(one), timeout_s=60, what="both are in the ledger")


@pytest.mark.parametrize(
    "named",
    ["never", *(pytest.param(when, marks=pytest.mark.site) for when in ("before the port is seen", "after its cull"))],
)
def test_restarted_sidecar_knows_the_app_that_it_culled(
    sidecar: StartSidecar, redis_server: RedisServer, named: str
) -> None:
    port = free_port()
    one = sidecar("one", app_port=port, redis_url=redis_server.url, **CULL)
    state = Path(str(one.settings["state_dir"]))
    if named == "before the port is seen":
        one.post_error(count=0, app_start="boot-1")
    with closing(_listening(port)) as app:
        wait_for(lambda: one.metrics()["arbiter_app_listening"] == 1, timeout_s=60, what="the port is seen")
        one.post_error(5)
        _await_health(one, 503)
        if named == "after its cull":
            one.post_error(count=0, app_start="boot-1")
        socket_id = str(os.fstat(app.fileno()).st_ino)
        wait_for(lambda: _has_saved(state, socket_id), timeout_s=60, what="the latch and the socket are saved")
        one.kill()
        one.start()
        assert [one.health()[0] for _ in range(20)] == [503] * 20
        one.kill()
    with closing(_listening(port)):
        one.start()
        _await_health(one, 200)


def _has_saved(directory: Path, socket_id: str) -> bool:
    text = "".join(file.read_text() for file in directory.glob("*.json"))
    return '"latch": {' in text and socket_id in text


def _is_seen_to_be_away(one: Sidecar, host: str) -> bool:
    return not host or one.metrics()["arbiter_app_listening"] == 0


def _events(one: Sidecar) -> set[str]:
    """What the ledger of the service tells."""
    done = command(one, "events", "--json")
    assert done.code == 0, done
    return {json.loads(line)["what"] for line in done.out.splitlines()}
