"""A person waits for the bucket, but not for ever; and what they are told when it gives no clear answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from sidecar.core.explain import reasons
from sidecar.core.types import Unknown

T = TypeVar("T")

ALONE: Final = "alone"
"""The word for a bucket that is this process's own: nothing is missing then, there just is nobody else."""


async def within(limit_s: float, call: Awaitable[T | Unknown]) -> T | Unknown:
    """What the call gives, or that it took longer than ``limit_s``."""
    try:
        async with asyncio.timeout(limit_s):
            return await call
    except TimeoutError:
        return Unknown("timeout")


def told(unknown: Unknown) -> dict[str, str]:
    """The machine's word, and the sentence."""
    return {"error": unknown.error, "sentence": sentence(unknown)}


def sentence(unknown: Unknown) -> str:
    """Why there is no clear answer."""
    return reasons.UNKNOWN.get(unknown.error, unknown.error)
