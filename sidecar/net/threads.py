"""Work that may hang (a disk, an import) in a daemon thread of its own.

The pools of the standard library are joined at exit, even when a worker hangs; this one is not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Result of ``work(*args, **kwargs)``, or its exception. A cancelled wait does not end the thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - handed to the waiter, whatever it is
            _settle(loop, done, done.set_exception, error)
        else:
            _settle(loop, done, done.set_result, result)

    threading.Thread(target=run, name=getattr(work, "__name__", "work"), daemon=True).start()
    return await done


def _settle(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], settle: Callable[..., None], value: object
) -> None:
    def settle_now() -> None:
        if not done.done():
            settle(value)

    try:
        loop.call_soon_threadsafe(settle_now)
    except RuntimeError:
        return  # the loop has ended


class DaemonThreads(ThreadPoolExecutor):
    """An executor for the event loop's own needs: it resolves names, which may hang for as long as DNS does."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``work`` in a daemon thread of its own, which is never joined."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the waiter, whatever it is
                future.set_exception(error)

        threading.Thread(target=run, name="resolver", daemon=True).start()
        return future
