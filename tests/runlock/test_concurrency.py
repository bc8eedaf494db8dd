"""The limit and its standby over files: which process gets a lock, after how many attempts and waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sidecar.runlock import ConcurrencyLimit, LockError, WithStandby


class Nap:
    """A sleep that takes no time, and calls ``happens`` at the n-th call."""

    def __init__(self, at: int = 0, happens: Callable[[], None] = lambda: None) -> None:
        self.naps: list[float] = []
        self._at = at
        self._happens = happens

    def __call__(self, seconds: float) -> None:
        self.naps.append(seconds)
        if len(self.naps) == self._at:
            self._happens()


def pair(directory: Path, nap: Nap, retries: int | None = 10, interval_s: float = 0.5) -> WithStandby:
    return WithStandby(
        ConcurrencyLimit(directory),
        ConcurrencyLimit(directory, name="standby"),
        retries=retries,
        interval_s=interval_s,
        sleep=nap,
    )


# -- the limit ------------------------------------------------------------------------------------------------------


def test_block_gives_the_first_free_id_or_none_and_ends_the_lock_also_by_an_exception(tmp_path: Path) -> None:
    limits = [ConcurrencyLimit(tmp_path, max_procs=2) for _ in range(3)]
    with suppress(KeyError), limits[0] as first, limits[1] as second, limits[2] as late:
        assert [first, second, late] == [1, 2, None]
        assert [limit.lock_id for limit in limits] == [1, 2, None]
        assert (limits[2].is_held, limits[2].heartbeat()) == (False, False)
        raise KeyError
    assert [limit.is_held for limit in limits] == [False] * 3


# -- the standby ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 10])
def test_retries_are_waits_and_then_both_locks_are_free(tmp_path: Path, retries: int) -> None:
    nap = Nap()
    with ConcurrencyLimit(tmp_path):
        assert pair(tmp_path, nap, retries=retries).acquire() is None
        with ConcurrencyLimit(tmp_path, name="standby") as standby:
            assert (nap.naps, standby) == ([0.5] * retries, 1)


@pytest.mark.parametrize("at", [1, 3, 10])
def test_a_standby_takes_over_after_the_wait_in_which_main_came_free(tmp_path: Path, at: int) -> None:
    main = ConcurrencyLimit(tmp_path)
    main.acquire()
    nap = Nap(at, main.release)
    standby = pair(tmp_path, nap)
    with standby as lock_id, ConcurrencyLimit(tmp_path, name="standby") as next_standby:
        assert (lock_id, len(nap.naps), next_standby, standby.heartbeat()) == (1, at, 1, True)
    assert not standby.heartbeat()


def test_third_process_leaves_without_a_wait(tmp_path: Path) -> None:
    nap = Nap(1, lambda: third.append(pair(tmp_path, Nap()).acquire()))
    third: list[int | None] = []
    with ConcurrencyLimit(tmp_path):
        pair(tmp_path, nap).acquire()
    assert third == [None]


def test_exception_from_sleep_ends_the_wait_with_nothing_held(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with ConcurrencyLimit(tmp_path), pytest.raises(KeyboardInterrupt):
        pair(tmp_path, Nap(2, stop)).acquire()
    with ConcurrencyLimit(tmp_path, name="standby") as standby:
        assert standby == 1


def test_a_standby_whose_lock_was_taken_from_it_leaves(tmp_path: Path) -> None:
    nap = Nap(3, (tmp_path / "standby.1.lock").unlink)
    with ConcurrencyLimit(tmp_path):
        assert pair(tmp_path, nap).acquire() is None
    assert len(nap.naps) == 3


def test_lock_error_of_main_ends_the_standby(tmp_path: Path) -> None:
    main = ConcurrencyLimit(tmp_path)
    main.acquire()

    def spoil() -> None:
        (tmp_path / "main.1.lock").unlink()
        (tmp_path / "main.1.lock").mkdir()

    with pytest.raises(LockError, match=r"main\.1\.lock"):
        pair(tmp_path, Nap(1, spoil)).acquire()
    with ConcurrencyLimit(tmp_path, name="standby") as standby:
        assert standby == 1
    main.release()


def test_a_standby_has_its_name_while_it_waits_and_then_the_old_one(tmp_path: Path) -> None:
    comm, names = Path("/proc/self/comm"), []
    before = comm.read_text()
    limits = ConcurrencyLimit(tmp_path), ConcurrencyLimit(tmp_path, name="standby")
    nap = Nap(1, lambda: names.append(comm.read_text()))
    with ConcurrencyLimit(tmp_path):
        WithStandby(*limits, retries=1, process_name="waiting", sleep=nap).acquire()
    assert (names, comm.read_text()) == (["waiting\n"], before)


@pytest.mark.parametrize(
    ("retries", "interval_s", "said"), [(-1, 1, "negative"), (None, 0, "use up"), (3, -1, "use up")], ids=str
)
def test_wrong_waits_are_refused(tmp_path: Path, retries: int | None, interval_s: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pair(tmp_path, Nap(), retries=retries, interval_s=interval_s)


def test_locks_in_files_load_neither_redis_nor_other_heavy_modules() -> None:
    heavy = ("redis", "asyncio", "pydantic", "aiohttp", "subprocess", "ctypes", "sidecar.runlock.leases")
    program = f"import sys, sidecar.runlock; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.strip() == "[]"
