from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from client.conftest import Listener
from harness.waiting import wait_for
from sidecar.client.emitter import QUEUE_LIMIT, Emitter, Stats
from sidecar.client.local_http import Outcome
from sidecar.client.reports import MOST, OK, errors
from sidecar.client.sums import FOLDED_SERIES, KEEP_S, KEPT_SERIES, Increment


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def emitter(listener: Listener, clock: Clock) -> Emitter:
    """On a clock that stands still, and without the thread that would send by itself: ``close`` sends."""
    emitter = Emitter(lambda: listener, clock)
    emitter._has_thread = True
    return emitter


def _error(count: int = 1, *, kind: str = "redis", message: str | None = None, app_start: str = "") -> Increment:
    return Increment(errors("server_error", kind, None, app_start), count, message)


def _repeat(times: int, act: Callable[[], object]) -> None:
    for _ in range(times):
        act()


# -- sums -------------------------------------------------------------------------------------------------------


def test_reports_leave_by_themselves_also_after_the_thread_has_ended(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.emitter.IDLE_S", 0.1)
    emitter = Emitter(lambda: listener)
    for number in range(1, 4):
        emitter.take(_error(2))
        wait_for(lambda: not emitter._has_thread, timeout_s=60, what="the thread has ended")
        assert listener.totals() == {"server_error redis": 2 * number}
        assert emitter.stats() == Stats(sent=2 * number, kept=0, dropped=0)


def test_equal_reports_are_one_object_with_the_last_message(listener: Listener, emitter: Emitter) -> None:
    for increment in (_error(message="first"), _error(message="last"), _error(), Increment(OK, 10)):
        emitter.take(increment)
    emitter.close()
    assert [(error.errors, error.message) for error in listener.errors] == [(3, "last")]
    assert listener.totals()["ok"] == 10
    assert emitter.stats() == Stats(sent=13, kept=0, dropped=0)


def test_sum_larger_than_the_listener_takes_leaves_in_pieces(listener: Listener, emitter: Emitter) -> None:
    emitter.take(_error(2 * MOST + 5))
    _repeat(3, emitter.close)
    assert [error.errors for error in listener.errors] == [MOST, MOST, 5]


def test_announcement_of_a_start_without_errors_is_sent(listener: Listener, emitter: Emitter) -> None:
    emitter.take(_error(0, app_start="7"))
    emitter.close()
    assert [(error.errors, error.app_start) for error in listener.errors] == [(0, "7")]
    assert not emitter._sums.kept


# -- bounds -----------------------------------------------------------------------------------------------------


def test_kinds_beyond_the_bound_are_counted_as_other_in_small_requests(listener: Listener, emitter: Emitter) -> None:
    for number in range(1_000):
        emitter.take(_error(kind=f"{number:064}", message="\U0001f600" * 200))
    assert len(emitter._sums.kept) <= KEPT_SERIES + FOLDED_SERIES
    emitter.close()
    totals = listener.totals()
    assert sum(totals.values()) == 1_000
    assert totals["server_error other"] > 500
    assert max(map(len, listener.bodies)) < 60_000


def test_incarnations_without_bound_are_dropped_and_counted(listener: Listener, emitter: Emitter) -> None:
    for start in range(1_000):
        emitter.take(_error(app_start=str(start)))
    sent, kept, dropped = emitter.stats()
    assert kept <= KEPT_SERIES + FOLDED_SERIES
    assert sent + kept + dropped == 1_000
    emitter.close()
    assert sum(listener.totals().values()) == sent + kept


def test_queue_behind_a_thread_that_hangs_is_bounded_and_its_caller_does_not_wait(emitter: Emitter) -> None:
    with emitter._lock:
        _repeat(QUEUE_LIMIT + 5, lambda: emitter.take(_error()))
    assert emitter.stats() == Stats(sent=0, kept=QUEUE_LIMIT, dropped=5)


# -- a sidecar that is away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.AWAY, Outcome.FULL])
def test_counts_wait_for_the_sidecar_and_gauges_do_not(
    outcome: Outcome, listener: Listener, emitter: Emitter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.emitter.EXIT_S", 0.0)
    listener.outcome = outcome
    emitter.take(_error(50))
    emitter.take_gauge("in_flight", 7)
    emitter.close()
    assert listener.posts == 1, "the results are not tried after the errors"
    clock.now += KEEP_S
    emitter.take(_error(3, kind="fresh"))
    assert emitter.stats() == Stats(sent=0, kept=53, dropped=0)
    emitter.close()
    assert emitter.stats() == Stats(sent=0, kept=3, dropped=50)
    listener.outcome = Outcome.SENT
    emitter.take(Increment(OK, 2))
    emitter.close()
    assert listener.totals() == {"server_error fresh": 3, "ok": 2}
    assert listener.results[0].in_flight is None, "requests may have come meanwhile"


@pytest.mark.parametrize("outcome", [Outcome.NOWHERE, Outcome.REFUSED])
def test_without_a_sidecar_everything_is_dropped_and_counted(
    outcome: Outcome, listener: Listener, emitter: Emitter
) -> None:
    listener.outcome = outcome
    emitter.take(_error(2))
    emitter.take(Increment(OK, 4))
    emitter.close()
    assert emitter.stats() == Stats(sent=0, kept=0, dropped=6)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.AWAY, "no sidecar answers at in memory: reports wait for at most 30 s, then they are dropped"),
        (Outcome.REFUSED, "127.0.0.1:9181 answers 400"),
    ],
)
def test_each_fault_is_said_once_in_the_log(
    outcome: Outcome, said: str, listener: Listener, emitter: Emitter, caplog: pytest.LogCaptureFixture
) -> None:
    listener.refusal = "127.0.0.1:9181 answers 400"
    for answer in (outcome, Outcome.SENT, outcome):
        listener.outcome = answer
        emitter.take(_error())
        emitter.take(Increment(OK, 1))
        emitter.close()
    assert caplog.messages == [said]
    emitter.use(lambda: listener)
    emitter.take(_error())
    emitter.close()
    assert caplog.messages == [said] * 2, "of another sidecar it is said again"


