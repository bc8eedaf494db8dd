"""The actions after the drain: when they run, how they end, and what they ask of Nomad and of the system."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from harness.waiting import eventually
from sidecar.actions.actuator import STOPPED, ActionError, ActionResult, Actuator, RefusedError, UnreadError
from sidecar.actions.asked_file import ActionProgress, AskedFile
from sidecar.actions.nomad import missing
from sidecar.actions.program import CommandAction
from sidecar.app.build_action import action
from sidecar.config.settings import ActionConfig
from sidecar.core.life.container import Container
from sidecar.core.life.events import Moved
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Latch, State

Act = Callable[[], Awaitable[str]]
UP = Container(State.UP, 0.0, "app/a")
FACTS = {"ARBITER_SERVICE": "app", "ARBITER_INSTANCE": "web-1"}


def _record(before: State, after: State) -> Record:
    events = (Moved(was=before, state=after),) if after is not before else ()
    return Record(events, Container(after, 0.0, "app/a"), Evidence(60, 0))


@asynccontextmanager
async def _running(
    act: Act, found: Container = UP, asked: AskedFile | None = None, *, timeout_s: float = 60
) -> AsyncIterator[tuple[Actuator, list[ActionResult]]]:
    results: list[ActionResult] = []
    actuator = Actuator(
        "command",
        act,
        timeout_s=timeout_s,
        wall=lambda: 1000.0,
        on_result=results.append,
        asked=asked,
        found_down_s=0.0,
    )
    running = asyncio.create_task(actuator.run(lambda: found))
    yield actuator, results
    running.cancel()


async def test_action_begins_when_the_container_goes_down_and_once() -> None:
    calls: list[int] = []

    async def act() -> str:
        calls.append(1)
        return "restarted"

    async with _running(act) as (actuator, results):
        actuator.notice(_record(State.UP, State.SUSPECT))
        actuator.notice(_record(State.SUSPECT, State.DRAINING))
        await asyncio.sleep(0)
        assert calls == []
        actuator.notice(_record(State.DRAINING, State.DOWN))
        for _ in range(5):
            actuator.notice(_record(State.DOWN, State.DOWN))
        await eventually(lambda: results, timeout_s=60, what="the action ends")
        assert results == [ActionResult("command", 1000.0, results[0].took_s, "restarted", failed=False)]
        assert actuator.last == results[0]
        actuator.notice(_record(State.DOWN, State.STARTING))
        actuator.notice(_record(State.SUSPECT, State.DOWN))
        await eventually(lambda: len(results) == 2, timeout_s=60, what="the next cull is carried out too")
        assert len(calls) == 2


async def test_sidecar_that_finds_its_container_down_asks_if_no_sidecar_has(tmp_path: Path) -> None:
    down = Container(State.DOWN, 0.0, "app/a", latch=Latch("claim", 1.0, "reason"))
    up = Container(State.UP, 0.0, "app/a")
    asked = AskedFile(tmp_path / "asked")

    async def act() -> str:
        return "done"

    async with _running(act, down, asked) as (_, results):
        await eventually(lambda: results, timeout_s=60, what="the action ends")
    for found, file in ((down, asked), (up, AskedFile(tmp_path / "none")), (down, None), (down, AskedFile(tmp_path))):
        async with _running(act, found, file) as (actuator, results):
            waiters: Any = actuator._wanted
            await eventually(lambda waiters=waiters: waiters._waiters, timeout_s=60, what="it waits for a cull")  # type: ignore[misc]
            assert results == []


@pytest.mark.parametrize(
    ("name", "unset", "files", "told"),
    [
        ("nomad-stop", (), ("api.sock", "nomad_token"), []),
        ("nomad-restart", ("NOMAD_ALLOC_ID",), ("api.sock", "nomad_token"), ["NOMAD_ALLOC_ID not set"]),
        ("nomad-stop", (), ("nomad_token",), ["the task API is missing"]),
        ("nomad-stop", (), ("api.sock",), ["write identity { file = true }"]),
        ("exit", (), (), ["Nomad restarts the sidecar alone"]),
        ("exit", ("NOMAD_ALLOC_ID",), (), []),
        ("command", (), (), []),
    ],
)
async def test_action_that_could_not_be_carried_out_is_told_before_the_first_cull(
    name: str, unset: tuple[str, ...], files: tuple[str, ...], told: list[str], tmp_path: Path
) -> None:
    for file in files:
        (tmp_path / file).touch()
    environ = {"NOMAD_SECRETS_DIR": str(tmp_path), "NOMAD_ALLOC_ID": "alloc-1"}
    environ = {key: value for key, value in environ.items() if key not in unset}
    found: list[str] = []
    look = partial(missing, name, environ)
    actuator = Actuator(
        name, _hang, timeout_s=60, wall=lambda: 0.0, on_result=lambda _: None, missing=look, on_missing=found.append
    )
    running = asyncio.create_task(actuator.run(lambda: UP))
    waiters: Any = actuator._wanted
    await eventually(lambda: waiters._waiters, timeout_s=60, what="it waits for a cull")
    running.cancel()
    assert list(actuator.missing) == found
    assert [any(part in each for each in found) for part in told] == [True] * len(found)


async def test_action_during_which_the_sidecar_ended_has_failed_and_is_told_once(tmp_path: Path) -> None:
    down = Container(State.DOWN, 0.0, "app/a", latch=Latch("claim", 1.0, "reason"))
    asked = AskedFile(tmp_path / "asked")
    begun = asyncio.Event()

    async def act() -> str:
        begun.set()
        return await _hang()

    async with _running(act, down, asked) as (_, results):
        await asyncio.wait_for(begun.wait(), 60)
    assert results == []
    async with _running(act, down, asked) as (_, results):
        await eventually(lambda: results, timeout_s=60, what="the next sidecar tells of it")
        assert results == [ActionResult("command", 1000.0, 0.0, STOPPED, failed=True)]
        await eventually(
            lambda: down.latch is not None and asked.read(down.latch) is ActionProgress.WITH_RESULT,
            timeout_s=60,
            what="it is written down",
        )
    async with _running(act, down, asked) as (actuator, results):
        waiters: Any = actuator._wanted
        await eventually(lambda: waiters._waiters, timeout_s=60, what="it waits for a cull")
        assert results == []


@pytest.mark.parametrize("content", ["", "claim 1.0", "x" * 100_000])
def test_file_that_is_not_about_this_latch_says_that_nobody_asked(content: str, tmp_path: Path) -> None:
    (tmp_path / "asked").write_text(content)
    assert AskedFile(tmp_path / "asked").read(Latch("claim", 1.0, "reason")) is ActionProgress.NOT_ASKED


@pytest.mark.parametrize("progress", list(ActionProgress)[2:], ids=lambda progress: progress.name)
def test_result_that_was_cut_off_leaves_no_doubt_that_the_action_was_asked(
    progress: ActionProgress, tmp_path: Path
) -> None:
    latch, asked = Latch("claim", 1.0, "reason"), AskedFile(tmp_path / "asked")
    asked.note(latch, ActionProgress.WITHOUT_RESULT)
    written = (tmp_path / "asked").read_text()
    asked.note(latch, progress)
    whole = (tmp_path / "asked").read_text()
    assert asked.read(latch) is progress
    for end in range(len(written), len(whole)):  # also an empty file between the two would be a cut
        (tmp_path / "asked").write_text(whole[:end])
        assert asked.read(latch) is ActionProgress.WITHOUT_RESULT, whole[:end]
    assert whole.startswith(written)


async def test_container_that_is_down_is_asked_for_once_and_not_when_it_restarts() -> None:
    async def act() -> str:
        raise AssertionError

    async with _running(act) as (actuator, results):
        actuator.notice(_record(State.DOWN, State.DOWN))
        actuator.notice(_record(State.SUSPECT, State.DOWN))
        actuator.notice(_record(State.DOWN, State.STARTING))  # the app restarts before the action begins
        for _ in range(5):
            await asyncio.sleep(0)
        assert results == []


async def _hang() -> str:
    await asyncio.Event().wait()
    return ""


async def _refuse() -> str:
    raise ActionError("no such task")


async def _break() -> str:
    raise KeyError("hunter2")


@pytest.mark.parametrize(
    ("act", "timeout_s", "sentence"),
    [(_hang, 0.01, "no end after 0.01 s"), (_refuse, 60, "no such task"), (_break, 60, "KeyError in the sidecar")],
    ids=["hangs", "refused", "breaks"],
)
async def test_action_that_fails_says_why_and_the_next_is_carried_out(
    act: Act, timeout_s: float, sentence: str
) -> None:
    async with _running(act, timeout_s=timeout_s) as (actuator, results):
        for number in (1, 2):
            actuator.notice(_record(State.DRAINING, State.DOWN))
            await eventually(lambda number=number: len(results) == number, timeout_s=60, what="the action ends")  # type: ignore[misc]
        assert [(each.sentence, each.failed) for each in results] == [(sentence, True)] * 2


# -- exit and command -------------------------------------------------------------------------------------------------


async def test_exit_leaves() -> None:
    left: list[bool] = []
    act = action(ActionConfig("exit"), lambda: left.append(True), environ={}, facts=FACTS)
    assert await act() == "the sidecar leaves"
    assert left == [True]


def _command(text: str, limit_s: float = 60.0) -> Act:
    return CommandAction(shlex.split(text), limit_s, FACTS)


async def test_command_runs_without_a_shell_and_with_the_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARBITER_REDIS_URL", "redis://:hunter2@host")
    script = tmp_path / "restart app"
    script.write_text('#!/bin/sh\nenv; echo "<$1>"\n')
    script.chmod(0o700)
    text = await _command(f"'{script}' '$HOME; true'")()
    assert text.startswith("the command ended with exit code 0")
    assert "<$HOME; true>" in text
    assert "ARBITER_INSTANCE=web-1" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("text", "limit_s", "reason"),
    [
        ("/no/such/program", 60, "the command could not be run"),
        ("sh -c 'echo unit not found; exit 5'", 60, "the command ended with exit code 5"),
        ("sleep 60", 0.2, "the command was ended, its time was up"),
    ],
    ids=["missing", "fails", "hangs"],
)
async def test_command_that_fails_is_an_error_with_its_output(text: str, limit_s: float, reason: str) -> None:
    with pytest.raises(ActionError) as caught:
        await _command(text, limit_s)()
    assert str(caught.value).startswith(reason)
    assert ("unit not found" in str(caught.value)) == ("exit 5" in text)


# -- Nomad ------------------------------------------------------------------------------------------------------------


class TaskApiStandIn:
    """A task API at a unix socket, which answers what the test wants and keeps what it was asked."""

    def __init__(self, secrets: Path) -> None:
        self.secrets = secrets
        self.asked: list[tuple[str, str, str, Any]] = []
        self.status = 200
        self.body = "{}"
        self.headers: dict[str, str] = {}
        (secrets / "nomad_token").write_text("hunter2-token\n")
        self.environ = {"NOMAD_SECRETS_DIR": str(secrets), "NOMAD_ALLOC_ID": "1234-5678"}

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        token = request.headers["X-Nomad-Token"]
        self.asked.append((request.method, request.path_qs, token, json.loads(text) if text else None))
        return web.Response(status=self.status, text=self.body, headers=self.headers)

    def action(self, config: ActionConfig) -> Act:
        return action(config, lambda: None, environ=self.environ, facts=FACTS)


@pytest.fixture
async def nomad(run_dir: Path) -> AsyncIterator[TaskApiStandIn]:
    stand_in = TaskApiStandIn(run_dir)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stand_in.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(run_dir / "api.sock")).start()
    yield stand_in
    await runner.cleanup()


RESTART = ActionConfig("nomad-restart", nomad_task="web")
STOP = ActionConfig("nomad-stop")


async def test_nomad_restarts_the_task_of_this_allocation(nomad: TaskApiStandIn) -> None:
    assert await nomad.action(RESTART)() == "Nomad restarts the task web"
    assert nomad.asked == [
        ("POST", "/v1/client/allocation/1234-5678/restart", "hunter2-token", {"TaskName": "web"}),
    ]


async def test_nomad_stops_this_allocation_with_a_token_that_was_renewed(nomad: TaskApiStandIn) -> None:
    act = nomad.action(STOP)
    (nomad.secrets / "nomad_token").write_text("renewed")
    assert await act() == "Nomad stops the allocation and replaces it"
    assert nomad.asked == [("POST", "/v1/allocation/1234-5678/stop?no_shutdown_delay=true", "renewed", None)]


async def test_token_does_not_follow_a_redirect(nomad: TaskApiStandIn) -> None:
    nomad.status, nomad.headers = 307, {"Location": "/v1/elsewhere"}
    with pytest.raises(ActionError, match="Nomad answered 307"):
        await nomad.action(STOP)()
    assert len(nomad.asked) == 1


async def test_refusal_of_nomad_is_shown_on_one_line_without_the_token(nomad: TaskApiStandIn) -> None:
    nomad.status, nomad.body = 403, "Permission denied\nfor hunter2-token" + "x" * 100_000
    with pytest.raises(ActionError) as caught:
        await nomad.action(STOP)()
    text = str(caught.value)
    assert text.startswith("Nomad answered 403: Permission denied for ...xxx")
    assert len(text) < 300
    assert "hunter2" not in text


@pytest.mark.parametrize("gone", ["api.sock", "nomad_token"])
async def test_missing_file_of_nomad_is_named(nomad: TaskApiStandIn, gone: str) -> None:
    (nomad.secrets / gone).unlink()
    with pytest.raises(UnreadError, match=gone):
        await nomad.action(RESTART)()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, "Server error authenticating request\n", UnreadError),
        (401, "Unauthorized", RefusedError),
        (403, "Permission denied", RefusedError),
        (404, 'Unknown allocation "1234-5678"', RefusedError),
        (429, "Too Many Requests", RefusedError),
        (400, "Task not running", ActionError),
        (408, "Request Timeout", ActionError),
        (500, "rpc error: EOF", ActionError),
        (500, "No cluster leader", ActionError),
        (202, "accepted", ActionError),
    ],
)
async def test_answer_of_nomad_says_whether_the_action_was_surely_not_carried_out(
    nomad: TaskApiStandIn, status: int, body: str, error: type[ActionError]
) -> None:
    nomad.status, nomad.body = status, body
    with pytest.raises(ActionError, match=" ".join(body.split())) as caught:
        await nomad.action(RESTART)()
    assert type(caught.value) is error
    assert len(nomad.asked) == 1


async def test_connection_that_breaks_after_the_request_leaves_doubt(run_dir: Path) -> None:
    stand_in = TaskApiStandIn(run_dir)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(hang_up, run_dir / "api.sock"):
        with pytest.raises(ActionError, match="cannot be asked") as caught:
            await stand_in.action(STOP)()
    assert type(caught.value) is ActionError


async def test_outside_of_nomad_the_action_fails_with_a_reason() -> None:
    act = action(STOP, lambda: None, environ={"NOMAD_ALLOC_ID": "1"}, facts=FACTS)
    with pytest.raises(ActionError, match="NOMAD_SECRETS_DIR not set: this is no allocation of Nomad"):
        await act()
