"""What the actions ask of Nomad's task API, and what its answers mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sidecar.actions.actuator import Action, ActionError, RefusedError, UnreadError
from sidecar.actions.nomad import MOST_SHOWN, nomad_action


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

    def action(self, name: str) -> Action:
        return nomad_action(name, "web", self.environ)


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


RESTART, STOP = "nomad-restart", "nomad-stop"


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
    begins = "Permission denied for ..."
    assert str(caught.value) == f"Nomad answered 403: {begins}{'x' * (MOST_SHOWN - len(begins))}"


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
