"""Health answers as the bytes that leave, made ready when what they say changes.

They are the same that aiohttp would write, without aiohttp: a test compares both. What is not answered here (a query, a
header that asks for more) is answered there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp.helpers import rfc822_formatted_time

from sidecar.net.heads import Head
from sidecar.net.listener import SERVER
from sidecar.server.health import Said

_METHODS: Final = frozenset({"GET", "HEAD"})

Sayer = Callable[[str], Said]
"""What there is to say now, to a client of this user agent."""


class _Form(NamedTuple):
    path: str
    method: str
    minor: int
    keeps: bool


class ReadyAnswers:
    """Answers plain requests for what ``sayers`` say, by path."""

    def __init__(self, sayers: Mapping[str, Sayer]) -> None:
        self._sayers = sayers
        self._written: dict[_Form, tuple[Said, str, bytes]] = {}

    def __call__(self, head: Head) -> bytes | None:
        """The whole answer; None if there is none here."""
        say = self._sayers.get(head.target)
        if say is None or head.method not in _METHODS:
            return None
        try:
            said, date = say(head.user_agent), rfc822_formatted_time()
        except Exception:  # noqa: BLE001 - the same will happen behind aiohttp, and is told there
            return None
        form = _Form(head.target, head.method, head.minor, head.keeps)
        known = self._written.get(form)
        if known is not None and known[0] is said and known[1] == date:
            return known[2]
        content = written(said, date, form)
        self._written[form] = (said, date, content)
        return content


def written(said: Said, date: str, form: _Form) -> bytes:
    """The bytes of an answer, as aiohttp has them."""
    lines = [f"HTTP/1.{form.minor} {said.status} {_phrase(said.status)}"]
    lines += [f"{name}: {value}" for name, value in said.headers.items()]
    lines += [f"Content-Length: {len(said.body)}", f"Date: {date}", f"Server: {SERVER}"]
    if form.keeps != bool(form.minor):
        lines.append(f"Connection: {'keep-alive' if form.keeps else 'close'}")
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if form.method == "HEAD" else head + said.body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
