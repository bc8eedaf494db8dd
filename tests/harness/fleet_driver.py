"""Makes the apps of a fleet of real sidecars sick, and replaces them."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from harness.sidecar import Sidecar

_AT_ONCE = 10
_AGAIN_S = 3.0
_TIMEOUT_S = 60.0


class FleetDriver:
    """Reports for the apps of ``members``; their first incarnations begin here."""

    def __init__(self, members: Iterable[Sidecar]) -> None:
        self.members = list(members)
        self._lives = Counter[str]()
        self.replace(*self.members)

    def make_sick(self, *who: Sidecar, kind: str = "redis", errors: int = 5) -> None:
        """Report too many errors of these apps, side by side."""
        self._each(who, lambda member: member.post_error(count=errors, kind=kind, app_start=self._life(member)))

    @contextmanager
    def keep_sick(self, *who: Sidecar, kind: str = "redis") -> Iterator[None]:
        """Make these apps sick, and report more errors while the context lasts."""
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(_AGAIN_S):
                with suppress(OSError):  # a late reply on a busy machine
                    self.make_sick(*who, kind=kind, errors=1)

        self.make_sick(*who, kind=kind)
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def replace(self, *who: Sidecar) -> None:
        """Begin another incarnation of these apps, without errors."""
        self._lives.update(member.name for member in who)
        self._each(who, lambda member: member.post_error(count=0, app_start=self._life(member)))

    def down(self) -> list[Sidecar]:
        """The members that are culled."""
        return [member for member in self.members if member.health("/health/haproxy")[0] != 200]

    def await_down(self, *who: Sidecar, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until exactly these are culled."""
        names = {member.name for member in who}
        what = f"{', '.join(sorted(names)) or 'none'} and no other is down"
        wait_for(lambda: {member.name for member in self.down()} == names, timeout_s=timeout_s, what=what)

    def await_metrics(self, timeout_s: float = _TIMEOUT_S, **wanted: float) -> None:
        """Wait until the metrics of every member have these values of ``arbiter_<name>``."""
        for member in self.members:
            await_metrics(member, {f"arbiter_{name}": value for name, value in wanted.items()}, timeout_s)

    def _life(self, member: Sidecar) -> str:
        return f"life-{self._lives[member.name]}"

    def _each(self, who: Iterable[Sidecar], work: Callable[[Sidecar], object]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(work, who))


def await_metrics(member: Sidecar, wanted: Mapping[str, float], timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until the metrics of the sidecar have these values."""

    def missing() -> dict[str, float | None]:
        page = member.metrics()
        return {name: page.get(name) for name, value in wanted.items() if page.get(name) != value}

    wait_for(lambda: not missing(), timeout_s=timeout_s, what=f"{member.name} shows {wanted}")


def claim(member: Sidecar) -> dict[str, Any]:
    """The state of its last claim."""
    last: dict[str, Any] = member.verdict()["claim"] or {}
    return last


def await_answers(*who: Sidecar, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until the last claim of each is granted or denied."""

    def unclear() -> list[str]:
        return [member.name for member in who if claim(member).get("outcome") not in ("granted", "denied")]

    wait_for(lambda: not unclear(), timeout_s=timeout_s, what="every claim is granted or denied")


def await_denied(member: Sidecar, reason: str, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Wait until the last claim is denied for this reason; the claim."""

    def denied() -> dict[str, Any]:
        last = claim(member)
        return last if (last.get("outcome"), last.get("reason")) == ("denied", reason) else {}

    return wait_for(denied, timeout_s=timeout_s, what=f"{member.name} is denied for {reason}")
