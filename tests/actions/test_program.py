"""The hook and the command run without secrets, are bounded in time and output, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.waiting import wait_for
from sidecar.actions.actuator import ActionError
from sidecar.actions.program import HEAD, CommandAction, Hook
from sidecar.core.claims import Claim
from sidecar.core.explain.samples import MOST
from sidecar.core.types import DETAIL_LIMIT

CLAIM = Claim("app/a/life-1", "a", "life-1", "redis")
PATIENCE_S = 60.0


class HookDirectory:
    """A directory for hooks, and the failures of those that ran."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.failures: list[Exception] = []

    def script(self, text: str) -> str:
        path = self.directory / "hook"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        return str(path)

    def hook(self, path: str, timeout_s: float = PATIENCE_S) -> Hook:
        return Hook(path, timeout_s, "app", self.failures.append)

    async def output(self, text: str, timeout_s: float = PATIENCE_S, reason: str = "7 server errors") -> str:
        return await self.hook(self.script(text), timeout_s)(CLAIM, reason)

    def pid(self, name: str) -> int:
        path = self.directory / name
        wait_for(lambda: path.exists() and path.read_text(), timeout_s=60, what="the process has told its number")
        return int(path.read_text())


@pytest.fixture
def hooks(tmp_path: Path) -> HookDirectory:
    return HookDirectory(tmp_path)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - no path of ours
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_for_end(pid: int) -> None:
    """Who was killed still takes its leave, as soon as it gets a core."""
    wait_for(lambda: not _is_alive(pid), timeout_s=60, what=f"process {pid} has ended")


async def test_both_streams_and_the_exit_code_are_kept(hooks: HookDirectory) -> None:
    output = await hooks.output("echo one; echo two >&2; printf '\\377'; exit 3")
    first, *rest = output.splitlines()
    assert re.fullmatch(r"the hook ended with exit code 3 after \d+\.\d s", first)
    assert rest == ["one", "two", "\ufffd"]
    assert hooks.failures == []


