"""The sidecar, with a note of each time that it works for long and looks at no health check meanwhile.

``python -m harness.loop_holds FILE run`` runs it and adds a line to the file for each such time: the time of the
processor that it took, in seconds. That time and not the clock's, so that a busy machine does not count.
"""

from __future__ import annotations

import selectors
import sys
import time
from pathlib import Path
from typing import Final

LONG_S: Final = 0.01


class Holds:
    """The work between two looks at the health checks."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began_s = time.thread_time()

    def begin(self) -> None:
        self._began_s = time.thread_time()

    def end(self) -> None:
        took_s = time.thread_time() - self._began_s
        if took_s > LONG_S:
            with self._file.open("a") as file:
                file.write(f"{took_s:.4f}\n")
        self.begin()


def main() -> None:
    """The health checks are looked at when the loop waits, and in the turns of their listener."""
    holds = Holds(Path(sys.argv.pop(1)))

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            holds.end()
            try:
                return super().select(timeout)
            finally:
                holds.begin()

    selectors.DefaultSelector = Selector  # type: ignore[misc] # asyncio waits on one

    from sidecar.cli import main as program  # noqa: PLC0415 - after the selector
    from sidecar.server.public import PublicServer  # noqa: PLC0415

    turn = PublicServer.turn

    def noted_turn(self: PublicServer) -> None:
        holds.end()
        turn(self)
        holds.end()

    PublicServer.turn = noted_turn  # type: ignore[method-assign]
    program.main()


if __name__ == "__main__":
    main()
