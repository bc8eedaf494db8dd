"""Locks in files as the kernel keeps them, with real processes, and the places where they do not hold."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from harness.waiting import wait_for
from sidecar.runlock import ConcurrencyLimit, LockError, flock

_HOLD = """
import sys, time
from pathlib import Path
from sidecar.runlock.flock import ConcurrencyLimit
slots = ConcurrencyLimit(Path(sys.argv[1]), "main")
print(slots.acquire(), flush=True)
"""
_WAIT = "sys.stdin.read()\n"


def slots(directory: Path, count: int = 1, name: str = "main") -> ConcurrencyLimit:
    return ConcurrencyLimit(directory, name, count)


def is_free(directory: Path) -> bool:
    taken = slots(directory)
    slot = taken.acquire()
    taken.release()
    return slot is not None


@contextmanager
def holder(directory: Path, then: str = _WAIT) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock, and ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD + then, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        try:
            yield process
        finally:
            process.kill()


# -- facts ----------------------------------------------------------------------------------------------------------


def test_sigkill_frees_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert not is_free(tmp_path)
        process.kill()
        process.wait(60)
        assert is_free(tmp_path)


def test_a_forked_child_keeps_the_lock_when_its_parent_is_killed(tmp_path: Path) -> None:
    forks = "import os\nif (child := os.fork()): print(child, flush=True)\n" + _WAIT
    with holder(tmp_path, forks) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait(60)
        assert not is_free(tmp_path)
        os.kill(child, signal.SIGKILL)
        wait_for(lambda: is_free(tmp_path), timeout_s=60, what="the lock is free without the child")


def test_a_child_that_releases_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    forks = "import os\nif not (child := os.fork()): slots.release(); os._exit(0)\n"
    waits = "os.waitpid(child, 0)\nprint(flush=True)\n"
    with holder(tmp_path, forks + waits + _WAIT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not is_free(tmp_path)


def test_a_started_program_does_not_get_the_lock(tmp_path: Path) -> None:
    mine = slots(tmp_path)
    mine.acquire()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        mine.release()
        # Between its fork and its exec it has a copy.
        wait_for(lambda: is_free(tmp_path), timeout_s=60, what="the lock is free after exec")
        assert child.poll() is None
        child.kill()


def test_a_program_that_is_handed_the_descriptor_holds_the_lock(tmp_path: Path) -> None:
    mine = slots(tmp_path)
    mine.acquire()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=[mine.fileno()]) as child:
        mine.release()
        assert not is_free(tmp_path)
        child.kill()
        child.wait(60)
        assert is_free(tmp_path)


def test_full_disk_does_not_prevent_the_lock(tmp_path: Path) -> None:
    """Nothing can be written any more, so the PID is missing."""
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    child = subprocess.run(
        [sys.executable, "-c", full + _HOLD, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert (child.returncode, child.stdout) == (0, "1\n"), child.stderr
    assert slots(tmp_path).path(1).read_text() == ""


def _opened_in(directory: Path) -> list[str]:
    """The files in ``directory`` that this process has open."""
    opened = []
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with suppress(OSError):  # it has been closed meanwhile
            opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - a text, whatever it leads to
    return [place for place in opened if place.startswith(str(directory.resolve()))]


def test_no_attempt_leaves_a_descriptor_behind(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        refused = [slots(tmp_path) for _ in range(20)]
        assert [lock.acquire() for lock in refused] == [None] * 20
        assert _opened_in(tmp_path) == []
        assert (tmp_path / "main.1.lock").read_text() == f"{process.pid}\n", "the number is the holder's"
    assert refused[0].acquire() == 1
    assert len(_opened_in(tmp_path)) == 1
    refused[0].release()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_lock_whose_file_is_gone_is_lost_at_the_next_heartbeat(tmp_path: Path, *, replaced: bool) -> None:
    mine = slots(tmp_path)
    mine.acquire()
    assert mine.heartbeat()
    mine.path(1).unlink()
    if replaced:
        mine.path(1).touch()
    assert (mine.heartbeat(), mine.is_held, mine.lock_id) == (False, False, None)
    assert mine.acquire() == 1
    mine.release()


# -- places that carry no lock --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o1777], ids=oct)
def test_missing_directory_is_made_for_its_user_alone(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with slots(tmp_path / "locks") as slot:
        assert slot == 1
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o700


def test_directory_that_another_process_makes_at_the_same_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with slots(tmp_path) as slot:
        assert slot == 1


@pytest.mark.parametrize(
    ("prepare", "place", "said"),
    [
        ("", "nowhere/locks", "No such file"),
        ("ln -s nowhere link", "link", "No such file"),
        ("mkdir -m 777 all", "all/locks", "is not made: every user may rename it, because .* is writable for all"),
        ("touch file", "file", "not a directory"),
        ("ln -s loop loop", "loop", "symbolic links|links lead nowhere"),
        ("ln -s elsewhere main.1.lock", "", "cannot be opened"),
        ("mkdir main.1.lock", "", "cannot be opened"),
        ("mkfifo main.1.lock", "", "not a plain file"),
    ],
)
def test_unusable_place_is_named_with_the_reason(tmp_path: Path, prepare: str, place: str, said: str) -> None:
    subprocess.run(["/bin/sh", "-c", prepare], cwd=tmp_path, check=True)
    with pytest.raises(LockError, match=said) as raised:
        slots(tmp_path / place).acquire()
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "max_procs"), [("", 1), ("a/b", 1), (".a", 1), ("a\n", 1), ("a" * 101, 1), ("a", 0)], ids=repr
)
def test_wrong_arguments_are_refused(tmp_path: Path, name: str, max_procs: int) -> None:
    with pytest.raises(ValueError, match="lock"):
        ConcurrencyLimit(tmp_path, name, max_procs)


@pytest.mark.parametrize(
    ("kind", "mounted", "is_refused"),
    [("nfs4", "here", True), ("cifs", "here", True), ("ext4", "here", False), ("nfs4", "elsewhere", False)],
)
def test_network_file_system_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mounted: str, *, is_refused: bool
) -> None:
    device = tmp_path.stat().st_dev + (mounted == "elsewhere")
    mounts = tmp_path / "mountinfo"
    rows = (
        "1 0 0:0 / / rw - tmpfs none rw",
        f"2 1 {os.major(device)}:{os.minor(device)} / /a\\040b rw shared:1 - {kind} a rw",
    )
    mounts.write_text("\n".join([*rows, "", "odd"]))
    monkeypatch.setattr(flock, "MOUNTS", mounts)
    with pytest.raises(LockError, match=f"is on {kind}") if is_refused else nullcontext():
        slots(tmp_path).acquire()
    assert len(list(tmp_path.glob("*.lock"))) == (not is_refused)


def test_kernel_knows_the_file_system_of_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flock.file_system(Path("/proc")) == "proc"
    monkeypatch.setattr(flock, "MOUNTS", tmp_path / "no such table")
    assert flock.file_system(tmp_path) == ""


# -- waiting ----------------------------------------------------------------------------------------------------------


class _Waiting:
    """A thread that waits for the lock; ``took`` gets what each wait returned."""

    def __init__(self, directory: Path) -> None:
        self.slots = slots(directory)
        self.took: list[int | None] = []
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        wait_for(lambda: _has_waiter(directory), timeout_s=60, what="it waits in the kernel")

    def _wait(self) -> None:
        self.took.append(self.slots.wait())

    def ends(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def _has_waiter(directory: Path) -> bool:
    """Whether the kernel has somebody waiting for the lock file (proc(5))."""
    inode = slots(directory).path(1).stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{inode} " in line for line in lines)


def test_end_of_the_holder_wakes_who_waits(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        waiting = _Waiting(tmp_path)
        process.kill()
        waiting.ends()
        assert (waiting.took, waiting.slots.is_held) == ([1], True)
        assert waiting.slots.path(1).read_text() == f"{os.getpid()}\n"
        waiting.slots.release()


def test_wait_for_a_file_that_was_removed_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        waiting = _Waiting(tmp_path)
        waiting.slots.path(1).unlink()
        process.kill()
        waiting.ends()
        assert (waiting.took, waiting.slots.is_held) == ([None], False)
        assert waiting.slots.wait() == 1
        waiting.slots.release()
