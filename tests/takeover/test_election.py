"""Which of the sidecars that share a run lock is the main, the standby, or leaves: in one process, without a daemon."""

from __future__ import annotations

import logging
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from harness.ports import free_ports
from harness.waiting import wait_for
from sidecar.config.slices import RunLockConfig
from sidecar.runlock.flock import FlockSlots, LockError
from sidecar.takeover import election, handover, handover_client
from sidecar.takeover.election import Election, Takeover
from sidecar.takeover.handover_client import HandoverClient

APP: Final = "shop/a"
LISTENER: Final = "public_listen"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby gives up on a main that is slow to introduce itself, which is not tested here."""
    monkeypatch.setattr(handover_client, "CONNECT_S", 30.0)


@pytest.fixture
def directory(run_dir: Path) -> Path:
    return run_dir / "lock"


def _election(directory: Path, *, modules: Sequence[str] = (), **config: Any) -> Election:
    public, local = free_ports(2)
    addresses = {LISTENER: f"127.0.0.1:{public}", "local_listen": f"127.0.0.1:{local}", "agent_listen": "off"}
    return Election(RunLockConfig(str(directory), **config), app=APP, addresses=addresses, modules=modules)


def _run(candidate: Election) -> tuple[int, list[Takeover]]:
    """The exit code, and what the candidate served with, if it did."""
    served: list[Takeover] = []
    return candidate.run(served.append), served


class Waiting:
    """A standby in a thread of its own."""

    def __init__(self, candidate: Election) -> None:
        self.code: int | None = None
        self.served: list[Takeover] = []
        self._candidate = candidate
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.code = self._candidate.run(self.served.append)

    def ends(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()

    def close(self) -> None:
        """Close what it received."""
        for takeover in self.served:
            for sockets in takeover.sockets.values():
                for opened in sockets:
                    opened.close()


def test_first_is_the_main_with_a_lock_that_is_free_again_when_it_ends(directory: Path) -> None:
    held: list[bool] = []
    candidate = _election(directory)
    code = candidate.run(lambda takeover: held.append(takeover.lock.is_held))
    assert (code, held) == (0, [True])
    code, (takeover,) = _run(candidate)
    assert (code, takeover.is_successor, dict(takeover.sockets), takeover.state) == (0, False, {}, None)
    assert (takeover.app, set(takeover.addresses)) == (APP, {LISTENER, "local_listen", "agent_listen"})


def test_main_that_fails_frees_its_lock(directory: Path) -> None:
    def fail(_takeover: Takeover) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        _election(directory).run(fail)
    assert _run(_election(directory))[1]


@pytest.mark.parametrize("standby", [True, False])
def test_third_sidecar_does_not_serve_beside_main_and_standby(
    directory: Path, *, standby: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir(0o700)
    locks = FlockSlots(directory, "main"), FlockSlots(directory, "standby")
    assert all(lock.acquire() for lock in locks)
    with caplog.at_level(logging.INFO):
        assert _run(_election(directory, standby=standby)) == (0, [])
    assert caplog.messages == ["main and standby are there: nothing to do"]
    for lock in locks:
        lock.release()


def test_second_sidecar_without_standby_leaves_at_once_and_frees_the_standby_lock(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    assert _run(_election(directory)) == (0, [])
    assert FlockSlots(directory, "standby").acquire()
    main.release()


def test_no_sidecar_slips_in_between_a_main_that_ends_and_its_standby(directory: Path) -> None:
    """The lock of the main is free for a moment; it belongs to the holder of the lock of the standby."""
    directory.mkdir(0o700)
    standby_lock = FlockSlots(directory, "standby")
    assert standby_lock.acquire()
    assert _run(_election(directory)) == (0, [])
    standby_lock.release()


def test_standby_serves_when_the_main_has_gone_and_frees_the_standby_lock(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    standby_lock = FlockSlots(directory, "standby")
    with _standby_of_a_living_main(directory) as standby:
        assert _is_taken(standby_lock)
    main.release()
    standby.ends()
    standby.close()
    assert (standby.code, [one.is_successor for one in standby.served]) == (0, [True])
    assert standby_lock.acquire()
    standby_lock.release()


def test_state_that_cannot_be_parsed_counts_as_none(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    deep = b'{"what":"state","state":' + b"[" * 99_999
    with _standby_of_a_living_main(directory, sent=handover.LENGTH.pack(len(deep)) + deep) as standby:
        pass
    main.release()
    standby.ends()
    (takeover,) = standby.served
    assert takeover.state is None
    standby.close()


def test_standby_imports_its_modules_before_the_takeover(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    assert _run(_election(directory, modules=["wave"])) == (0, [])
    assert "wave" not in sys.modules
    assert _run(_election(directory, modules=["wave"], standby=True, standby_for=0.1)) == (0, [])
    assert "wave" in sys.modules
    main.release()


def test_standby_gives_up_after_its_time(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    assert _run(_election(directory, standby=True, standby_for=0.3)) == (0, [])
    main.release()


def test_standby_has_its_sockets_before_its_turn_though_the_main_has_none_for_it(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    candidate = _election(directory, standby=True)
    with socket.socket(socket.AF_UNIX) as offering:
        offering.bind(handover.socket_path(directory))
        offering.listen()
        offering.settimeout(60)
        standby = Waiting(candidate)
        link, _ = offering.accept()
        with link:
            link.sendall(handover.message("sockets", format=handover.FORMAT, names=[], addresses={}))
            link.settimeout(60)
            assert link.recv(1) == handover.READY
            with socket.socket() as another, pytest.raises(OSError, match="in use"):
                another.bind(("127.0.0.1", int(candidate._addresses[LISTENER].rpartition(":")[2])))
            main.release()
    standby.ends()
    (takeover,) = standby.served
    assert set(takeover.sockets) == {LISTENER, "local_listen"}
    standby.close()


@contextmanager
def _standby_of_a_living_main(directory: Path, app: str = "", sent: bytes = b"") -> Iterator[Waiting]:
    """A standby that is ready, connected to a main which lives as long as the context."""
    with socket.socket(socket.AF_UNIX) as offering:
        offering.bind(handover.socket_path(directory))
        offering.listen()
        offering.settimeout(60)
        standby = Waiting(_election(directory, standby=True))
        link, _ = offering.accept()
        with link:
            link.sendall(handover.message("sockets", format=handover.FORMAT, names=[], addresses={}, app=app) + sent)
            link.settimeout(60)
            assert link.recv(1) == handover.READY
            yield standby


def test_removed_lock_file_makes_no_second_main_while_the_main_lives(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _standby_of_a_living_main(directory) as standby:
        main.path(1).unlink()
        wait_for(main.path(1).exists, timeout_s=60, what="the standby has tried the lock")
        time.sleep(2 * election.MAIN_CLOSES_S)
        assert standby.served == []
        retaken = FlockSlots(directory, "main")
        wait_for(retaken.acquire, timeout_s=60, what="the standby has let go of it")
    retaken.release()
    standby.ends()
    assert len(standby.served) == 1
    standby.close()


def test_standby_says_that_the_main_is_of_another_app(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _standby_of_a_living_main(directory, app="shop/b") as standby:
        assert "the main is of another app" in caplog.messages
    main.release()
    standby.ends()
    standby.close()


def test_standby_whose_own_file_was_removed_leaves_the_place_to_the_next(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _standby_of_a_living_main(directory) as standby:
        (directory / "standby.1.lock").unlink()
        standby.ends()
    assert (standby.code, standby.served) == (0, [])
    main.release()


def test_standby_that_lost_its_place_is_all_there_is_once_the_main_has_gone(directory: Path) -> None:
    directory.mkdir(0o700)
    standby_lock, client = FlockSlots(directory, "standby"), HandoverClient(directory, {})
    assert standby_lock.acquire()
    with socket.socket(socket.AF_UNIX) as offering:
        offering.bind(handover.socket_path(directory))
        offering.listen(1)
        linking = threading.Thread(target=client.connect)
        linking.start()
        link, _ = offering.accept()
        link.sendall(handover.message("sockets", format=handover.FORMAT, names=[], addresses={}, app=""))
        linking.join(60)
        directory.rename(directory.with_name("gone"))
        assert election.has_lost_place(standby_lock, client)
        link.close()
        assert not election.has_lost_place(standby_lock, client)
    standby_lock.release()
    client.close()


def test_standby_serves_though_the_directory_went_with_the_main(directory: Path) -> None:
    directory.mkdir(0o700)
    main = FlockSlots(directory, "main")
    assert main.acquire()
    with _standby_of_a_living_main(directory) as standby:
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
    Path(handover.socket_path(directory)).touch()
    main = Takeover(directory, lock)
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
    with pytest.raises(LockError, match="another sidecar holds its lock"):
        Takeover(directory, lock).retake()
    others.release()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777], ids=oct)
def test_directory_that_others_may_write_in_is_refused(
    directory: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.mkdir()
    directory.chmod(mode)
    assert _run(_election(directory)) == (2, [])
    assert f"others may write in it (mode {mode:o}), it must be 700" in capsys.readouterr().err


def test_directory_in_one_that_all_may_write_in_is_made_and_used(run_dir: Path) -> None:
    """As in ``alloc/tmp`` of Nomad: the tasks of the allocation can move it, which the main notices."""
    run_dir.chmod(0o777)
    directory = run_dir / "lock"
    code, (takeover,) = _run(_election(directory))
    assert code == 0
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert takeover.lock.acquire()
    directory.rename(run_dir / "moved")
    assert not takeover.is_in_place()
    takeover.retake()
    assert FlockSlots(directory, "main").acquire() is None
    takeover.lock.release()


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("none/lock", "No such file or directory"), ("x" * 100, "at most 107 bytes"), ("file", "exists")],
    ids=["nowhere", "too long", "a file"],
)
def test_directory_that_cannot_be_used_is_one_line_and_exit_2(
    run_dir: Path, path: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "file").touch()
    assert _run(_election(run_dir / path)) == (2, [])
    said = capsys.readouterr().err
    assert said.startswith("health-arbiter: ARBITER_RUN_LOCK: ")
    assert complaint in said
    assert said.count("\n") == 1


def _is_taken(standby_lock: FlockSlots) -> bool:
    if standby_lock.acquire() is None:
        return True
    standby_lock.release()
    return False
