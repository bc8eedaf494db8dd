from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from client.conftest import StartEmitter
from client.statsd_receiver import Receiver
from harness.waiting import wait_for
from sidecar.client import lines
from sidecar.client.emitter import (
    FOLDED_SERIES,
    KEEP_S,
    KEPT_SERIES,
    MOST,
    PACE_S,
    PACKET_LIMIT,
    QUEUE_LIMIT,
    Emitter,
    Increment,
    Stats,
)
from sidecar.client.outlet import RETRY_S, Outcome, Outlet, places

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
    emitter = start_emitter(places(str(receiver.path)), clock)
    emitter._flushing = True
    return emitter


def _error(count: int = 1, *, kind: str | None = None, message: str | None = None) -> Increment:
    return Increment(lines.errors("server_error", kind, None, None), count, message)


def _repeat(times: int, act: Callable[[], object]) -> None:
    for _ in range(times):
        act()


def test_report_leaves_with_the_call(receiver: Receiver, emitter: Emitter) -> None:
    emitter.take(_error(2, kind="redis"))
    assert receiver.read() == [b"errors:2|c|#level:server_error,kind:redis"]
    assert emitter.stats() == Stats(sent=2, kept=0, dropped=0)


def test_nothing_is_lost_when_the_queue_is_full(receiver: Receiver, emitter: Emitter) -> None:
    _repeat(1_000, lambda: emitter.take(_error()))
    stats = emitter.stats()
    assert stats.kept > 900
    assert stats.sent + stats.kept == 1_000
    assert receiver.totals_of(emitter) == {NAME: 1_000}
    assert emitter.stats() == Stats(sent=1_000, kept=0, dropped=0)


def test_full_queue_costs_one_packet_not_one_for_each_call(receiver: Receiver, emitter: Emitter) -> None:
    _repeat(1_000, lambda: emitter.take(_error()))
    waiting = len(receiver.read())
    receiver.totals_of(emitter)
    assert len(receiver.packets) == waiting + 1


def test_sum_leaves_with_the_next_call(receiver: Receiver, emitter: Emitter) -> None:
    _repeat(100, lambda: emitter.take(_error(kind="redis")))
    receiver.read()
    emitter.take(_error(kind="mysql"))
    assert receiver.totals() == {f"{NAME},kind:redis": 100, f"{NAME},kind:mysql": 1}


