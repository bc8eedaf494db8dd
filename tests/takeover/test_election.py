"""Who may be main, who waits, and who leaves: several that share a run lock, in one process and without a daemon."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from harness.ports import free_ports
from harness.waiting import wait_for
from sidecar.config.settings import Settings, load
from sidecar.runlock.flock import FlockSlots, LockError
from sidecar.takeover import election, handover, inherited_sockets
from sidecar.takeover.election import Succession
from sidecar.takeover.inherited_sockets import Inheritance

DOOR: Final = "public_listen"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby whose main takes too long to say who it is goes on without; that is not what is tried here."""
    monkeypatch.setattr(inherited_sockets, "CONNECT_S", 30.0)


@pytest.fixture
def directory(run_dir: Path) -> Path:
    return run_dir / "lock"


def _settings(directory: Path, **more: str) -> Settings:
    public, local = free_ports(2)
    doors = {DOOR: f"127.0.0.1:{public}", "local_listen": f"127.0.0.1:{local}", "agent_listen": "off"}
    return load({"run_lock": str(directory), **doors, **more}, {})


def _run(settings: Settings) -> tuple[int, list[Succession]]:
    """The exit code, and what it served with if it did."""
    served: list[Succession] = []
    return election.run(settings, served.append), served


class Waiting:
    """A standby in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        self.code: int | None = None
        self.served: list[Succession] = []
        self._settings = settings
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.code = election.run(self._settings, self.served.append)

    def ends(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()

    def close(self) -> None:
        """Close what it was given."""
        for succession in self.served:
            for several in succession.sockets.values():
                for opened in several:
                    opened.close()


def test_first_is_the_main_with_a_lock_that_is_free_again_when_it_ends(directory: Path) -> None:
    held: list[bool] = []
    settings = _settings(directory)
    code = election.run(settings, lambda succession: held.append(succession.lock.is_held))
    assert (code, held) == (0, [True])
    code, (succession,) = _run(settings)
    assert (code, succession.is_second, dict(succession.sockets), succession.state) == (0, False, {}, None)


def test_main_that_fails_frees_its_lock(directory: Path) -> None:
    def fail(_succession: Succession) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        election.run(_settings(directory), fail)
    assert _run(_settings(directory))[1]


@pytest.mark.parametrize("standby", ["true", "false"])
def test_nobody_serves_while_main_and_standby_are_there(
    directory: Path, standby: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir(0o700)
    locks = FlockSlots(directory, "main"), FlockSlots(directory, "standby")
    assert all(lock.acquire() for lock in locks)
    with caplog.at_level(logging.INFO):
        assert _run(_settings(directory, standby=standby)) == (0, [])
    assert caplog.messages == ["main and standby are there: nothing to do"]
    for lock in locks:
        lock.release()


def test_second_that_is_no_standby_leaves_at_once_and_does_not_stay_in_line(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    assert _run(_settings(directory)) == (0, [])
    assert FlockSlots(directory, "standby").acquire()
    main.release()


def test_nobody_comes_between_a_main_that_ends_and_its_standby(directory: Path) -> None:
    """The main lock is free for a moment; who holds the other one is to have it."""
    directory.mkdir(0o700)
    turn = FlockSlots(directory, "standby")
    assert turn.acquire()
    assert _run(_settings(directory)) == (0, [])
    turn.release()


def test_standby_serves_when_the_main_has_gone_and_is_no_longer_in_line(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    turn = FlockSlots(directory, "standby")
    with _waiting_for_a_main_that_lives(directory) as standby:
        assert _is_taken(turn)
    main.release()
    standby.ends()
    standby.close()
    assert (standby.code, [one.is_second for one in standby.served]) == (0, [True])
    assert turn.acquire()
    turn.release()


def test_state_that_nobody_can_read_is_none_and_the_past_is_for_who_knows_it(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    deep, past = b'{"what":"state","state":' + b"[" * 99_999, handover.message("past", past={})
    with _waiting_for_a_main_that_lives(directory, said=handover.LENGTH.pack(len(deep)) + deep + past) as standby:
        pass
    main.release()
    standby.ends()
    (succession,) = standby.served
    assert succession.state is None
    assert succession.past is not None
    assert succession.past[0] == past[handover.LENGTH.size :]
    standby.close()


def test_standby_has_loaded_what_it_needs_for_its_turn_and_nobody_else_has(directory: Path) -> None:
    code = f"""
