"""The reply when the shared store gives no clear answer, and the wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, TypeVar

from sidecar.core.claims import Unknown
from sidecar.core.explain import reasons

T = TypeVar("T")

ALONE: Final = "alone"
"""The error word when no shared store is configured: then nothing is missing."""


async def within(limit_s: float, call: Awaitable[T | Unknown]) -> T | Unknown:
    """The result of ``call``, or ``Unknown("timeout")`` after ``limit_s``."""
    try:
        async with asyncio.timeout(limit_s):
            return await call
    except TimeoutError:
        return Unknown("timeout")


def fields(answer: object) -> dict[str, str]:
    """The error word and its sentence as JSON fields; none for a clear answer."""
    return {"error": answer.error, "sentence": reasons.unreachable(answer)} if isinstance(answer, Unknown) else {}


def status(unknown: Unknown) -> HTTPStatus:
    """The status of a response that needs the store."""
    return HTTPStatus.GATEWAY_TIMEOUT if unknown.error == "timeout" else HTTPStatus.BAD_GATEWAY
