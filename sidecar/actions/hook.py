"""The hook: a program of the operator that examines a container between the grant and the drain, while it is sick."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.actions import program
from sidecar.core.types import Claim


class Hook:
    """Runs the program ``path`` for at most ``timeout_s`` seconds, and then kills it.

    ``on_failure`` is called if the program cannot be run, or takes longer. Its environment has the facts of the cull.
    """

    def __init__(self, path: str, timeout_s: float, service: str, on_failure: Callable[[Exception], None]) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._service = service
        self._on_failure = on_failure

    async def __call__(self, claim: Claim, reason: str) -> str:
        """Return how the program ended and, redacted, the head of its output on both streams."""
        facts = {
            "ARBITER_SERVICE": self._service,
            "ARBITER_INSTANCE": claim.instance,
            "ARBITER_INCARNATION": claim.incarnation,
            "ARBITER_KIND": claim.cause,
            "ARBITER_REASON": reason.replace("\0", ""),
        }
        try:
            ended = await program.run("the hook", [self._path], self._timeout_s, facts)
        except (OSError, ValueError) as error:
            self._on_failure(error)
            return f"the hook could not be run: {error}"
        if ended.is_late:
            self._on_failure(TimeoutError(f"the hook took longer than {self._timeout_s:g} s"))
        return ended.text
