"""The hook is run with the facts and without secrets, has so long and so much to say, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import time
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.waiting import wait_for
from sidecar.actions.hook import HEAD, Hook
from sidecar.core.explain.samples import MOST
from sidecar.core.types import DETAIL_LIMIT, Claim

CLAIM = Claim("app/a/life-1", "a", "life-1", "redis")


class Shop:
    """Where hooks are made and run, and what they failed with."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.failures: list[Exception] = []

    def script(self, text: str) -> str:
        path = self.directory / "hook"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        return str(path)

    def hook(self, path: str, timeout_s: float = 5.0) -> Hook:
        return Hook(path, timeout_s, "app", self.failures.append)

    async def told(self, text: str, timeout_s: float = 5.0, reason: str = "7 server errors") -> str:
        return await self.hook(self.script(text), timeout_s)(CLAIM, reason)

    def pid(self, name: str) -> int:
        path = self.directory / name
        wait_for(lambda: path.exists() and path.read_text(), timeout_s=5, what="the process has told its number")
        return int(path.read_text())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that nobody has waited for yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - no path of ours
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_for_end(pid: int) -> None:
    """Who was killed still takes its leave, as soon as it gets a core."""
    wait_for(lambda: not _is_alive(pid), timeout_s=10, what=f"process {pid} has ended")


async def test_both_streams_and_the_exit_code_are_kept(shop: Shop) -> None:
    told = await shop.told("echo one; echo two >&2; exit 3")
    first, *rest = told.splitlines()
    assert re.fullmatch(r"the hook ended with exit code 3 after \d\.\d s", first)
    assert rest == ["one", "two"]
    assert shop.failures == []


async def test_it_is_told_the_facts_and_none_of_our_environment(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARBITER_REDIS_URL", "redis://:hunter2@host")
    told = await shop.told("tr '\\0' '\\n' < /proc/$$/environ", reason="7 errors\0")
    names = dict(line.split("=", 1) for line in told.splitlines()[1:])
    assert names.keys() - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        *("PATH", "LANG", "ARBITER_SERVICE", "ARBITER_INSTANCE", "ARBITER_INCARNATION", "ARBITER_KIND"),
        "ARBITER_REASON",
    }
    assert (names["ARBITER_INSTANCE"], names["ARBITER_INCARNATION"], names["ARBITER_KIND"]) == ("a", "life-1", "redis")
    assert names["ARBITER_REASON"] == "7 errors"


async def test_it_reads_nothing_and_leads_a_session_of_its_own(shop: Shop) -> None:
    told = await shop.told("cat; echo end; cut -d' ' -f6 /proc/$$/stat; echo $$")
    _, end, session, pid = told.splitlines()
    assert (end, session) == ("end", pid)
    assert int(session) != os.getsid(0)


async def test_secrets_in_its_output_are_masked(shop: Shop) -> None:
    told = await shop.told("echo 'redis://:hunter2@10.0.0.1:6379'; echo 'password:'; echo ' hunter3'")
    assert "hunter" not in told
    assert "10.0.0.1:6379" in told


async def test_one_that_hangs_is_ended_in_time_with_all_it_started(shop: Shop) -> None:
    begun = time.monotonic()
    told = await shop.told(f"echo seen; sleep 60 & echo $! > {shop.directory}/child; trap '' TERM; wait", 2.0)
    assert time.monotonic() - begun < 30, "half of what it would have taken by itself"
    assert told.startswith("the hook was ended, its time was up, after ")
    assert told.endswith("\nseen")
    (failure,) = shop.failures
    assert str(failure) == "the hook took longer than 2 s"
    _wait_for_end(shop.pid("child"))


async def test_one_that_leaves_its_output_to_another_is_not_waited_for(shop: Shop) -> None:
    begun = time.monotonic()
    child = shop.directory / "child"
    # It ends no sooner than the other leads a session of its own: until then both are one group.
    told = await shop.told(
        f"echo seen; setsid sh -c 'echo $$ > {child}; exec sleep 60' & while [ ! -s {child} ]; do sleep 0.01; done"
    )
    os.kill(shop.pid("child"), 9)
    assert time.monotonic() - begun < 30, "half of what it would have taken"
    assert told.splitlines()[0].startswith("the hook ended with exit code 0")
    assert told.endswith("seen")