async def test_environment_has_the_facts_and_nothing_of_the_sidecar(
    hooks: HookDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARBITER_REDIS_URL", "redis://:hunter2@host")
    output = await hooks.output("tr '\\0' '\\n' < /proc/$$/environ", reason="7 errors\0")
    names = dict(line.split("=", 1) for line in output.splitlines()[1:])
    assert {name: value for name, value in names.items() if name.startswith("ARBITER_")} == {
        "ARBITER_SERVICE": "app",
        "ARBITER_INSTANCE": "a",
        "ARBITER_INCARNATION": "life-1",
        "ARBITER_KIND": "redis",
        "ARBITER_REASON": "7 errors",
    }


async def test_secrets_in_its_output_are_masked(hooks: HookDirectory) -> None:
    output = await hooks.output("echo 'redis://:hunter2@10.0.0.1:6379'; echo 'password:'; echo ' hunter3'")
    assert "hunter" not in output
    assert "10.0.0.1:6379" in output


async def test_program_that_hangs_is_ended_with_its_children(hooks: HookDirectory) -> None:
    begun = time.monotonic()
    output = await hooks.output(f"echo seen; sleep 60 & echo $! > {hooks.directory}/child; trap '' TERM; wait", 2.0)
    assert time.monotonic() - begun < 30, "half of what it would have taken by itself"
    assert output.startswith("the hook was ended, its time was up, after ")
    assert output.endswith("\nseen")
    (failure,) = hooks.failures
    assert str(failure) == "the hook took longer than 2 s"
    _wait_for_end(hooks.pid("child"))


async def test_output_that_another_session_holds_is_not_awaited(hooks: HookDirectory) -> None:
    begun = time.monotonic()
    child = hooks.directory / "child"
    # It ends no sooner than the other leads a session of its own: until then both are one group.
    output = await hooks.output(
        f"echo seen; setsid sh -c 'echo $$ > {child}; exec sleep 60' & while [ ! -s {child} ]; do sleep 0.01; done"
    )
    os.kill(hooks.pid("child"), 9)
    assert time.monotonic() - begun < 30, "half of what it would have taken"
    assert output.splitlines()[0].startswith("the hook ended with exit code 0")
    assert output.endswith("seen")


@pytest.mark.parametrize(("redirection", "survives"), [("", False), (">/dev/null 2>&1", True)], ids=["holds", "closed"])
async def test_child_that_holds_the_output_of_a_program_that_has_ended_is_killed(
    hooks: HookDirectory, redirection: str, *, survives: bool
) -> None:
    child = hooks.directory / "child"
    await hooks.output(f"sleep 60 {redirection} & echo $! > {child}")
    if survives:
        assert _is_alive(hooks.pid("child"))
        os.kill(hooks.pid("child"), 9)
    _wait_for_end(hooks.pid("child"))


async def test_flood_is_cut_and_the_program_still_comes_to_its_end(hooks: HookDirectory) -> None:
    output = await hooks.output(f"yes 'a line' | head -c 400000; echo done > {hooks.directory}/done; exit 4")
    assert output.startswith("the hook ended with exit code 4")
    assert HEAD - 300 < len(output) < HEAD + 300
    assert output.endswith(f"(the rest of more than {HEAD} bytes is left out)")
    assert (hooks.directory / "done").exists()


async def test_secret_at_the_cut_of_a_flood_is_not_left_in_part(hooks: HookDirectory) -> None:
    address = "bob.smith@mail.example.org"
    output = await hooks.output(f"head -c {HEAD - 14} /dev/zero | tr '\\0' '\\n'; echo {address}")
    assert "bob" not in output
    assert output.endswith(f"(the rest of more than {HEAD} bytes is left out)")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No time goes into collecting what the tests before have left."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_endless_flood_takes_little_of_the_loop_and_ends(hooks: HookDirectory) -> None:
    longest, stop = 0.0, False

    async def watch() -> None:
        """Measure the longest processor time between two turns of the loop."""
        nonlocal longest
        while not stop:
            begun = time.thread_time()
            await asyncio.sleep(0.005)
            longest = max(longest, time.thread_time() - begun)

    watching = asyncio.create_task(watch())
    used = time.process_time()
    output = await hooks.output("yes 'x x x'", 1.0)
    used = time.process_time() - used
    stop = True
    await watching
    assert "its time was up" in output
    assert used < 0.5
    assert longest < 0.1


@pytest.mark.parametrize("case", ["missing", "a directory", "not executable", "no program"])
async def test_program_that_cannot_be_run_is_reported(hooks: HookDirectory, case: str) -> None:
    path = hooks.directory / "hook"
    if case == "a directory":
        path.mkdir()
    elif case != "missing":
        path.write_text("\x7fELF nonsense")
        path.chmod(0o600 if case == "not executable" else 0o700)
    output = await hooks.hook(str(path))(CLAIM, "reason")
    assert output.startswith("the hook could not be run: ")
    assert len(hooks.failures) == 1


async def test_program_ends_with_its_claim(hooks: HookDirectory) -> None:
    hook = hooks.hook(hooks.script(f"echo $$ > {hooks.directory}/self; sleep 60"))

    async def run() -> str:
        return await hook(CLAIM, "reason")

    running = asyncio.create_task(run())
    pid = await asyncio.to_thread(hooks.pid, "self")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    _wait_for_end(pid)


async def test_command_runs_without_a_shell_and_with_its_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARBITER_REDIS_URL", "redis://:hunter2@host")
    script = tmp_path / "restart app"
    script.write_text('#!/bin/sh\nenv; echo "<$1>"\n')
    script.chmod(0o700)
    text = await CommandAction([str(script), "$HOME; true"], PATIENCE_S, {"ARBITER_INSTANCE": "web-1"})()
    assert text.startswith("the command ended with exit code 0")
    assert "<$HOME; true>" in text
    assert "ARBITER_INSTANCE=web-1" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("text", "limit_s", "reason"),
    [
        ("/no/such/program", PATIENCE_S, r"the command could not be run"),
        (
            "sh -c 'echo unit not found; exit 5'",
            PATIENCE_S,
            r"ended with exit code 5[^\n]*\nunit not found",
        ),
        ("sleep 60", 0.2, r"the command was ended, its time was up"),
    ],
    ids=["missing", "fails", "hangs"],
)
async def test_command_that_fails_is_an_error_with_its_output(text: str, limit_s: float, reason: str) -> None:
    with pytest.raises(ActionError, match=reason):
        await CommandAction(shlex.split(text), limit_s, {})()


async def test_page_of_settings_names_the_environment_and_the_bounds_of_a_hook(hooks: HookDirectory) -> None:
    page = (Path(__file__).parents[2] / "deploy" / "settings.md").read_text()
    section = page.split("`ARBITER_CULL_HOOK` collects evidence")[1].split("| setting |")[0]
    names = set(
        re.findall(r"^([A-Z_]+)=", await hooks.output("/usr/bin/env -u PWD -u OLDPWD -u SHLVL -u _ env"), re.MULTILINE)
    )
    assert set(re.findall(r"`([A-Z_]+)`", section)) == names
    assert f"{HEAD // 1024} KiB" in section
    assert f"the last {MOST} errors" in section
    assert f"{DETAIL_LIMIT // 1000} KB" in section