import sys
import sidecar.app.daemon, sidecar.app.listeners
from sidecar.config.settings import load
needed = {{"sidecar.takeover.main_process", "sidecar.takeover.past", "sidecar.takeover.state_transfer"}}
assert not needed & set(sys.modules), needed & set(sys.modules)
from sidecar.takeover import election
election._load(load({{"run_lock": {str(directory)!r}}}, {{}}))
assert needed <= set(sys.modules), needed - set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_standby_does_not_wait_for_longer_than_it_was_told(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    assert _run(_settings(directory, standby="true", standby_for="1100ms", run_every="1s")) == (0, [])
    main.release()


def test_standby_has_its_sockets_before_its_turn_though_the_main_has_none_for_it(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    settings = _settings(directory, standby="true")
    with socket.socket(socket.AF_UNIX) as offering:
        offering.bind(handover.path(directory))
        offering.listen()
        offering.settimeout(10)
        standby = Waiting(settings)
        link, _ = offering.accept()
        with link:
            link.sendall(handover.message("sockets", format=handover.FORMAT, names=[], addresses={}))
            link.settimeout(10)
            assert link.recv(1) == handover.READY
            with socket.socket() as another, pytest.raises(OSError, match="in use"):
                another.bind(("127.0.0.1", int(settings.public_listen.rpartition(":")[2])))
            main.release()
    standby.ends()
    (succession,) = standby.served
    assert set(succession.sockets) == {DOOR, "local_listen"}
    standby.close()


@contextmanager
def _waiting_for_a_main_that_lives(directory: Path, app: str = "", said: bytes = b"") -> Iterator[Waiting]:
    """A standby that is told by a main, which stays there for as long as the context lasts."""
    with socket.socket(socket.AF_UNIX) as offering:
        offering.bind(handover.path(directory))
        offering.listen()
        offering.settimeout(10)
        standby = Waiting(_settings(directory, standby="true"))
        link, _ = offering.accept()
        with link:
            link.sendall(handover.message("sockets", format=handover.FORMAT, names=[], addresses={}, app=app) + said)
            link.settimeout(10)
            assert link.recv(1) == handover.READY
            yield standby


def test_lock_whose_file_was_removed_makes_nobody_main_while_the_main_lives(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _waiting_for_a_main_that_lives(directory) as standby:
        main.path(1).unlink()
        wait_for(main.path(1).exists, timeout_s=30, what="the standby has tried the lock")
        time.sleep(2 * election.GONE_S)
        assert standby.served == []
        retaken = FlockSlots(directory, "main")
        wait_for(retaken.acquire, timeout_s=30, what="the standby has let go of it")
    retaken.release()
    standby.ends()
    assert len(standby.served) == 1
    standby.close()


def test_standby_says_that_the_main_is_of_another_app(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _waiting_for_a_main_that_lives(directory, app="shop/b") as standby:
        assert "the main is of another app" in caplog.messages
    main.release()
    standby.ends()
    standby.close()


def test_standby_whose_own_file_was_removed_leaves_the_place_to_the_next(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _waiting_for_a_main_that_lives(directory) as standby:
        (directory / "standby.1.lock").unlink()
        standby.ends()
    assert (standby.code, standby.served) == (0, [])
    main.release()


def test_standby_that_lost_its_place_is_all_there_is_once_the_main_has_gone(directory: Path) -> None:
    directory.mkdir(0o700)
    turn, inherited_sockets = FlockSlots(directory, "standby"), Inheritance(directory, {})
    assert turn.acquire()
    with socket.socket(socket.AF_UNIX) as offering:
        offering.bind(handover.path(directory))
        offering.listen(1)
        linking = threading.Thread(target=inherited_sockets.link)
        linking.start()
        link, _ = offering.accept()
        link.sendall(handover.message("sockets", format=handover.FORMAT, names=[], addresses={}, app=""))
        linking.join(10)
        directory.rename(directory.with_name("gone"))
        assert election._has_lost(turn, inherited_sockets)
        link.close()
        assert not election._has_lost(turn, inherited_sockets)
    turn.release()
    inherited_sockets.close()


def test_standby_serves_though_the_directory_went_with_the_main(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _waiting_for_a_main_that_lives(directory) as standby:
        pass
    directory.rename(directory.with_name("gone"))
    standby.ends()
    main.release()
    assert (standby.code, len(standby.served)) == (0, 1)
    assert directory.is_dir()
    standby.close()


@pytest.mark.parametrize("is_all_gone", [False, True], ids=["file removed", "directory removed"])
def test_main_takes_its_lock_anew(directory: Path, *, is_all_gone: bool) -> None:
    directory.mkdir(0o700)
    lock = FlockSlots(directory, "main")
    assert lock.acquire()
    Path(handover.path(directory)).touch()
    main = Succession(directory, lock)
    assert main.is_in_place()
    if is_all_gone:
        shutil.rmtree(directory)
    else:
        lock.path(1).unlink()
    assert not main.is_in_place()
    main.retake()
    assert FlockSlots(directory, "main").acquire() is None
    lock.release()


def test_main_does_not_take_a_lock_that_another_has_by_now(directory: Path) -> None:
    directory.mkdir(0o700)
    lock, others = FlockSlots(directory, "main"), FlockSlots(directory, "main")
    assert lock.acquire()
    lock.path(1).unlink()
    assert others.acquire()
    with pytest.raises(LockError, match="another has its lock"):
        Succession(directory, lock).retake()
    others.release()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777], ids=oct)
def test_directory_that_others_may_write_in_is_refused(
    directory: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.mkdir()
    directory.chmod(mode)
    assert _run(_settings(directory)) == (2, [])
    assert f"others may write in it (mode {mode:o}), it must be 700" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("none/lock", "No such file or directory"), ("x" * 100, "at most 107 bytes"), ("file", "exists")],
    ids=["nowhere", "too long", "a file"],
)
def test_directory_that_cannot_be_used_is_one_line_and_exit_2(
    run_dir: Path, path: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "file").touch()
    assert _run(_settings(run_dir / path)) == (2, [])
    said = capsys.readouterr().err
    assert said.startswith("health-arbiter: ARBITER_RUN_LOCK: ")
    assert complaint in said
    assert said.count("\n") == 1


def _is_taken(turn: FlockSlots) -> bool:
    if turn.acquire() is None:
        return True
    turn.release()
    return False
