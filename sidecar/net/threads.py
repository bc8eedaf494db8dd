"""Work that may hang (a disk, an import, a name server) in a daemon thread of its own.

The pools of the standard library are joined at exit, even when a worker hangs; these threads are not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(ThreadPoolExecutor):
    """An executor that runs each work in a thread of its own, which is never joined."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start ``work(*args, **kwargs)``. RuntimeError if no thread can be started."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the waiter, whatever it is
                future.set_exception(error)

        threading.Thread(target=run, name=getattr(work, "__name__", "work"), daemon=True).start()
        return future


THREADS: Final = DaemonThreads()


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Result of ``work(*args, **kwargs)``, or its exception. A cancelled wait does not end the thread."""
    return await asyncio.shield(asyncio.wrap_future(THREADS.submit(work, *args, **kwargs)))
