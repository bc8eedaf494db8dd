"""Receivers of messages on loopback. They accept documented payloads and refuse all others.

Each is an aiohttp server in its own thread, for tests with and without an event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from aiohttp import web

Check = Callable[[Any], list[str]]
"""A payload -> its problems, a sentence each."""

ROUTING_KEY = "0123456789abcdef0123456789abcdef"
_SEVERITIES = {"critical", "error", "warning", "info"}
_BARE = re.compile(r"&(?!amp;|lt;|gt;)|<(?!https?://[^|>]+\|[^>]+>)|(?<!\w)>")


class Receiver:
    """Listens while the context lasts. ``accepted`` has the valid payloads, ``refused`` the problems of the others.

    ``answer`` is the status for a valid payload, after ``delay_s`` seconds; ``tries`` counts all requests.
    """

    def __init__(self, check: Check, path: str, answer: int = 200) -> None:
        self._check = check
        self._path = path
        self.answer = answer
        self.delay_s = 0.0
        self.headers: dict[str, str] = {}
        self.accepted: list[Any] = []
        self.refused: list[str] = []
        self.tries = 0
        self.port = 0
        self._tls: ssl.SSLContext | None = None
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    @property
    def url(self) -> str:
        return f"{self.base}{self._path}"

    @property
    def base(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def over_tls(self, cert: Path, key: Path) -> Self:
        """Use https."""
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(cert, key)
        return self

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
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
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
        await asyncio.sleep(self.delay_s)
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


def check_slack(message: Any) -> list[str]:
    """Incoming webhooks and Block Kit."""
    wrong = [f"unknown field {name}" for name in message.keys() - {"text", "blocks"}]
    wrong += _unlike(message.get("text"), str, 40_000, "text") + _unlike(message.get("blocks"), list, 50, "blocks")
    texts = [message.get("text", "")]
    for block in message.get("blocks", []):
        wrong += _wrong_block(block)
        texts += [text["text"] for text in _texts(block) if text["type"] == "mrkdwn"]
    return wrong + [f"not escaped: {text!r}" for text in texts if _BARE.search(text)]


def _texts(block: Any) -> list[Any]:
    return [*([block["text"]] if "text" in block else []), *block.get("fields", []), *block.get("elements", [])]


def _wrong_block(block: Any) -> list[str]:
    most = {"header": 150, "section": 3000, "context": 3000}.get(block.get("type"))
    if most is None:
        return [f"unknown block {block.get('type')!r}"]
    wrong = _unlike(block["fields"], list, 10, "fields") if "fields" in block else []
    wrong += _unlike(block["elements"], list, 10, "elements") if "elements" in block else []
    if block["type"] == "header" and block["text"]["type"] != "plain_text":
        wrong.append("a header takes plain_text")
    for text in _texts(block):
        wrong += _unlike(text.get("text"), str, 2000 if text in block.get("fields", []) else most, block["type"])
    return wrong if _texts(block) else [*wrong, f"a {block['type']} without text"]


def check_alertmanager(alerts: Any) -> list[str]:
    """API v2, ``postAlerts``: an array of alerts."""
    if not isinstance(alerts, list) or not alerts:
        return [f"no array of alerts: {alerts!r}"]
    wrong = []
    for alert in alerts:
        known = {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
        wrong += [f"unknown field {name}" for name in alert.keys() - known]
        wrong += _unlike(alert.get("labels", {}).get("alertname"), str, 1000, "alertname")
        pairs = [*alert.get("labels", {}).items(), *alert.get("annotations", {}).items()]
        wrong += [f"label {name!r}: {value!r}" for name, value in pairs if not _is_label(name, value)]
        wrong += _untimely(alert.get("startsAt"), "startsAt") + _untimely(alert.get("endsAt"), "endsAt")
    return wrong


def _is_label(name: str, value: object) -> bool:
    return bool(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)) and isinstance(value, str) and bool(value)


def check_webhook(message: Any) -> list[str]:
    """The webhook of deploy/messages.md."""
    fields = {"status", "severity", "topic", "word", "sentence", "service", "namespace", "instance", "sender", "mode"}
    fields |= {"began", "at", "key", "runbook", "page", "facts"}
    wrong = [f"unknown or missing field {name}" for name in message.keys() ^ fields]
    if message.get("status") not in {"firing", "recovered"} or message.get("severity") not in _SEVERITIES:
        wrong.append(f"status {message.get('status')!r}, severity {message.get('severity')!r}")
    began = message.get("began")
    return wrong + (_untimely(began, "began") if began else []) + _untimely(message.get("at"), "at")


def webhook(path: str = "/hook?token=s3cret") -> Receiver:
    return Receiver(check_webhook, path)


def slack(path: str = "/services/T0/B0/s3cret") -> Receiver:
    return Receiver(check_slack, path)


def pagerduty() -> Receiver:
    return Receiver(check_pagerduty, "/v2/enqueue", 202)


def alertmanager() -> Receiver:
    return Receiver(check_alertmanager, "/api/v2/alerts")
