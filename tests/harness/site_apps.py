"""Fake apps that do nothing but report: their beginning, and as long as they suffer, too many errors."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from harness.sidecar import Sidecar

_PAUSE_S: Final = 0.5
_ERRORS: Final = 6
_AT_ONCE: Final = 10


class SiteApps:
    """One app beside each sidecar, named after its instance; a thread reports what they suffer from, as a context."""

    def __init__(self) -> None:
        self._ill: dict[str, tuple[Sidecar, str]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def begin(self, one: Sidecar) -> None:
        """Let the app's life begin; it is well."""
        one.post_error(count=0, app_start=_life(one))

    def suffer(self, *who: Sidecar, kind: str) -> None:
        """Let these report errors of this kind until they heal, culled or not."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # The first reports side by side: what befalls all of them befalls them at once.
            list(pool.map(lambda one: _complain(one, kind), who))
        with self._lock:
            self._ill |= {one.name: (one, kind) for one in who}

    def heal(self, *who: Sidecar) -> None:
        """Let these report none any more; once it returns none is on its way either."""
        with self._lock:
            for one in who:
                self._ill.pop(one.name, None)

    def _report(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not self._stop.wait(_PAUSE_S):
                # Who wants to heal an app waits until the round is over.
                with self._lock:
                    list(pool.map(_complain_if_it_listens, self._ill.values()))


def _complain(one: Sidecar, kind: str) -> None:
    one.post_error(count=_ERRORS, kind=kind, app_start=_life(one), message=f"no answer from {kind}")


def _complain_if_it_listens(ill: tuple[Sidecar, str]) -> None:
    with contextlib.suppress(OSError):
        _complain(*ill)


def _life(one: Sidecar) -> str:
    return str(one.settings["instance"])