async def test_flood_is_cut_and_the_program_still_comes_to_its_end(shop: Shop) -> None:
    told = await shop.told(f"yes 'a line' | head -c 400000; echo done > {shop.directory}/done; exit 4")
    assert told.startswith("the hook ended with exit code 4")
    assert HEAD - 300 < len(told) < HEAD + 300
    assert told.endswith(f"(the rest of more than {HEAD} bytes is left out)")
    assert (shop.directory / "done").exists()


async def test_secret_at_the_cut_of_a_flood_is_not_left_in_part(shop: Shop) -> None:
    address = "bob.smith@mail.example.org"
    told = await shop.told(f"head -c {HEAD - 14} /dev/zero | tr '\\0' '\\n'; echo {address}")
    assert "bob" not in told
    assert told.endswith(f"(the rest of more than {HEAD} bytes is left out)")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No time goes into collecting what the tests before have left."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_endless_flood_takes_little_of_the_loop_and_ends(shop: Shop) -> None:
    longest, stop = 0.0, False

    async def watch() -> None:
        """What of the processor somebody else on this loop had at a stretch, whoever else the machine works for."""
        nonlocal longest
        while not stop:
            begun = time.thread_time()
            await asyncio.sleep(0.005)
            longest = max(longest, time.thread_time() - begun)

    watching = asyncio.create_task(watch())
    used = time.process_time()
    told = await shop.told("yes 'x x x'", 1.0)
    used = time.process_time() - used
    stop = True
    await watching
    assert "its time was up" in told
    assert used < 0.5
    assert longest < 0.1


@pytest.mark.parametrize("case", ["missing", "a directory", "not executable", "no program"])
async def test_one_that_cannot_be_run_is_told(shop: Shop, case: str) -> None:
    path = shop.directory / "hook"
    if case == "a directory":
        path.mkdir()
    elif case != "missing":
        path.write_text("\x7fELF nonsense")
        path.chmod(0o600 if case == "not executable" else 0o700)
    told = await shop.hook(str(path))(CLAIM, "reason")
    assert told.startswith("the hook could not be run: ")
    assert len(shop.failures) == 1


async def test_one_that_is_killed_says_so(shop: Shop) -> None:
    assert (await shop.told("kill -9 $$")).startswith("the hook was ended by signal 9 after")


async def test_when_the_claim_is_given_up_it_is_ended(shop: Shop) -> None:
    hook = shop.hook(shop.script(f"echo $$ > {shop.directory}/self; sleep 60"))

    async def run() -> str:
        return await hook(CLAIM, "reason")

    running = asyncio.create_task(run())
    pid = await asyncio.to_thread(shop.pid, "self")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    _wait_for_end(pid)


async def test_when_the_claim_is_given_up_while_it_starts_nothing_of_it_is_left(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = shop.hook(shop.script(f"sleep 60 & echo $! > {shop.directory}/child; wait"))
    given_up, connect = asyncio.Event(), BaseSubprocessTransport._connect_pipes

    async def connect_later(transport: BaseSubprocessTransport, waiter: asyncio.Future[None] | None) -> None:
        await given_up.wait()
        await connect(transport, waiter)

    monkeypatch.setattr(BaseSubprocessTransport, "_connect_pipes", connect_later)
    running = asyncio.ensure_future(hook(CLAIM, "reason"))
    pid = await asyncio.to_thread(shop.pid, "child")
    begun = time.monotonic()
    running.cancel()
    given_up.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - begun < 30, "half of what it would have taken by itself"
    _wait_for_end(pid)


@pytest.mark.parametrize("output", ["", "\\377\\376\\n", "\\033[31mred"])
async def test_any_bytes_become_text(shop: Shop, output: str) -> None:
    told = await shop.told(f"printf '{output}'")
    assert told.startswith("the hook ended with exit code 0")
    told.encode()


def test_page_of_settings_says_what_a_hook_is_told_and_how_much_it_may_say(shop: Shop) -> None:
    page = (Path(__file__).parents[2] / "deploy" / "settings.md").read_text()
    section = page.split("**The hook**")[1].split("\n\n")[0]
    assert set(re.findall(r"`([A-Z_]+)`", section)) == set(shop.hook("/hook")._env(CLAIM, "reason"))
    assert f"{HEAD // 1024} KiB" in section
    assert f"of the {MOST} errors" in section
    assert f"{DETAIL_LIMIT // 1000} KB" in section
