"""The run lock of the sidecar: who becomes the main, who waits, and what happens to removed files."""

from __future__ import annotations

import asyncio
import logging
import shutil
import stat
import threading
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.waiting import eventually, wait_for
from sidecar.app import build, daemon, run_lock
from sidecar.app.run_lock import RunLock
from sidecar.config.load import load
from sidecar.runlock import ConcurrencyLimit, LockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOUND_S: Final = 60


@pytest.fixture
def directory(run_dir: Path) -> Path:
    return run_dir / "lock"


@pytest.fixture
def main(directory: Path) -> Iterator[RunLock]:
    """The lock of a sidecar that runs."""
    lock = RunLock(directory, waits=True)
    assert lock.acquire()
    yield lock
    lock.release()


class Standby:
    """A standby that waits in a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self.lock = RunLock(directory, waits=True)
        self.became_main: bool | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.became_main = self.lock.acquire()

    def ends(self) -> None:
        """Wait until it waits no more."""
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()


@contextmanager
def _standby(directory: Path, main: RunLock) -> Iterator[Standby]:
    standby = Standby(directory)
    wait_for(main.is_awaited, timeout_s=BOUND_S, what="it waits")
    yield standby
    main.release()
    standby.ends()
    standby.lock.release()


def _is_free(directory: Path, name: str = "main") -> bool:
    probe = ConcurrencyLimit(directory, name)
    is_free = probe.acquire() is not None
    probe.release()
    return is_free


def _is_in_place(lock: RunLock) -> bool:
    """Whether others find its file, be it the first or one that it made anew."""
    return lock._main.is_in_place()


def _kept(lock: RunLock, is_done: Callable[[], object]) -> list[Exception]:
    """Check the lock as a sidecar does, until ``is_done``; the failures."""
    failures: list[Exception] = []

    async def keep() -> None:
        keeping = asyncio.create_task(lock.keep(failures.append))
        await eventually(lambda: is_done() or len(failures) > 1, timeout_s=BOUND_S, what="the lock is kept")
        keeping.cancel()

    asyncio.run(keep())
    return failures


# -- who becomes the main ---------------------------------------------------------------------------------------------


def test_standby_becomes_the_main_when_the_main_has_ended(directory: Path, main: RunLock) -> None:
    assert (_is_free(directory), _is_free(directory, "standby")) == (False, True)
    with _standby(directory, main) as standby:
        assert (standby.became_main, _is_free(directory, "standby")) == (None, False)
        main.release()
        standby.ends()
        assert standby.became_main
        assert (_is_free(directory), _is_free(directory, "standby")) == (False, True)


def test_second_without_standby_is_not_needed(directory: Path, main: RunLock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert not RunLock(directory, waits=False).acquire()
    assert caplog.messages == ["a main is there: nothing to do"]
    assert not main.is_awaited()


@pytest.mark.parametrize("waits", [True, False], ids=["as standby", "without standby"])
def test_third_is_not_needed(directory: Path, main: RunLock, caplog: pytest.LogCaptureFixture, *, waits: bool) -> None:
    with _standby(directory, main):
        caplog.set_level(logging.INFO)
        assert not RunLock(directory, waits=waits).acquire()
        assert caplog.messages[-1:] == ["main and standby are there: nothing to do"]


def test_sidecar_is_not_turned_away_by_a_check_of_the_main(directory: Path, main: RunLock) -> None:
    main.release()
    held = ConcurrencyLimit(directory, "standby")
    assert held.acquire()
    later = Standby(directory)
    held.release()
    later.ends()
    assert later.became_main
    later.lock.release()


# -- the main looks after its lock ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
def test_main_knows_whether_it_has_a_standby(directory: Path, main: RunLock, *, is_there: bool) -> None:
    held = ConcurrencyLimit(directory, "standby")
    if is_there:
        assert held.acquire()
    main.has_standby = not is_there
    assert _kept(main, lambda: main.has_standby is is_there) == []
    assert main.is_awaited() is is_there
    held.release()


@pytest.mark.parametrize("is_all_gone", [False, True], ids=["file removed", "directory removed"])
async def test_standby_stays_one_while_the_main_takes_its_lock_anew(
    directory: Path,
    main: RunLock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_all_gone: bool,
) -> None:
    monkeypatch.setattr(run_lock, "CHECK_S", 0.01)
    with _standby(directory, main) as standby:
        await eventually(lambda: _waiters(directory) == 1, timeout_s=BOUND_S, what="it waits in the kernel")
        if is_all_gone:
            shutil.rmtree(directory)
        else:
            (directory / "main.1.lock").unlink()
        keeping = asyncio.create_task(main.keep(print))
        await eventually((directory / "main.1.lock").exists, timeout_s=BOUND_S, what="the lock is taken anew")
        await eventually(lambda: _waiters(directory) == 1, timeout_s=BOUND_S, what="the standby waits for the new file")
        keeping.cancel()
        assert "run lock taken anew: its file was removed" in caplog.messages
        assert standby.became_main is None
        main.release()
        standby.ends()
        assert standby.became_main


def _waiters(directory: Path) -> int:
    """The processes and threads that wait for the lock file of the main, as the kernel lists them."""
    inode = (directory / "main.1.lock").stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and f":{inode} " in line for line in lines)


def test_standby_serves_though_the_directory_went_with_the_main(directory: Path, main: RunLock) -> None:
    with _standby(directory, main) as standby:
        wait_for(lambda: _waiters(directory) == 1, timeout_s=BOUND_S, what="it waits in the kernel")
        directory.rename(directory.with_name("gone"))
        main.release()
        standby.ends()
        assert standby.became_main
        assert not _is_free(directory)


def test_lock_that_another_sidecar_has_by_now_is_a_failure_that_is_tried_again(
    directory: Path, main: RunLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "CHECK_S", 0.01)
    (directory / "main.1.lock").unlink()
    other = ConcurrencyLimit(directory, "main")
    assert other.acquire()
    failures = _kept(main, lambda: False)
    assert "another sidecar holds its lock" in str(failures[0])
    other.release()
    assert _kept(main, partial(_is_in_place, main)) == []
    assert not _is_free(directory)


# -- the directory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777], ids=oct)
def test_directory_that_others_may_write_in_is_refused(directory: Path, mode: int) -> None:
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(LockError, match=rf"others may write in it \(mode {mode:o}\), it must be 700"):
        RunLock(directory, waits=True).acquire()


def test_directory_in_one_that_all_may_write_in_is_made_and_used(run_dir: Path, directory: Path) -> None:
    """As in ``alloc/tmp`` of Nomad: the tasks of the allocation can move it, which the main notices."""
    run_dir.chmod(0o777)
    lock = RunLock(directory, waits=True)
    assert lock.acquire()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.rename(run_dir / "moved")
    assert _kept(lock, partial(_is_in_place, lock)) == []
    assert not _is_free(directory)
    lock.release()


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("none/lock", "No such file or directory"), ("file", "exists")],
    ids=["nowhere", "a file"],
)
def test_directory_that_cannot_be_used_is_an_error_that_says_why(run_dir: Path, path: str, complaint: str) -> None:
    (run_dir / "file").touch()
    with pytest.raises(LockError, match=complaint):
        RunLock(run_dir / path, waits=True).acquire()


# -- from the settings -------------------------------------------------------------------------------------------------

EVERYTHING = {
    "redis_url": "redis://localhost",
    "statsd_listen": "127.0.0.1:8125",
    "scrape_url": "http://127.0.0.1:9000/metrics",
    "scrape_errors": "errors_total",
    "app_port": "8080",
    "webhook_url": "http://a/hook",
}


@pytest.mark.parametrize(("settings", "count"), [({}, 1), (EVERYTHING, 5)], ids=["nothing", "everything"])
def test_standby_imports_the_modules_that_its_configuration_needs(settings: dict[str, str], count: int) -> None:
    modules = daemon._imported_late(load(settings, {}))
    assert len(modules) == count
    assert ("sidecar.store.redis_client" in modules) is ("redis_url" in settings)
    assert [name for name in modules if find_spec(name) is None] == []


@pytest.mark.parametrize(("standby", "shown"), [("true", 0.0), ("false", None)])
def test_lock_of_the_settings_shows_its_standby_only_if_one_may_wait(
    tmp_path: Path, standby: str, shown: float | None
) -> None:
    config = load({"run_lock": str(tmp_path), "standby": standby}, {})
    metrics = build.metrics_of(config)
    lock = daemon.run_lock(config, metrics)
    assert metrics.registry.get_sample_value("arbiter_standby_ready") == shown
    assert lock.acquire()
    assert (tmp_path / "main.1.lock").exists()
    second = daemon.run_lock(config._replace(process=config.process._replace(standby=False)), metrics)
    assert not second.acquire()
    lock.release()