# -- threads, signals, forks, the end ---------------------------------------------------------------------------


def test_threads_lose_and_double_nothing(listener: Listener) -> None:
    emitter = Emitter(lambda: listener)
    threads = [threading.Thread(target=_repeat, args=(500, lambda: emitter.take(_error()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    emitter.close()
    assert listener.totals() == {"server_error redis": 4_000}
    assert emitter.stats() == Stats(sent=4_000, kept=0, dropped=0)


def test_signal_handler_may_report_while_its_thread_sends(
    listener: Listener, emitter: Emitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = listener.post

    def interrupted(path: str, body: bytes, now: float) -> Outcome:
        emitter.take(_error(kind="signal"))
        return post(path, body, now)

    monkeypatch.setattr(listener, "post", interrupted)
    emitter.take(_error(kind="call"))
    emitter.close()
    monkeypatch.setattr(listener, "post", post)
    emitter.close()
    assert listener.totals() == {"server_error call": 1, "server_error signal": 1}


def test_closing_does_not_wait_for_a_thread_that_hangs(emitter: Emitter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.client.emitter.EXIT_S", 0.01)
    emitter.take(_error())
    with emitter._sending:
        emitter.close()
    assert emitter.stats() == Stats(sent=0, kept=1, dropped=0)


def test_child_after_a_fork_begins_with_nothing_and_reports(listener: Listener, emitter: Emitter) -> None:
    emitter.take(_error(kind="parent"))
    with emitter._lock, emitter._sending:
        child = os.fork()
        if not child:
            emitter.start_afresh()
            emitter.take(_error(kind="child"))
            emitter.close()
            os._exit(0 if listener.totals() == {"server_error child": 1} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert emitter.stats() == Stats(sent=0, kept=1, dropped=0)
