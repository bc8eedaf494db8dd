"""Health answers as the bytes of a whole HTTP response, written again when the answer or the second changes.

aiohttp would write the same bytes, which a test compares. aiohttp answers all other requests (with a query, or a header
that asks for more).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp.helpers import rfc822_formatted_time

from sidecar.net.request_head import RequestHead
from sidecar.net.web import SERVER
from sidecar.server.health import HealthAnswer

_METHODS: Final = frozenset({"GET", "HEAD"})


class _Variant(NamedTuple):
    path: str
    method: str
    minor: int
    keeps: bool


class HealthCache:
    """Answers plain requests. ``answers``: path -> the present answer to a user agent."""

    def __init__(self, answers: Mapping[str, Callable[[str], HealthAnswer]]) -> None:
        self._answers = answers
        self._written: dict[tuple[str, str, int, bool], tuple[HealthAnswer, str, bytes]] = {}

    def __call__(self, head: RequestHead) -> bytes | None:
        """The whole response; None if aiohttp has to answer."""
        answer_to = self._answers.get(head.target)
        if answer_to is None or head.method not in _METHODS:
            return None
        try:
            answer, date = answer_to(head.user_agent), rfc822_formatted_time()
        except Exception:  # noqa: BLE001 - aiohttp's handler raises the same and reports it
            return None
        key = (head.target, head.method, head.minor, head.keeps)
        known = self._written.get(key)
        if known is not None and known[0] is answer and known[1] == date:
            return known[2]
        content = _write(answer, date, _Variant(*key))
        self._written[key] = (answer, date, content)
        return content


def _write(answer: HealthAnswer, date: str, variant: _Variant) -> bytes:
    """The bytes of a response, in aiohttp's order."""
    lines = [f"HTTP/1.{variant.minor} {answer.status} {_phrase(answer.status)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {len(answer.body)}", f"Date: {date}", f"Server: {SERVER}"]
    if variant.keeps != bool(variant.minor):
        lines.append(f"Connection: {'keep-alive' if variant.keeps else 'close'}")
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if variant.method == "HEAD" else head + answer.body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
