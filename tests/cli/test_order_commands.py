"""The orders of an operator beside sidecars and a real Redis, and what the other commands say of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.child import python_env
from harness.command import Done, command
from harness.sidecar_thread import SidecarThread
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import StartThread
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting

SECRET = "hunter2-hunter2-hunter2"  # not one: the string to look for
HOLD = ("hold", "--for", "1h", "--reason", "migration", "--author", "alice")
ASKS = "; a suspect asks again at its next check"


@pytest.fixture
def shared(start_thread: StartThread, redis_server: RedisServer) -> SidecarThread:
    sidecar = start_thread("a", redis_url=redis_server.url)
    wait_for(
        lambda: sidecar.request("local", "GET", "/why").json()["fleet"], timeout_s=60, what="the fleet has answered"
    )
    return sidecar


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


def test_author_is_the_login_name_and_the_instance_that_of_the_sidecar(shared: SidecarThread) -> None:
    hold = [sys.executable, "-m", "sidecar", "hold", "--for", "1h", "--reason", "größer 🚀", "--instance"]
    elsewhere = {**shared.environ(), "ARBITER_INSTANCE": "shell", "LOGNAME": "bob", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(hold, env=python_env(**elsewhere), capture_output=True, timeout=60, check=True)
    assert (done.stdout.decode(), done.stderr) == ("held: instance a by bob, 1h left: größer 🚀\n", b"")
    assert command(shared, *HOLD, "--instance", "a").err == ""


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
    assert command(shared, *HOLD, "--instance", "a").err.count("\n") == 1, "the fleet cannot be asked for its name"
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
    sidecar = start_thread()
    assert command(sidecar, *HOLD) == (0, "held: the service by alice, 1h left: migration\n", "")
    assert command(sidecar, *HOLD, "--instance", "b").code == 2
    assert command(sidecar, *HOLD, "--instance", "a").err == "", "there is no fleet that could know it"
    assert command(sidecar, "release") == (0, f"the service is released{ASKS}\n", "")


def test_wrong_token_is_refused_and_the_right_one_is_read_from_its_file(
    start_thread: StartThread, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run_dir / "right").write_text(f"{SECRET}\n")
    (run_dir / "wrong").write_text("another-word-than-that-one\n")
    sidecar = start_thread(token_file=run_dir / "right")
    for given in (str(run_dir / "wrong"), str(run_dir / "none"), ""):
        done = command(sidecar, *HOLD, ARBITER_TOKEN_FILE=given)
        assert (done.code, done.out) == (2, "")
        assert done.err.endswith(
            "(ARBITER_LOCAL_LISTEN) wants its token, or another one: "
            "name its file in ARBITER_TOKEN_FILE (or --token-file)\n"
        )
        assert SECRET not in done.err
        assert command(sidecar, "fleet", ARBITER_TOKEN_FILE=given).code == 0
    assert command(sidecar, *HOLD).code == 0
    assert command(sidecar, "release", "--token-file", str(run_dir / "right"), ARBITER_TOKEN_FILE="").code == 0
    assert SECRET not in caplog.text


def test_order_that_the_sidecar_refuses_is_one_line_and_exit_2(start_thread: StartThread) -> None:
    sidecar = start_thread()
    for flag, value, complaint in (
        ("--for", "soon", "for: is not a duration"),
        ("--for", "8000h", "for: takes 1s to 168h"),
        ("--reason", "a\nb", "reason: takes a line"),
        ("--author", "a" * 101, "author: takes a line"),
        ("--instance", "a b", "instance: takes 1 to 128"),
    ):
        done = command(sidecar, *HOLD, flag, value)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"health-arbiter: {complaint}")
        assert done.err.count("\n") == 1
    assert sidecar.request("local", "GET", "/fleet").json()["local_hold"] is None


# -- cull and revive, and what others see of it -------------------------------------------------------------------

ALICE = ("--author", "alice", "--reason", "stuck")


@pytest.fixture
def pair(start_thread: StartThread, redis_server: RedisServer) -> list[SidecarThread]:
    both = [start_thread(name, redis_url=redis_server.url, drain="0s") for name in ("n00", "n01")]
    wait_for(lambda: len(_members(both[0])) == 2, timeout_s=60, what="both are known")
    return both


def _members(sidecar: SidecarThread) -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = sidecar.request("local", "GET", "/fleet").json()["members"]
    return members


def _fleet(sidecar: SidecarThread) -> dict[str, Any]:
    fleet: dict[str, Any] = sidecar.request("local", "GET", "/fleet").json()["fleet"]
    return fleet


def _json(done: Done) -> Any:
    return json.loads(done.out)


def test_cull_by_hand_is_one_story_for_command_health_ledger_and_neighbour(pair: list[SidecarThread]) -> None:
    sidecar, other = pair
    done = command(sidecar, "cull", "--yes", *ALICE)
    assert done == (0, "granted: instance n00: token granted, 1 of 10 in use\n", "")
    wait_for(lambda: sidecar.health("/health/nomad")[0] == 503, timeout_s=60, what="it is down for Nomad")
    assert command(sidecar, "cull", "--yes").out.startswith("already: instance n00: it is down already")

    why = _json(command(sidecar, "why", "--json"))
    assert (why["state"], why["instance"]) == ("down", "n00")
    assert "a person ordered the cull" in command(sidecar, "why").out

    wait_for(lambda: "culled" in command(other, "why", "n00").out, timeout_s=60, what="the neighbour has read of it")
    printed = command(other, "why", "n00")
    assert printed.code == 0
    assert printed.out.splitlines()[1].split()[:3] == ["n00", "down", "manual"]
    assert "by alice" in printed.out
    assert "stuck (over TCP from 127.0.0.1)" in printed.out
    assert printed.out.endswith("This is what the sidecar of n01 knows; ask that of n00 for more.\n")
    several = command(other, "why", "n0")
    assert (several.code, several.err) == (1, "health-arbiter: 2 containers begin with n0: give the name of one\n")
    assert [line.split()[0] for line in several.out.splitlines()] == ["INSTANCE", "n00", "n01"]
    assert command(other, "why", "00").code == 1, "a name is given from its beginning on"

    revived = command(sidecar, "revive", *ALICE)
    assert revived == (0, "revived: instance n00: it is up again, with an empty window\n", "")
    assert sidecar.health("/health")[0] == 200
    again = command(sidecar, "revive")
    assert (again.code, again.out) == (1, "not down: instance n00: it is up: there is nothing to revive\n")

    def whats() -> list[str]:
        return [json.loads(line)["what"] for line in command(other, "events", "--json").out.splitlines()]

    wait_for(lambda: "revived" in whats(), timeout_s=60, what="the ledger has it all")
    assert [what for what in whats() if what in ("granted", "culled", "revived")] == ["granted", "culled", "revived"]
    assert _json(command(other, "report", "--json"))["service"] == "app"
    assert command(other, "report", "--html").out.startswith("<!")


def test_cull_by_hand_waits_for_no_outcome(start_thread: StartThread, redis_server: RedisServer) -> None:
    settings: dict[str, Setting] = {"redis_url": redis_server.url, "drain": "0s", "trial": "on"}
    both = [start_thread(name, **settings) for name in ("n00", "n01")]
    wait_for(lambda: len(_members(both[0])) == 2, timeout_s=60, what="both are known")
    for used, sidecar in enumerate(both, start=1):
        assert command(sidecar, "cull", "--yes").out.endswith(f"token granted, {used} of 10 in use\n")
    wait_for(lambda: _fleet(both[0])["down"] == 2, timeout_s=60, what="both are down")
    assert _fleet(both[0])["trials"] == []


def test_held_service_refuses_the_cull_and_without_a_terminal_it_needs_a_yes(pair: list[SidecarThread]) -> None:
    sidecar, _ = pair
    assert command(sidecar, "cull") == (
        2,
        "",
        "health-arbiter: cull asks first, and nobody is there to answer: give --yes\n",
    )
    command(sidecar, "hold", "--for", "1h", "--reason", "migration", "--author", "bob")
    done = command(sidecar, "cull", "--yes", "--json", *ALICE)
    refusal = _json(done)
    assert (done.code, refusal["outcome"], refusal["reason"]) == (1, "denied", "hold")
    assert "bob holds the service: migration" in refusal["sentence"]
    assert sidecar.verdict()["state"] == "up"


def test_answer_of_the_operator_decides(start_thread: StartThread) -> None:
    sidecar = start_thread(drain="0s")
    for typed, said in (("n\n", ""), ("", "health-arbiter: nothing was changed\n")):
        done = command(sidecar, "cull", *ALICE, typed=typed)
        assert (done.code, done.err.lstrip("\n")) == (1, said), typed
        assert "Cull app/a now? [y/N]: " in done.out
        assert sidecar.verdict()["state"] == "up"
    anonymous = {"LOGNAME": "root", "SUDO_USER": ""}
    asked = command(sidecar, "release", typed="ann\n", **anonymous)
    assert (asked.code, "Author of the order, so that others can ask: " in asked.err) == (0, True)
    assert command(sidecar, "cull", *ALICE, typed="y\n").code == 0
    wait_for(lambda: sidecar.verdict()["state"] == "down", timeout_s=60, what="it is culled")


def test_redis_away_is_a_no_that_says_so(pair: list[SidecarThread], redis_server: RedisServer) -> None:
    sidecar, _ = pair
    redis_server.kill()
    done = command(sidecar, "cull", "--yes", *ALICE)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("unknown: instance n00: Redis cannot be reached: without a clear answer")
    assert sidecar.verdict()["state"] == "up"
    other = command(sidecar, "why", "n01")
    assert (other.code, other.out) == (1, "")
    assert "nothing is known of n01 here; ask the sidecar beside it" in other.err
    assert command(sidecar, "why").code == 0
    assert command(sidecar, "events").code == 1
    assert "warn sidecar: it answers, but the store does not answer it: Redis" in command(sidecar, "doctor").out


def test_shadow_mode_would_cull(start_thread: StartThread) -> None:
    sidecar = start_thread(mode="shadow")
    done = command(sidecar, "cull", "--yes")
    assert (done.code, done.out) == (0, "would cull: instance a: granted, but shadow mode leaves the container up\n")
    assert sidecar.health()[0] == 200


def test_why_tells_the_whole_story_and_no_letter_moves_the_cursor(start_thread: StartThread) -> None:
    sidecar = start_thread(instance="a")
    sidecar.post_error(kind="redis", message="\x1b[2J gone\u202e")
    printed = command(sidecar, "why").out
    assert printed.startswith("up: ")
    assert "window now: 1 error in 60 s (redis 1), limit 5" in printed
    assert "gone" in printed
    assert all(letter.isprintable() or letter == "\n" for letter in printed)
    assert _json(command(sidecar, "why", "a", "--json"))["samples"][0]["count"] == 1
    unknown = command(sidecar, "why", "b\x1b[2J")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.endswith("health-arbiter: the fleet does not know this container: b?[2J\n")


def test_fleet_is_a_table_of_the_width_at_hand_and_json_has_all_that_is_known(
    pair: list[SidecarThread], redis_server: RedisServer
) -> None:
    for columns in ("40", "120"):
        done = command(pair[0], "fleet", COLUMNS=columns)
        assert (done.code, done.err) == (0, "")
        head, table = done.out.split("\n\n")
        assert head.startswith("app: 2 alive, 0 of them suspect, 0 down, 0 of 10 tokens in use, 10 left\n")
        names, *rows = table.splitlines()
        assert names.split()[:5] == ["INSTANCE", "STATE", "CAUSE", "SINCE", "HEARD"]
        assert ("VERSION" in names) == (columns == "120")
        assert [row.split()[:2] for row in rows] == [["n00", "up"], ["n01", "up"]]
        assert all(("0/5" in row and "100%" in row) == (columns == "120") for row in rows)
    assert command(pair[0], "fleet", "--all").out.splitlines()[-1].startswith("n01 ")
    seen = _json(command(pair[0], "fleet", "--json"))
    words = "service namespace instance mode budget budget_window beat_interval store fleet used grants members"
    assert {*words.split(), "departed", "holds", "local_hold", "settings", "own", "common"} <= {*seen}
    assert [json.loads(text)["capacity"] for text in seen["settings"]] == ["10"], "both have the same"
    told = "state since born incarnation weight errors limit version settings node app_version"
    assert {*seen["own"]} == {*told.split()}
    assert [set(member["about"]) for member in seen["members"]] == [set(seen["own"])] * 2
    keys: Any = redis_server.cli("KEYS", "*:alive")
    redis_server.cli("ZADD", keys[0], str(round(time.time() * 1e6)), "evil\x1b[2J[red]\u202e")
    done = command(pair[0], "fleet")
    assert "evil?[2J[red]?" in done.out
    assert all(letter.isprintable() or letter == "\n" for letter in done.out)
    members = _json(command(pair[0], "fleet", "--json"))["members"]
    assert "evil\x1b[2J[red]\u202e" in [member["instance"] for member in members]


def test_message_without_a_webhook_is_exit_2(run_dir: Path) -> None:
    sidecar = SidecarThread(run_dir)
    done = command(sidecar, "message")
    assert (done.code, done.out) == (2, "")
    assert "no webhook is set" in done.err
    away = command(sidecar, "message", "--json", ARBITER_WEBHOOK_URL="http://127.0.0.1:1/")
    assert away.code == 1
    assert _json(away) == {"outcome": "not sent: connection", "sent": False}