def test_sum_leaves_by_itself_when_no_call_comes(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(places(str(receiver.path)))
    _repeat(100, lambda: emitter.take(_error()))
    assert wait_for(lambda: receiver.totals() == {NAME: 100}, timeout_s=60, what="the sum has arrived")


def test_last_message_goes_with_the_sum(receiver: Receiver, emitter: Emitter) -> None:
    while not emitter.stats().kept:
        emitter.take(_error(message="first"))
    emitter.take(_error(message="last"))
    emitter.take(_error())
    receiver.read()
    emitter.flush()
    assert receiver.read()[-1] == b"errors:3|c|#level:server_error,message:last"


def test_results_are_added_up_and_errors_are_not_held_back(receiver: Receiver, emitter: Emitter, clock: Clock) -> None:
    emitter.take(_error())
    receiver.read()
    _repeat(10, lambda: emitter.take(Increment(lines.OK, 1, urgent=False)))
    assert receiver.totals() == {NAME: 1}
    clock.now += PACE_S
    emitter.take(Increment(lines.OK, 1, urgent=False))
    assert receiver.totals() == {NAME: 1, "requests": 11}
    emitter.take(Increment(lines.OK, 1, urgent=False))
    emitter.take(_error())
    assert receiver.totals() == {NAME: 2, "requests": 12}


def test_gauge_is_not_kept_for_a_sidecar_that_is_away(receiver: Receiver, emitter: Emitter, clock: Clock) -> None:
    """By the time it is heard, requests may have come."""
    receiver.close()
    emitter.take(Increment(lines.OK, 2, urgent=False))
    emitter.take(Increment(lines.IN_FLIGHT, 1, "0", urgent=False))
    emitter.flush()
    assert emitter.stats() == Stats(sent=0, kept=2, dropped=1)
    clock.now += RETRY_S
    with Receiver(receiver.path) as new:
        emitter.flush()
        assert new.read() == [b"requests:2|c"]


def test_results_of_a_quiet_app_leave_by_themselves(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(places(str(receiver.path)))
    _repeat(3, lambda: emitter.take(Increment(lines.OK, 1, urgent=False)))
    assert wait_for(lambda: receiver.totals() == {"requests": 3}, timeout_s=60, what="all results have arrived")


def test_kinds_beyond_the_bound_are_counted_as_other(receiver: Receiver, emitter: Emitter) -> None:
    numbers = iter(range(1_000))
    _repeat(1_000, lambda: emitter.take(_error(kind=f"kind{next(numbers)}")))
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


def test_sum_larger_than_a_line_takes_leaves_in_pieces(receiver: Receiver, emitter: Emitter) -> None:
    emitter.take(_error(2 * MOST + 5))
    emitter.flush()
    emitter.flush()
    assert [int(line.split(b":")[1].split(b"|")[0]) for line in receiver.read()] == [MOST, MOST, 5]


def test_announcement_of_nothing_leaves_even_when_it_had_to_wait(receiver: Receiver, emitter: Emitter) -> None:
    _repeat(100, lambda: emitter.take(_error()))
    emitter.take(Increment(lines.errors("server_error", None, None, "7"), 0))
    assert receiver.totals_of(emitter) == {NAME: 100, f"{NAME},app_start:7": 0}
    assert not emitter._kept


def test_counts_wait_for_a_sidecar_that_is_away(run_dir: Path, start_emitter: StartEmitter, clock: Clock) -> None:
    path = run_dir / "statsd.sock"
    emitter = start_emitter(places(str(path)), clock)
    _repeat(50, lambda: emitter.take(_error()))
    assert emitter.stats() == Stats(sent=0, kept=50, dropped=0)
    with Receiver(path) as receiver:
        clock.now += RETRY_S
        assert receiver.totals_of(emitter) == {NAME: 50}


def test_counts_wait_for_a_sidecar_over_udp(udp_receiver: Receiver, start_emitter: StartEmitter, clock: Clock) -> None:
    port = udp_receiver.port
    emitter = start_emitter(places("", udp_receiver.listen), clock)
    emitter.take(_error())
    assert udp_receiver.totals() == {NAME: 1}
    udp_receiver.close()
    _repeat(50, lambda: emitter.take(_error()))
    assert emitter.stats() == Stats(sent=1, kept=50, dropped=0)
    with Receiver(port=port) as receiver:
        clock.now += RETRY_S
        assert receiver.totals_of(emitter) == {NAME: 50}


def test_nothing_is_lost_when_the_sidecar_restarts(receiver: Receiver, emitter: Emitter, clock: Clock) -> None:
    assert receiver.path
    emitter.take(_error())
    heard = receiver.totals()[NAME]
    receiver.close()
    _repeat(50, lambda: emitter.take(_error()))
    with Receiver(receiver.path) as new:
        clock.now += RETRY_S
        emitter.take(_error())
        assert heard + new.totals_of(emitter)[NAME] == 52


def test_old_counts_are_dropped_and_counted(run_dir: Path, start_emitter: StartEmitter, clock: Clock) -> None:
    path = run_dir / "statsd.sock"
    emitter = start_emitter(places(str(path)), clock)
    emitter.take(_error(50))
    clock.now += KEEP_S
    emitter.take(_error(kind="fresh"))
    assert emitter.stats() == Stats(sent=0, kept=1, dropped=50)


def test_without_a_place_everything_is_dropped_and_counted(start_emitter: StartEmitter) -> None:
    emitter = start_emitter(())
    _repeat(3, lambda: emitter.take(_error(2)))
    assert emitter.stats() == Stats(sent=0, kept=0, dropped=6)


def test_threads_lose_and_double_nothing(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(places(str(receiver.path)))
    threads = [threading.Thread(target=_repeat, args=(500, lambda: emitter.take(_error()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        receiver.read()
    assert receiver.totals_of(emitter) == {NAME: 4_000}
    assert emitter.stats() == Stats(sent=4_000, kept=0, dropped=0)


def test_call_does_not_wait_for_a_thread_that_sends(receiver: Receiver, emitter: Emitter) -> None:
    with emitter._lock:
        emitter.take(_error())
        assert receiver.read() == []
        assert emitter.stats() == Stats(sent=0, kept=1, dropped=0)
    emitter.take(_error())
    assert receiver.totals() == {NAME: 2}


def test_queue_behind_a_thread_that_hangs_is_bounded(emitter: Emitter) -> None:
    with emitter._lock:
        _repeat(QUEUE_LIMIT + 5, lambda: emitter.take(_error()))
    assert emitter.stats() == Stats(sent=0, kept=QUEUE_LIMIT, dropped=5)


class Interrupted(Outlet):
    """A signal arrives in the middle of every packet, and its handler reports, too."""

    emitter: Emitter
    signals = 3

    def send(self, packet: bytes, now: float) -> Outcome:
        if self.signals:
            self.signals -= 1
            self.emitter.take(_error(kind="signal"))
        return super().send(packet, now)


def test_signal_handler_may_report_while_its_thread_does(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(())
    outlet = Interrupted(lambda: places(str(receiver.path)))
    outlet.emitter = emitter
    emitter.use(outlet)
    emitter.take(_error(kind="call"))
    assert receiver.totals() == {f"{NAME},kind:call": 1, f"{NAME},kind:signal": 3}


def test_closing_sends_the_sums(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(places(str(receiver.path)))
    _repeat(100, lambda: emitter.take(_error()))
    receiver.read()
    emitter.close()
    assert receiver.totals() == {NAME: 100}


def test_closing_does_not_wait_long_for_a_sidecar_that_hangs(receiver: Receiver, start_emitter: StartEmitter) -> None:
    emitter = start_emitter(places(str(receiver.path)))
    _repeat(100, lambda: emitter.take(_error()))
    closing = threading.Thread(target=emitter.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert emitter.stats().kept > 0


def test_child_after_a_fork_begins_with_nothing(receiver: Receiver, emitter: Emitter) -> None:
    _repeat(100, lambda: emitter.take(_error()))
    emitter._lock.acquire()
    emitter.after_fork()
    assert emitter.stats() == Stats(sent=0, kept=0, dropped=0)
    receiver.read()
    emitter.take(_error(kind="child"))
    assert receiver.totals()[f"{NAME},kind:child"] == 1
