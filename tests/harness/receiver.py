"""A receiver of messages on loopback, which accepts what the page documents and refuses all others.

It is an aiohttp server in its own thread, for tests with and without an event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from typing import Any, Self

from aiohttp import web

from sidecar.config import syntax

Check = Callable[[Any], list[str]]
"""A payload -> its problems, a sentence each."""

_BARE = re.compile(r"&(?!amp;|lt;|gt;)|[<>]|@(?!\u200b)")


class Receiver:
    """Listens while the context lasts. ``accepted`` has the valid payloads, ``refused`` the problems of the others.

    ``answer`` is the status for a valid payload; ``tries`` counts all requests.
    """

    def __init__(self, check: Check, path: str, answer: int = 200) -> None:
        self._check = check
        self._path = path
        self.answer = answer
        self.headers: dict[str, str] = {}
        self.accepted: list[Any] = []
        self.refused: list[str] = []
        self.tries = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._path}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(60), "the receiver does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self._receive)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._up.set()
        await self._stop.wait()
        await runner.cleanup()
        await _end_all()

    async def _receive(self, request: web.Request) -> web.Response:
        self.tries += 1
        wrong = _wrong_request(request, self._path)
        try:
            payload = json.loads(await request.text())
        except ValueError as error:
            wrong.append(f"no JSON: {error}")
        else:
            wrong += self._check(payload)
        if wrong:
            self.refused += wrong
            return web.Response(status=400, text="; ".join(wrong))
        if self.answer < 300:
            self.accepted.append(payload)
        return web.Response(status=self.answer, headers=self.headers)


async def _end_all() -> None:
    """Cancel every task of this loop; a pending one would warn in a later test, when it is collected."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _wrong_request(request: web.Request, path: str) -> list[str]:
    said = (request.method, request.content_type, request.path_qs)
    return [] if said == ("POST", "application/json", path) else [f"the request is {said}"]


def check_webhook(message: Any) -> list[str]:
    """The default of deploy/messages.md, which Slack, Mattermost and Teams take, or fields of a template beside it."""
    wrong = [f"unknown field {name}" for name in message.keys() - {*syntax.TEMPLATE_FIELDS}]
    text = message.get("text", "")
    if not isinstance(text, str) or not 0 < len(text) <= 40_000:
        wrong.append(f"text is {text!r}")
    return [*wrong, *([f"not escaped: {text!r}"] if _BARE.search(text) else [])]


def webhook(path: str = "/hook?token=s3cret") -> Receiver:
    return Receiver(check_webhook, path)
