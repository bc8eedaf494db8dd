"""What survives a killed sidecar, on disks that fail in every way we can make them fail."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from harness.cases import cases
from sidecar.controller import journal as journal_module
from sidecar.controller.journal import Journal, SavedIncarnation
from sidecar.core.claims import RandomIdentity
from sidecar.core.types import Latch, Policy, State

TOP = Path(__file__).parents[2]
BOUND_S = 0.05

UNNAMED = SavedIncarnation("web/a", None, "-")
NAMED = SavedIncarnation("web/a", "boot-1", "boot-1")
RETIRED = SavedIncarnation(
    "web/a",
    "boot-1",
    "boot-1",
    Latch("", 1_700_000_000.25, "retired at age 6h", lease="lease-1"),
    1_699_990_000.5,
    RandomIdentity("lease-1", 0.25),
)
LATCHED = SavedIncarnation("web/a", "boot-2", "-", Latch("web/a/-", 1_700_000_000.25, "5 server errors in 60 s"))


class Kept:
    """A journal and the failures it told."""

    def __init__(self, directory: Path | None, app: str = "web/a") -> None:
        self.failures: list[tuple[str, Exception]] = []
        self.journal = Journal(directory, app, lambda operation, error: self.failures.append((operation, error)))

    @property
    def told(self) -> list[str]:
        return [operation for operation, _ in self.failures]

    @property
    def path(self) -> Path:
        assert self.journal.path is not None
        return self.journal.path

    async def load(self) -> SavedIncarnation | None:
        return await self.journal.load(10)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


# -- what was saved is loaded -------------------------------------------------------------------------------


@cases(
    "saved",
    {
        "unnamed": UNNAMED,
        "named": NAMED,
        "latched": LATCHED,
        "retired": RETIRED,
        "at its port": replace(NAMED, socket="4711"),
        "not ASCII": replace(NAMED, app_start="später", incarnation="☃"),
    },
)
async def test_saved_incarnation_is_loaded_by_the_next_sidecar(
    kept: Kept, tmp_path: Path, saved: SavedIncarnation
) -> None:
    await kept.journal.save(saved)
    assert await Kept(tmp_path).load() == saved
    assert kept.failures == []


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_saving_leaves_no_file_open(kept: Kept) -> None:
    await kept.journal.save(NAMED)
    before = _open_files()
    for saved in (LATCHED, NAMED):
        await kept.journal.save(saved)
    assert _open_files() == before


def test_saved_incarnation_goes_on_as_its_container() -> None:
    unix = 1_700_000_004.25
    culled = LATCHED.container(100.0, unix, Policy(), RandomIdentity("lease-2"))
    assert (culled.state, culled.due, culled.latch) == (State.DRAINING, 106.0, LATCHED.latch)
    assert (culled.app_start, culled.claim_id, culled.asked) == ("boot-2", "web/a/-", True)
    assert (culled.born, culled.identity) == (100.0, RandomIdentity("lease-2"))
    retired = RETIRED.container(100.0, unix, Policy(), RandomIdentity("lease-2"))
    assert (retired.lease, retired.born, retired.identity) == ("lease-1", 100.0 - 10_003.75, RETIRED.identity)
    shadow = LATCHED.container(100.0, unix, Policy(enforce=False), RandomIdentity("lease-2"))
    assert (shadow.state, shadow.latch, shadow.claim_id) == (State.STARTING, None, "web/a/-")


@cases(
    "owner, mode, reason",
    {
        "own": (0, 0o600, ""),
        "others may read it": (0, 0o644, ""),
        "another user": (12_345, 0o600, "belongs to user 12345"),
        "the group may write it": (0, 0o620, "can be written by other users"),
        "all may write it": (0, 0o602, "can be written by other users"),
    },
)
async def test_file_that_another_user_may_have_planted_is_not_believed(
    kept: Kept, owner: int, mode: int, reason: str
) -> None:
    await kept.journal.save(LATCHED)
    if owner and os.geteuid():
        pytest.skip("only root gives files away")
    if owner:
        os.chown(kept.path, owner, -1)
    kept.path.chmod(mode)
    assert await kept.load() == (None if reason else LATCHED)
    assert [operation for operation, error in kept.failures if reason in str(error)] == (["read"] if reason else [])
    await kept.journal.save(LATCHED)
    assert await kept.load() == LATCHED


async def test_file_of_root_is_believed_by_another_user(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    await kept.journal.save(LATCHED)
    owner = kept.path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert await kept.load() == (None if owner else LATCHED)


async def test_without_a_directory_nothing_is_kept_and_nothing_fails() -> None:
    kept = Kept(None)
    await kept.journal.save(LATCHED)
    await kept.journal.settled(10)
    assert await kept.load() is None
    assert kept.failures == []


async def test_file_of_another_app_is_not_read(tmp_path: Path) -> None:
    one, other = Kept(tmp_path, "web/../a\n\0ä"), Kept(tmp_path, "web_.._a\0\nä")
    assert one.path == other.path
    assert one.path.parent == tmp_path
    await one.journal.save(replace(LATCHED, app="web/../a\n\0ä"))
    assert await other.load() is None
    assert other.failures == []


async def test_file_is_for_us_alone_whatever_the_umask(kept: Kept) -> None:
    umask = os.umask(0)
    try:
        await kept.journal.save(LATCHED)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


# -- files that say something else --------------------------------------------------------------------------


def written(**changes: Any) -> bytes:
    return json.dumps({"format": 1, **asdict(LATCHED), **changes}).encode()


def latch(**changes: Any) -> bytes:
    return written(latch={"claim_id": "web/a/-", "at": 1.0, "reason": "many", **changes})


@cases(
    "content",
    {
        "nested too deeply": b"[" * 50_000,
        "format alone": b'{"format": 1}',
        "another format": written(format=2),
        "app is a number": written(app=7),
        "app_start is a list": written(app_start=["boot-1"]),
        "born is a text": written(born="yesterday"),
        "born is never": written(born=float("inf")),
        "part is nothing": written(identity=["lease-1", None]),
        "lease is nothing": latch(lease=None),
        "latch with a field too many": latch(by="me"),
        "at is beyond floats": latch(at=10**400),
        "too long": written(reason="x" * 100_000),
    },
)
async def test_file_that_makes_no_sense_is_reported_and_forgotten(kept: Kept, content: bytes) -> None:
    kept.path.write_bytes(content)
    assert await kept.load() is None
    assert kept.told == ["read"]
    await kept.journal.save(NAMED)
    assert await kept.load() == NAMED


async def test_file_cut_off_anywhere_is_reported_and_forgotten(kept: Kept) -> None:
    await kept.journal.save(LATCHED)
    whole = kept.path.read_bytes().rstrip()
    for length in range(len(whole)):
        kept.path.write_bytes(whole[:length])
        assert await kept.load() is None
    assert kept.told == ["read"] * len(whole)


# -- disks that fail ----------------------------------------------------------------------------------------


async def test_missing_directory_costs_persistence_alone(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "missing")
    assert await kept.load() is None
    await kept.journal.save(LATCHED)
    assert [(operation, type(error)) for operation, error in kept.failures] == [("write", FileNotFoundError)]


@pytest.mark.parametrize("device", ["/proc/self/mem", "/dev/zero"], ids=["unreadable", "endless"])
async def test_device_in_the_place_of_the_file_is_reported(kept: Kept, device: str) -> None:
    kept.path.symlink_to(device)
    assert await kept.load() is None
    assert kept.told == ["read"]


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
async def test_planted_link_is_not_followed(kept: Kept, tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    plant(kept.path.with_suffix(".new"), precious)
    await kept.journal.save(LATCHED)
    assert await kept.load() == LATCHED
    assert (precious.read_text(), kept.failures) == ("keep", [])


def run(program: str, directory: Path) -> str:
    """Standard output of a program in a process of its own, which has to end by itself."""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from sidecar.controller.journal import Journal, SavedIncarnation
journal = Journal(Path(sys.argv[1]), "web/a", lambda operation, error: print(operation, type(error).__name__))
asyncio.run(journal.save(SavedIncarnation("web/a", "old", "old")))
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
asyncio.run(journal.save(SavedIncarnation("web/a", "new", "new")))
"""


