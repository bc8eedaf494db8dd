"""The health answers for HAProxy, Nomad and people. Read-only, from memory, without free text of the app.

Every health answer has headers for balancers that read no agent-check, and for people: ``X-Arbiter-Weight`` (percent,
0 when out of balance), ``X-Arbiter-State``, and ``X-Arbiter-Reason`` when out of balance. ``x-envoy-degraded`` makes
Envoy, which knows no weights here, prefer other hosts: below ``DEGRADED_BELOW``, where a fifth of requests fails.

In shadow mode every answer is that of a container without errors: all of them are made from ``Snapshot.presented``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import lru_cache, partial
from math import inf
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import State
from sidecar.server.public_answer import PublicAnswer

BODY_LIMIT: Final = 3 * 1024
"""Nomad keeps this much of a failing check's body."""

WEIGHT: Final = "X-Arbiter-Weight"
STATE: Final = "X-Arbiter-State"
REASON: Final = "X-Arbiter-Reason"
DEGRADED: Final = "x-envoy-degraded"
DEGRADED_BELOW: Final = 50
REASON_LIMIT: Final = 120
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")
"""Characters that would end a header early, or are not ASCII: a reason may come from a file on disk."""

POLLERS: Final = {"nomad/": "nomad", "consul health check": "consul", "haproxy": "haproxy"}
"""Beginning of the user agent -> poller: ``Nomad/1.8.0 (+https://www.nomadproject.io/; go1.22.4)``, ``Consul Health
Check``, and what operators set for HAProxy, which sends none by itself."""

TEXT_S: Final = 1.0
"""Maximum age of the reasons in the body of a "down"."""


OUR_FAILURE: Final = PublicAnswer(200, b"up\n")
ALIVE: Final = PublicAnswer(200, b"alive\n")
STALE: Final = PublicAnswer(503, b"the last check is too old\n")
READY: Final = PublicAnswer(200, b"ready\n")
NOT_READY: Final = PublicAnswer(503, b"not ready\n")


class Health:
    """The answers of the public listener, by path: ``polls`` about the container, ``probes`` about the sidecar.

    An answer to a poll changes only with state or weight. ``stale_after_s``: without a check for this long the
    controller counts as stuck. ``on_poll(poller, path, status)`` gets every poll. ``explanation(limit)`` is the body of
    a "down" in at most ``limit`` bytes. ``clock`` is the clock of the snapshot's times.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        stale_after_s: float,
        on_poll: Callable[[str, str, int], None],
        on_failure: Callable[[Exception], None],
        explanation: Callable[[int], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        body_of = partial(_body_of_down, explanation, on_failure)

        def poll(path: str, is_up: Callable[[Container], bool]) -> Callable[[str], PublicAnswer]:
            current = _CurrentAnswer(is_up, snapshot, body_of, clock)

            def answer_to(user_agent: str) -> PublicAnswer:
                try:
                    answer = current.get()
                    on_poll(poller(user_agent, path), path, answer.status)
                except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
                    on_failure(error)
                    return OUR_FAILURE
                return answer

            return answer_to

        def livez(_user_agent: str) -> PublicAnswer:
            checked_at = snapshot().checked_at
            return STALE if checked_at is None or clock() - checked_at > stale_after_s else ALIVE

        def readyz(_user_agent: str) -> PublicAnswer:
            current = snapshot()
            is_stopping = current.presented.state is State.STOPPING
            return NOT_READY if current.checked_at is None or is_stopping else READY

        restart = poll("/health/nomad", lambda container: container.nomad_up)
        self.polls = {
            "/health": poll("/health", lambda container: container.haproxy_up),
            "/health/haproxy": poll("/health/haproxy", lambda container: container.haproxy_up),
            "/health/nomad": restart,
            "/health/restart": restart,  # the same under a name for other schedulers; counted as the first
        }
        self.probes = {"/livez": livez, "/readyz": readyz}


class _CurrentAnswer:
    """The answer at one path, kept until it changes."""

    def __init__(
        self,
        is_up: Callable[[Container], bool],
        snapshot: Callable[[], Snapshot],
        body_of: Callable[[Container], bytes],
        clock: Callable[[], float],
    ) -> None:
        self._is_up = is_up
        self._snapshot = snapshot
        self._body_of = body_of
        self._clock = clock
        self._container: Container | None = None
        self._share = 0
        self._until = inf
        self._answer = OUR_FAILURE

    def get(self) -> PublicAnswer:
        current = self._snapshot()
        container, share = current.presented, current.share
        if container is not self._container or share != self._share or self._clock() >= self._until:
            self._answer = self._make(container, share)
            self._container, self._share = container, share
        return self._answer

    def _make(self, container: Container, share: int) -> PublicAnswer:
        if self._is_up(container):
            self._until = inf
            return PublicAnswer(200, b"up\n", _headers(container, share))
        self._until = self._clock() + TEXT_S
        return PublicAnswer(503, self._body_of(container), _headers(container, share))


def _body_of_down(
    explanation: Callable[[int], str] | None, on_failure: Callable[[Exception], None], container: Container
) -> bytes:
    """The whole explanation; if that fails, a short one from the container's state alone."""
    try:
        text = explanation(BODY_LIMIT) if explanation else explain(container)
    except Exception as error:  # noqa: BLE001 - no failure to explain it may put a culled container back
        on_failure(error)
        text = explain(container)
    return text.encode(errors="replace")


def _headers(container: Container, share: int) -> dict[str, str]:
    headers = {WEIGHT: str(share), STATE: container.state.value}
    if not container.haproxy_up:
        headers[REASON] = printable_ascii(why_down(container))[:REASON_LIMIT]
    elif share < DEGRADED_BELOW:
        headers[DEGRADED] = "true"
    return headers


@lru_cache(maxsize=64)
def poller(user_agent: str, path: str) -> str:
    """The poller's name by its user agent; HAProxy's plain check sends none, but has a path of its own."""
    lower = user_agent.lower()
    for begin, name in POLLERS.items():
        if lower.startswith(begin):
            return name
    return "haproxy" if not lower and path == "/health/haproxy" else "other"


def explain(container: Container) -> str:
    """The short body of a "down": state, evidence at the cull, the budget's answer. At most 3 KiB, nobody's name."""
    lines = [f"{container.state}: {why_down(container)}"]
    if container.latch and container.answer:
        lines.append(reasons.answer(reasons.anonymous_answer(container.answer)))
    text = "\n".join(lines).encode(errors="replace")[: BODY_LIMIT - 1]
    return text.decode(errors="ignore") + "\n"


def why_down(container: Container) -> str:
    """Why the container is out of balance, in one sentence; empty if it is not."""
    if container.latch is not None:
        return container.latch.reason
    if container.state is State.STOPPING:
        return "the sidecar is stopping"
    return ""


def printable_ascii(text: str) -> str:
    """The text with ``?`` for all other characters, so that it stays on its line."""
    return _UNSAFE.sub("?", text)
