from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from client.conftest import StartEmitter
from client.statsd_receiver import Receiver
from harness.waiting import wait_for
from sidecar.client import lines
from sidecar.client.emitter import FOLDED_SERIES, KEEP_S, KEPT_SERIES, QUEUE_LIMIT, Emitter, Increment, Stats
from sidecar.client.lines import MOST
from sidecar.client.outlet import PACKET_LIMIT, RETRY_S, Outcome, Outlet, read_addresses

NAME = "errors|level:server_error"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def emitter(receiver: Receiver, start_emitter: StartEmitter, clock: Clock) -> Emitter:
    """To the unix receiver, on a clock that stands still, and without the thread that would send by itself."""
    return _by_hand(start_emitter(read_addresses(str(receiver.path)), clock))


def _by_hand(emitter: Emitter) -> Emitter:
    emitter._has_thread = True
    return emitter


def _error(count: int = 1, *, kind: str | None = None, message: str | None = None) -> Increment:
    return Increment(lines.errors("server_error", kind, None, None), count, message)


def _repeat(times: int, act: Callable[[], object]) -> None:
    for _ in range(times):
        act()


# -- one sum ----------------------------------------------------------------------------------------------------


def test_reports_leave_by_themselves_again_and_again(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(read_addresses(str(receiver.path)))
    for number in range(1, 4):
        emitter.take(_error(2, kind="redis"))
        assert wait_for(
            lambda count=2 * number: receiver.totals() == {f"{NAME},kind:redis": count},  # type: ignore[misc]
            timeout_s=60,
            what="the report has arrived",
        )
    wait_for(lambda: emitter.stats() == Stats(sent=6, kept=0, dropped=0), timeout_s=60, what="it is counted")


def test_thread_ends_without_reports_and_the_next_report_starts_another(
    receiver: Receiver, start_emitter: StartEmitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.emitter.IDLE_S", 0.1)
    emitter = start_emitter(read_addresses(str(receiver.path)))
    for number in range(1, 4):
        emitter.take(_error())
        wait_for(lambda: not emitter._has_thread, timeout_s=60, what="the thread has ended")
        assert receiver.totals() == {NAME: number}


def test_equal_reports_are_one_line_with_the_last_message(receiver: Receiver, emitter: Emitter) -> None:
    emitter.take(_error(message="first"))
    emitter.take(_error(message="last"))
    emitter.take(_error())
    emitter.take(Increment(lines.OK, 10))
    emitter.flush()
    assert receiver.read() == [b"errors:3|c|#level:server_error,message:last", b"requests:10|c"]
    assert emitter.stats() == Stats(sent=13, kept=0, dropped=0)


def test_sum_larger_than_a_line_takes_leaves_in_pieces(receiver: Receiver, emitter: Emitter) -> None:
    emitter.take(_error(2 * MOST + 5))
    _repeat(3, emitter.flush)
    assert [int(line.split(b":")[1].split(b"|")[0]) for line in receiver.read()] == [MOST, MOST, 5]


def test_announcement_of_nothing_is_a_report(receiver: Receiver, emitter: Emitter) -> None:
    emitter.take(Increment(lines.errors("server_error", None, None, "7"), 0))
    assert receiver.totals_of(emitter) == {f"{NAME},app_start:7": 0}
    assert not emitter._kept


# -- bounds -----------------------------------------------------------------------------------------------------


def test_kinds_beyond_the_bound_are_counted_as_other(receiver: Receiver, emitter: Emitter) -> None:
    for number in range(1_000):
        emitter.take(_error(kind=f"kind{number}"))
    assert len(emitter._kept) <= KEPT_SERIES + FOLDED_SERIES
    totals = receiver.totals_of(emitter)
    assert sum(totals.values()) == 1_000
    assert totals[f"{NAME},kind:other"] > 500


def test_incarnations_without_bound_are_dropped_and_counted(receiver: Receiver, emitter: Emitter) -> None:
    for start in range(1_000):
        emitter.take(Increment(lines.errors("server_error", None, None, str(start)), 1))
    sent, kept, dropped = emitter.stats()
    assert kept <= KEPT_SERIES + FOLDED_SERIES
    assert sent + kept + dropped == 1_000
    assert sum(receiver.totals_of(emitter).values()) == sent + kept


def test_packets_stay_small(receiver: Receiver, emitter: Emitter) -> None:
    for number in range(200):
        emitter.take(_error(kind="k" * 60 + str(number), message="m" * 200))
    assert sum(receiver.totals_of(emitter).values()) == 200
    assert max(map(len, receiver.packets)) <= PACKET_LIMIT


def test_queue_behind_a_thread_that_hangs_is_bounded_and_its_caller_does_not_wait(emitter: Emitter) -> None:
    with emitter._lock:
        _repeat(QUEUE_LIMIT + 5, lambda: emitter.take(_error()))
    assert emitter.stats() == Stats(sent=0, kept=QUEUE_LIMIT, dropped=5)


# -- a sidecar that is away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_udp", [False, True], ids=["unix", "UDP"])
def test_counts_wait_for_a_sidecar_that_restarts(
    run_dir: Path, start_emitter: StartEmitter, clock: Clock, *, is_udp: bool
) -> None:
    first = Receiver() if is_udp else Receiver(run_dir / "statsd.sock")
    port = first.port if is_udp else 0
    emitter = _by_hand(
        start_emitter(read_addresses("", first.listen) if is_udp else read_addresses(str(first.path)), clock)
    )
    emitter.take(_error())
    assert first.totals_of(emitter) == {NAME: 1}
    first.close()
    _repeat(50, lambda: emitter.take(_error()))
    emitter.flush()
    assert emitter.stats() == Stats(sent=1, kept=50, dropped=0)
    with Receiver(first.path, port) as second:
        clock.now += RETRY_S
        assert second.totals_of(emitter) == {NAME: 50}


def test_gauge_is_not_kept_for_a_sidecar_that_is_away(receiver: Receiver, emitter: Emitter, clock: Clock) -> None:
    """By the time it is heard, requests may have come."""
    receiver.close()
    emitter.take(Increment(lines.OK, 2))
    emitter.take(Increment(lines.IN_FLIGHT, 1, "0"))
    emitter.flush()
    assert emitter.stats() == Stats(sent=0, kept=2, dropped=1)
    clock.now += RETRY_S
    with Receiver(receiver.path) as new:
        emitter.flush()
        assert new.read() == [b"requests:2|c"]


def test_old_counts_are_dropped_and_counted(run_dir: Path, start_emitter: StartEmitter, clock: Clock) -> None:
    emitter = _by_hand(start_emitter(read_addresses(str(run_dir / "statsd.sock")), clock))
    emitter.take(_error(50))
    clock.now += KEEP_S
    emitter.take(_error(kind="fresh"))
    emitter.flush()
    assert emitter.stats() == Stats(sent=0, kept=1, dropped=50)


def test_without_a_place_everything_is_dropped_and_counted(start_emitter: StartEmitter) -> None:
    emitter = _by_hand(start_emitter(()))
    _repeat(3, lambda: emitter.take(_error(2)))
    emitter.flush()
    assert emitter.stats() == Stats(sent=0, kept=0, dropped=6)


# -- threads, signals, forks, the end ---------------------------------------------------------------------------


def test_threads_lose_and_double_nothing(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(read_addresses(str(receiver.path)))
    threads = [threading.Thread(target=_repeat, args=(500, lambda: emitter.take(_error()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        receiver.read()
    assert receiver.totals_of(emitter) == {NAME: 4_000}
    assert emitter.stats() == Stats(sent=4_000, kept=0, dropped=0)


class Interrupted(Outlet):
    """A signal arrives in the middle of every packet, and its handler reports, too."""

    emitter: Emitter
    signals = 3

    def send(self, packet: bytes, now: float) -> Outcome:
        if self.signals:
            self.signals -= 1
            self.emitter.take(_error(kind="signal"))
        return super().send(packet, now)


def test_signal_handler_may_report_while_its_thread_does(receiver: Receiver, emitter: Emitter) -> None:
    outlet = Interrupted(read_addresses(str(receiver.path)))
    outlet.emitter = emitter
    emitter.use(lambda: outlet)
    emitter.take(_error(kind="call"))
    _repeat(4, emitter.flush)
    assert receiver.totals() == {f"{NAME},kind:call": 1, f"{NAME},kind:signal": 3}


def test_closing_sends_the_sums(receiver: Receiver, emitter: Emitter) -> None:
    _repeat(100, lambda: emitter.take(_error()))
    emitter.close()
    assert receiver.totals() == {NAME: 100}


def test_closing_does_not_wait_long_for_a_sidecar_that_hangs(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = _by_hand(start_emitter(read_addresses(str(receiver.path))))
    for number in range(100):
        emitter.take(_error(kind=f"{number}", message="m" * 200))
    closing = threading.Thread(target=emitter.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert emitter.stats().kept > 0


def test_child_after_a_fork_begins_with_nothing_and_reports(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(read_addresses(str(receiver.path)))
    emitter.take(_error(kind="parent"))
    wait_for(lambda: emitter.stats().sent, timeout_s=60, what="the parent has sent")
    with emitter._lock, emitter._sending:
        child = os.fork()
        if not child:
            emitter.after_fork()
            emitter.take(_error(kind="child"))
            emitter.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert receiver.totals() == {f"{NAME},kind:parent": 1, f"{NAME},kind:child": 1}
