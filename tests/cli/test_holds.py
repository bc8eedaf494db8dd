"""``hold`` and ``release`` beside a real sidecar: what they print, and how they end."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import command as process
from harness.sidecar_thread import command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import StartThread
    from harness.redis_server import RedisServer
    from harness.sidecar_thread import SidecarThread

SECRET = "hunter2-hunter2-hunter2"  # not one: the string to look for
HOLD = ("hold", "--for", "1h", "--reason", "migration", "--author", "alice")
ASKS = "; a suspect asks again within 1m 6s"


@pytest.fixture
def shared(start_thread: StartThread, redis_server: RedisServer) -> SidecarThread:
    one = start_thread("a", redis_url=redis_server.url)
    wait_for(lambda: one.request("local", "GET", "/fleet").json()["members"], timeout_s=60, what="the sidecar is known")
    return one


def test_hold_is_shown_by_fleet_until_it_is_released(shared: SidecarThread) -> None:
    assert command(shared, *HOLD) == (0, "held: the service by alice, 1h left: migration\n", "")
    assert command(shared, *HOLD, "--instance", "b") == (
        0,
        "held: instance b by alice, 1h left: migration\n",
        "health-arbiter: the fleet does not know this container: b\n",
    )
    assert command(shared, *HOLD, "--instance") == (0, "held: instance a by alice, 1h left: migration\n", "")
    shown = command(shared, "fleet")
    assert (shown.code, shown.err) == (0, "")
    assert [line for line in shown.out.splitlines() if line.startswith("hold")] == [
        "hold    the service by alice, 1h left: migration",
        "hold    instance a by alice, 1h left: migration",
        "hold    instance b by alice, 1h left: migration",
    ]
    assert command(shared, "release") == (0, f"the service is released{ASKS}\n", "")
    assert command(shared, "release", "--instance=b") == (0, f"instance b is released{ASKS}\n", "")
    assert command(shared, "release", "--instance") == (0, f"instance a is released{ASKS}\n", "")
    assert command(shared, "release") == (0, f"the service was not held{ASKS}\n", "")
    assert command(shared, "release", "--instance=b") == (0, "instance b was not held\n", "")
    held = json.loads(command(shared, *HOLD, "--json").out)
    assert (held["stored"], held["hold"]["author"], held["hold"]["reason"]) == (True, "alice", "migration")
    released = json.loads(command(shared, "release", "--json").out)
    assert released == {"released": True, "scope": "service", "instance": ""}
    assert json.loads(command(shared, "fleet", "--json").out)["holds"] == []


@pytest.mark.parametrize("order", ["hold --for 1h --reason migration", "release", "cull --yes", "revive"])
def test_order_needs_an_author_whom_others_can_ask(shared: SidecarThread, order: str) -> None:
    refused = command(shared, *order.split(), LOGNAME="root", SUDO_USER="")
    assert (refused.code, refused.out) == (2, "")
    assert "--author: is missing" in refused.err


def test_author_is_the_person_behind_sudo(shared: SidecarThread) -> None:
    order = ("hold", "--for", "1h", "--reason", "migration")
    assert " by anna, " in command(shared, *order, LOGNAME="root", SUDO_USER="anna").out


def test_author_is_the_login_name_and_the_instance_that_of_the_sidecar_unless_they_are_given(
    shared: SidecarThread,
) -> None:
    for encoding in ("utf-8", "ascii"):
        settings = {"PYTHONIOENCODING": encoding, "LOGNAME": "bob"}
        done = process(shared, "hold", "--for", "1h", "--reason", "größer 🚀", **settings)
        assert done == (0, "held: the service by bob, 1h left: größer 🚀\n", "")
    assert command(shared, *HOLD, "--instance", "a").err == ""
    elsewhere = {"ARBITER_INSTANCE": "shell"}
    assert command(shared, *HOLD, "--instance", **elsewhere).out.startswith("held: instance a by alice")
    assert command(shared, "release", "--instance", **elsewhere) == (0, f"instance a is released{ASKS}\n", "")


def test_without_redis_a_hold_is_of_this_container_alone(shared: SidecarThread, redis_server: RedisServer) -> None:
    redis_server.kill()
    away = f"health-arbiter: Redis cannot be reached ({redis_server.url}: Connection refused)"
    held = command(shared, *HOLD)
    assert (held.code, held.out) == (1, "held here: the service by alice, 1h left: migration\n")
    assert held.err.startswith(f"{away}: this container alone is held")
    shown = command(shared, "fleet")
    assert shown.code == 1
    assert "hold    the service by alice, 1h left: migration (known to this sidecar only)" in shown.out.splitlines()
    assert re.fullmatch(rf"{re.escape(away)}: this is what the sidecar heard last, \d+s ago\n", shown.err)
    assert shown.out.startswith("app: 1 alive, ")
    assert command(shared, *HOLD, "--instance", "b") == (1, "", f"{away}: whether instance b is held is not known\n")
    assert command(shared, "release") == (
        1,
        "the service is released here\n",
        f"{away}: a hold in the shared store may go on\n",
    )
    assert command(shared, "release", "--instance", "b") == (
        1,
        "",
        f"{away}: whether instance b is still held is not known\n",
    )


def test_store_in_memory_makes_this_sidecar_the_whole_service(start_thread: StartThread) -> None:
    one = start_thread()
    assert command(one, *HOLD) == (0, "held: the service by alice, 1h left: migration\n", "")
    assert command(one, *HOLD, "--instance", "b").code == 2
    assert command(one, "release") == (0, f"the service is released{ASKS}\n", "")


def test_wrong_token_is_refused_and_the_right_one_is_read_from_its_file(
    start_thread: StartThread, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run_dir / "right").write_text(f"{SECRET}\n")
    (run_dir / "wrong").write_text("another-word-than-that-one\n")
    one = start_thread(token_file=run_dir / "right")
    for given in (str(run_dir / "wrong"), str(run_dir / "none"), ""):
        done = command(one, *HOLD, ARBITER_TOKEN_FILE=given)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("health-arbiter: Authorization: ")
        assert SECRET not in done.err
        assert command(one, "fleet", ARBITER_TOKEN_FILE=given).code == 0
    assert command(one, *HOLD).code == 0
    assert command(one, "release", "--token-file", str(run_dir / "right"), ARBITER_TOKEN_FILE="").code == 0
    assert SECRET not in caplog.text


def test_order_that_the_sidecar_refuses_is_one_line_and_exit_2(start_thread: StartThread) -> None:
    one = start_thread()
    for flag, value, complaint in (
        ("--for", "soon", "for: is not a duration"),
        ("--for", "8000h", "for: takes 1s to 168h"),
        ("--reason", "a\nb", "reason: takes a line"),
        ("--author", "a" * 101, "author: takes a line"),
        ("--instance", "a b", "instance: takes 1 to 128"),
    ):
        done = command(one, *HOLD, flag, value)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"health-arbiter: {complaint}")
        assert done.err.count("\n") == 1
    assert one.request("local", "GET", "/fleet").json()["local_hold"] is None
