from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.waiting import wait_for
from sidecar.net.threads import in_thread

TOP = Path(__file__).parents[2]


async def test_result_comes_from_a_daemon_thread_of_its_own() -> None:
    def work(left: int, *, right: int) -> tuple[int, threading.Thread]:
        return left + right, threading.current_thread()

    result, thread = await in_thread(work, 1, right=2)
    assert result == 3
    assert thread is not threading.current_thread()
    assert thread.daemon


async def test_exception_of_the_work_is_raised_to_the_waiter() -> None:
    def work() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await in_thread(work)


@pytest.mark.parametrize("fails", [False, True], ids=["result", "exception"])
async def test_cancelled_wait_does_not_end_the_thread(*, fails: bool) -> None:
    release, ended = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    def work() -> None:
        threads.append(threading.current_thread())
        release.wait(10)
        ended.set()
        if fails:
            raise KeyError("not awaited")

    waiting = asyncio.create_task(in_thread(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended.is_set()
    release.set()
    await in_thread(ended.wait, 10)
    await in_thread(threads[0].join, 10)
    await asyncio.sleep(0)
    assert complaints == []


def test_work_that_outlives_its_loop_ends_quietly() -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        release.wait(10)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_thread(work), 0.01)

    asyncio.run(give_up())
    wait_for(lambda: threads, timeout_s=60, what="the thread has begun")
    release.set()
    threads[0].join(60)
    assert not threads[0].is_alive()


def test_work_and_names_that_hang_do_not_hold_up_the_exit() -> None:
    """``asyncio.run`` joins its executor, and the standard library's pools join their workers at exit."""
    script = """
import asyncio, threading
from sidecar.net.threads import DaemonThreads, in_thread
async def main():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())
    assert await loop.run_in_executor(None, int, "7") == 7
    loop.run_in_executor(None, threading.Event().wait)
    try:
        await asyncio.wait_for(in_thread(threading.Event().wait), 0.01)
    except TimeoutError:
        print("gave up")
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=TOP, capture_output=True, text=True, timeout=90, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "gave up\n", "")
