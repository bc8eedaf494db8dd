"""A fleet of real sidecars whose apps can be made to suffer, and be replaced."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.sidecar import Sidecar

_AT_ONCE = 10
_AGAIN_S = 3.0
_PATIENCE_S = 30.0


class Crew:
    """``members`` with an app each, which begins its first life here."""

    def __init__(self, members: Iterable[Sidecar]) -> None:
        self.members = list(members)
        self._lives = Counter[str]()
        self.replace(*self.members)

    def suffer(self, *who: Sidecar, kind: str = "redis", errors: int = 5) -> None:
        """Report too many errors of these apps, of as many as can be at a time."""
        self._each(who, lambda one: one.post_error(count=errors, kind=kind, app_start=self._life(one)))

    @contextmanager
    def suffering(self, *who: Sidecar, kind: str = "redis") -> Iterator[None]:
        """Have these apps suffer, and go on so: nobody is culled for errors of the past."""
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(_AGAIN_S):
                self.suffer(*who, kind=kind, errors=1)

        self.suffer(*who, kind=kind)
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def report(self, counts: Mapping[Sidecar, int], kind: str = "redis") -> None:
        """Report so many errors of each of these apps."""
        self._each(counts, lambda one: one.post_error(count=counts[one], kind=kind, app_start=self._life(one)))

    def replace(self, *who: Sidecar) -> None:
        """Let another life of the same app begin, and be well."""
        self._lives.update(one.name for one in who)
        self._each(who, lambda one: one.post_error(count=0, app_start=self._life(one)))

    def down(self) -> list[Sidecar]:
        """Whoever is culled."""
        return [one for one in self.members if one.health("/health/haproxy")[0] != 200]

    def await_down(self, *who: Sidecar, timeout_s: float = _PATIENCE_S) -> None:
        """Wait until these are culled, and nobody else is."""
        names = {one.name for one in who}
        what = f"{', '.join(sorted(names)) or 'nobody'} and nobody else is down"
        wait_for(lambda: {one.name for one in self.down()} == names, timeout_s=timeout_s, what=what)

    def await_metrics(self, timeout_s: float = _PATIENCE_S, **wanted: float) -> None:
        """Wait until every member shows these values of ``arbiter_<name>``."""
        for one in self.members:
            await_metrics(one, {f"arbiter_{name}": value for name, value in wanted.items()}, timeout_s)

    def _life(self, one: Sidecar) -> str:
        return f"life-{self._lives[one.name]}"

    def _each(self, who: Iterable[Sidecar], work: Callable[[Sidecar], object]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(work, who))


def await_metrics(one: Sidecar, wanted: Mapping[str, float], timeout_s: float = _PATIENCE_S) -> None:
    """Wait until its page has these values."""

    def missing() -> dict[str, float | None]:
        page = one.metrics()
        return {name: page.get(name) for name, value in wanted.items() if page.get(name) != value}

    wait_for(lambda: not missing(), timeout_s=timeout_s, what=f"{one.name} shows {wanted}")


def claim(one: Sidecar) -> dict[str, Any]:
    """What became of its last claim."""
    told: dict[str, Any] = one.verdict()["claim"] or {}
    return told


def await_answers(*who: Sidecar, timeout_s: float = _PATIENCE_S) -> None:
    """Wait until the last claim of each of them was granted or denied."""

    def unclear() -> list[str]:
        return [one.name for one in who if claim(one).get("outcome") not in ("granted", "denied")]

    wait_for(lambda: not unclear(), timeout_s=timeout_s, what="all have clear answers")


def await_denied(one: Sidecar, reason: str, timeout_s: float = _PATIENCE_S) -> dict[str, Any]:
    """The claim that was refused for this reason."""

    def denied() -> dict[str, Any]:
        told = claim(one)
        return told if (told.get("outcome"), told.get("reason")) == ("denied", reason) else {}

    return wait_for(denied, timeout_s=timeout_s, what=f"{one.name} is denied for {reason}")
