"""Receivers of messages on loopback. They accept documented payloads and refuse all others.

Each is an aiohttp server in its own thread, for tests with and without an event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Self

from aiohttp import web

from sidecar.config import webhook_template

Check = Callable[[Any], list[str]]
"""A payload -> its problems, a sentence each."""

_SEVERITIES = {"critical", "error", "warning", "info"}
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
        return f"{self.base}{self._path}"

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

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
    wrong = []
    if request.method != "POST":
        wrong.append(f"the method is {request.method}")
    if request.content_type != "application/json":
        wrong.append(f"the content type is {request.content_type}")
    if request.path_qs != path:
        wrong.append(f"the path is {request.path_qs}")
    return wrong


def _unlike(value: object, kind: type, most: int, what: str) -> list[str]:
    if not isinstance(value, kind) or not value:
        return [f"{what} is missing or no {kind.__name__}: {value!r}"]
    if isinstance(value, (str, list)) and len(value) > most:
        return [f"{what} is longer than {most}: {len(value)}"]
    return []


def _untimely(value: object, what: str) -> list[str]:
    try:
        is_good = datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        is_good = False
    return [] if is_good else [f"{what} is no RFC 3339 time: {value!r}"]


# -- the documented payloads ----------------------------------------------------------------------------------------


def check_pagerduty(event: Any) -> list[str]:
    """Events API v2, "Send an Alert Event"."""
    known = {"routing_key", "event_action", "dedup_key", "payload", "images", "links", "client", "client_url"}
    wrong = [f"unknown field {name}" for name in event.keys() - known]
    if len(event.get("routing_key", "")) != 32:
        wrong.append("Length of 'routing_key' is incorrect (should be 32 characters)")
    wrong += _unlike(event.get("dedup_key"), str, 255, "dedup_key")
    if event.get("event_action") == "resolve":
        return wrong
    if event.get("event_action") != "trigger":
        wrong.append(f"event_action is {event.get('event_action')!r}")
    payload = event.get("payload", {})
    fields = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}
    wrong += [f"unknown field payload.{name}" for name in payload.keys() - fields]
    wrong += _unlike(payload.get("summary"), str, 1024, "summary") + _unlike(payload.get("source"), str, 1024, "source")
    if payload.get("severity") not in _SEVERITIES:
        wrong.append(f"severity is {payload.get('severity')!r}")
    wrong += _untimely(payload["timestamp"], "timestamp") if "timestamp" in payload else []
    wrong += [f"a link without href: {link}" for link in event.get("links", []) if not link.get("href")]
    return wrong


def check_webhook(message: Any) -> list[str]:
    """The default of deploy/messages.md, which Slack, Mattermost and Teams take, or fields of a template beside it."""
    wrong = [f"unknown field {name}" for name in message.keys() - {*webhook_template.FIELDS}]
    text = message.get("text", "")
    wrong += _unlike(text, str, 40_000, "text")
    return [*wrong, *([f"not escaped: {text!r}"] if _BARE.search(text) else [])]


def webhook(path: str = "/hook?token=s3cret") -> Receiver:
    return Receiver(check_webhook, path)
