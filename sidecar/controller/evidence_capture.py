"""What is known of the errors of this life, and what is kept of them when it is put down."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from sidecar.core.explain.samples import MESSAGE_LIMIT, ErrorSample, Kept, Samples
from sidecar.core.types import Claim

Hook = Callable[[Claim, str], Awaitable[str]]
"""Looks at the container before a cull for which it is told the reason: what it saw, within a bounded time."""


class Inquest:
    """The samples of the app's life, and those of the last cull with what the ``hook`` saw then.

    ``clock`` gives monotonic seconds, ``wall`` Unix seconds; ``on_failure`` is told when the hook failed.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        wall: Callable[[], float],
        on_failure: Callable[[Exception], None],
        hook: Hook | None = None,
    ) -> None:
        self.samples = Samples()
        self.kept: Kept | None = None
        self._clock = clock
        self._wall = wall
        self._on_failure = on_failure
        self._hook = hook

    def evidence(self) -> str | None:
        """What is kept of the last cull, redacted and in lines: what the app said last, and what the hook saw."""
        if self.kept is None:
            return None
        said = [_said(one, self._wall() - self._clock()) for one in self.kept.samples]
        return "\n".join([*said, *([self.kept.capture] if self.kept.capture else [])]) or None

    async def hold(self, claim: Claim, reason: str) -> float:
        """Keep what may say why before the drain changes it, and let the hook look closer if there is one.

        Returns the seconds that took. Whatever fails in here is told, and is no reason against the cull.
        """
        began = self._clock()
        self.kept = Kept(claim.claim_id, self._wall(), self.samples.newest())
        if self._hook is not None:
            try:
                capture = await self._hook(claim, reason)
                self.kept = self.kept._replace(capture=capture)
            except Exception as error:  # noqa: BLE001 - as said above
                self._on_failure(error)
        return self._clock() - began


def _said(one: ErrorSample, offset_s: float) -> str:
    """A sample as a line; ``offset_s`` later than on its own clock it is Unix time."""
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - most containers are never culled

    seen = f"{_moment(one.first + offset_s)} to {_moment(one.last + offset_s)}"
    return f"{one.errors} x {one.kind} ({one.fingerprint}, {seen}): {redacted(one.message, MESSAGE_LIMIT)}"


def _moment(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))