async def test_disk_that_takes_a_part_and_is_full_leaves_the_earlier_file_whole(kept: Kept, tmp_path: Path) -> None:
    assert run(FULL_DISK, tmp_path) == "write OSError\n"
    assert kept.path.with_suffix(".new").stat().st_size == 40
    assert await kept.load() == SavedIncarnation("web/a", "old", "old")


# -- a disk that hangs --------------------------------------------------------------------------------------


@contextmanager
def hanging(function: str) -> Iterator[None]:
    """Make the journal's work on the disk wait until the context ends."""
    goes_on, original = threading.Event(), getattr(journal_module, function)

    def hang(*arguments: object) -> object:
        goes_on.wait(60)
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, function, hang)
        try:
            yield
        finally:
            goes_on.set()


async def test_hanging_disk_holds_up_start_and_claim_for_their_bound_and_piles_up_no_writes(kept: Kept) -> None:
    incarnations = [replace(LATCHED, incarnation=f"boot-{number}") for number in range(1000)]
    with hanging("_read"), hanging("_replace"):
        assert await kept.journal.load(BOUND_S) is None
        saving = [asyncio.create_task(kept.journal.save(saved)) for saved in incarnations]
        await asyncio.sleep(0)
        await kept.journal.settled(BOUND_S)
        assert [(operation, type(error)) for operation, error in kept.failures] == [
            ("read", TimeoutError),
            ("wait", TimeoutError),
        ]
        assert sum(not task.done() for task in saving) == 2
    await asyncio.gather(*saving)
    assert await kept.load() == incarnations[-1]


# -- killed while writing -----------------------------------------------------------------------------------

KILLS = 20
KILLED_WRITERS = f"""
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from sidecar.core.types import Latch
from sidecar.controller.journal import Journal, SavedIncarnation
small = SavedIncarnation("web/a", "s", "s")
large = SavedIncarnation("web/a", "l" * 9000, "l", Latch("web/a/l", 1.5, "r" * 9000))
incarnations = [small, large]
journal = Journal(Path(sys.argv[1]), "web/a", lambda operation, error: print(operation, error))
async def write():
    for number in range(100_000):
        await journal.save(incarnations[number % 2])
seen = set()
for kill in range({KILLS}):
    while threading.active_count() > 1:  # that of the last read is about to end, and must not be in the middle of it
        time.sleep(0.001)
    writer = os.fork()
    if not writer:
        asyncio.run(write())
        os._exit(0)
    ends_at = time.monotonic() + 0.01 + kill * 0.0013
    while time.monotonic() < ends_at or not seen.issuperset(incarnations):
        seen.add(asyncio.run(journal.load(10)))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    saved = asyncio.run(journal.load(10))
    assert saved in incarnations, saved
seen.discard(None)  # before the first write
print(sorted(saved.app_start[0] for saved in seen))
"""


def test_reader_finds_one_whole_file_while_writers_are_killed(tmp_path: Path) -> None:
    assert run(KILLED_WRITERS, tmp_path) == "['l', 's']\n"
