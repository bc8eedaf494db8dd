"""The functions of ``sidecar.client``, the emitter, and what only a process of its own can show: forks, the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client.conftest import Listener, Totals
from harness.http_server import Asked, Said, http_server
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.client import heartbeat, report, reporting, results, stats
from sidecar.client.local_http import Outcome
from sidecar.client.reporting import QUEUE_LIMIT, Emitter, Stats
from sidecar.client.sums import KEEP_S, OK, ReportSeries, errors
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Results
from sidecar.inputs.report_bodies import read_errors

ROOT = Path(__file__).parents[2]


def _start(code: str, **environ: str) -> subprocess.Popen[str]:
    """Start a program that has ``report`` and ``stats``, with only these settings of the sidecar in its environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ARBITER_")}
    return subprocess.Popen(
        [sys.executable, "-c", f"import json, os, sys\nfrom sidecar.client import report, stats\n{code}"],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _output(program: subprocess.Popen[str]) -> str:
    """What it prints, once it has ended well and without a word on stderr."""
    stdout, stderr = program.communicate(timeout=90)
    assert (program.returncode, stderr) == (0, "")
    return stdout


def _run(code: str, **environ: str) -> str:
    return _output(_start(code, **environ))


PATIENT = "from sidecar.client import reporting; reporting.EXIT_S = reporting.TIMEOUT_S = 60.0\n"
"""The end of the program waits longer than for a sidecar."""


def test_report_sends_everything(totals: Totals, listener: Listener) -> None:
    report(message="\ud800\u20ac")
    report(3, level="client_error", kind="redis", message="a, b" * 99, fingerprint="f", fatal=True, app_start="7")
    heartbeat()
    results(ok=4, failed=1)
    results()
    totals()
    assert listener.errors == [
        ErrorReport(1, message="?\u20ac"),
        ErrorReport(3, ErrorLevel.CLIENT_ERROR, "redis", ("a, b" * 99)[:200], "f", fatal=True, app_start="7"),
    ]
    assert listener.results == [Results(4, 1)]
    assert listener.heartbeats == 1


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"ok": 2}, Results(2)),
        ({"ok": 2, "in_flight": 0}, Results(2, 0, 0)),
        ({"in_flight": 7}, Results(0, 0, 7)),
        ({"in_flight": 10**9}, Results(0, 0, 1_000_000)),
        ({"ok": 2, "in_flight": 4, "load": 0.7}, Results(2, 0, 4, 0.7)),
        ({"load": 1e300}, Results(0, 0, None, 1e300)),
        ({"load": 0}, Results(0, 0, None, 0.0)),
    ],
    ids=["none", "idle", "some", "more than the listener takes", "load", "great load", "no load"],
)
def test_results_send_the_requests_in_flight_and_the_load(
    given: dict[str, Any], sent: Results, totals: Totals, listener: Listener
) -> None:
    results(**given)
    totals()
    assert listener.results == [sent]


class Hostile:
    """Fails at whatever it is asked."""

    def __str__(self) -> str:
        raise RuntimeError("no name")

    __repr__ = __hash__ = __bool__ = __index__ = __lt__ = __str__  # type: ignore[assignment]  # the point of it


@pytest.mark.parametrize(
    ("function", "given"),
    [
        *((report, {"count": count}) for count in (-1, None, Hostile())),
        *((report, {field: Hostile()}) for field in ("kind", "message", "fatal", "app_start")),
        (report, {"level": "error"}),
        *((results, {"ok": ok}) for ok in (-1, Hostile())),
        *((results, {"failed": failed}) for failed in (-1, None)),
        *((results, {"ok": 1, "in_flight": number}) for number in (-1, 0.5, Hostile())),
        *((results, {"ok": 1, "load": load}) for load in (-0.1, float("nan"), float("inf"), "0.5", 10**400)),
    ],
    ids=lambda value: "" if callable(value) else "-".join(f"{name}={type(value[name]).__name__}" for name in value),
)
def test_what_cannot_be_sent_is_counted_and_raises_nothing(
    function: Callable[..., None], given: dict[str, Any], totals: Totals
) -> None:
    before = stats().dropped
    function(**given)
    assert stats().dropped == before + 1
    assert totals() == {}


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


def _error(kind: str = "redis") -> ReportSeries:
    return errors("server_error", kind, None, None)


def _repeat(times: int, act: Callable[[], object]) -> None:
    for _ in range(times):
        act()


# -- the emitter -------------------------------------------------------------------------------------------------------


def test_reports_leave_by_themselves_also_after_the_thread_has_ended(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.reporting.IDLE_S", 0.1)
    emitter = Emitter(lambda: listener)
    for number in range(1, 4):
        emitter.take(_error(), 2)
        wait_for(lambda: not emitter._has_thread, timeout_s=60, what="the thread has ended")
        assert listener.totals() == {"server_error redis": 2 * number}
        assert emitter.stats() == Stats(sent=2 * number, kept=0, dropped=0)


# -- bounds -----------------------------------------------------------------------------------------------------


def test_queue_behind_a_thread_that_hangs_is_bounded_and_its_caller_does_not_wait(emitter: Emitter) -> None:
    _repeat(QUEUE_LIMIT + 5, lambda: emitter.take(_error(), 1))
    assert emitter.stats() == Stats(sent=0, kept=QUEUE_LIMIT, dropped=5)


# -- a sidecar that is away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.AWAY, Outcome.FULL])
def test_counts_wait_for_the_sidecar_and_gauges_do_not(
    outcome: Outcome, listener: Listener, emitter: Emitter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.client.reporting.EXIT_S", 0.0)
    listener.outcome = outcome
    emitter.take(_error(), 50)
    emitter.take_gauge("in_flight", 7)
    emitter.close()
    assert listener.posts == 1, "the results are not tried after the errors"
    clock.now += KEEP_S
    emitter.take(_error("fresh"), 3)
    assert emitter.stats() == Stats(sent=0, kept=53, dropped=0)
    emitter.close()
    assert emitter.stats() == Stats(sent=0, kept=3, dropped=50)
    listener.outcome = Outcome.SENT
    emitter.take(OK, 2)
    emitter.close()
    assert listener.totals() == {"server_error fresh": 3, "ok": 2}
    assert listener.results[0].in_flight is None, "requests may have come meanwhile"


def test_without_a_sidecar_everything_is_dropped_and_counted(listener: Listener, emitter: Emitter) -> None:
    listener.outcome = Outcome.USELESS
    emitter.take(_error(), 2)
    emitter.take(OK, 4)
    emitter.close()
    assert emitter.stats() == Stats(sent=0, kept=0, dropped=6)


@pytest.mark.parametrize(
    ("outcome", "waiting"),
    [(Outcome.AWAY, ": reports wait for at most 30 s, then they are dropped"), (Outcome.USELESS, "")],
)
def test_each_fault_is_said_once_in_the_log(
    outcome: Outcome, waiting: str, listener: Listener, emitter: Emitter, caplog: pytest.LogCaptureFixture
) -> None:
    for answer, fault in ((Outcome.SENT, ""), (outcome, "odd"), (Outcome.SENT, "odd"), (outcome, "odd")):
        listener.outcome, listener.fault = answer, fault
        emitter.take(_error(), 1)
        emitter.take(OK, 1)
        emitter.close()
    assert caplog.messages == [f"odd{waiting}"]
    emitter.use(lambda: listener)
    emitter.take(_error(), 1)
    emitter.close()
    assert caplog.messages == [f"odd{waiting}"] * 2, "of another sidecar it is said again"


# -- threads, signals, forks, the end ---------------------------------------------------------------------------


def test_threads_lose_and_double_nothing(listener: Listener) -> None:
    emitter = Emitter(lambda: listener)
    threads = [threading.Thread(target=_repeat, args=(500, lambda: emitter.take(_error(), 1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    emitter.close()
    assert listener.totals() == {"server_error redis": 4_000}
    assert emitter.stats() == Stats(sent=4_000, kept=0, dropped=0)


def test_closing_does_not_wait_for_a_thread_that_hangs(emitter: Emitter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.client.reporting.EXIT_S", 0.01)
    emitter.take(_error(), 1)
    with emitter._sending:
        emitter.close()
    assert emitter.stats() == Stats(sent=0, kept=1, dropped=0)


def test_at_the_end_a_sidecar_that_takes_no_more_is_asked_again_after_a_pause(
    listener: Listener, emitter: Emitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        listener.outcome = Outcome.SENT if len(naps) == 2 else Outcome.FULL

    monkeypatch.setattr(reporting, "time", SimpleNamespace(sleep=nap))
    listener.outcome = Outcome.FULL
    emitter.take(_error(), 1)
    emitter.close()
    assert (len(naps), emitter.stats()) == (2, Stats(sent=1, kept=0, dropped=0))


# -- processes of their own, which post to a listener -----------------------------------------------------------------


@pytest.fixture
def posted() -> Iterator[tuple[str, Counter[str]]]:
    """The address of a listener, and its errors by kind and start."""
    errors: Counter[str] = Counter()

    def take(asked: Asked) -> Said:
        for error in read_errors(asked.body):
            errors[f"{error.kind} {error.app_start or ''}".strip()] += error.errors
        return Said(202)

    with http_server(take) as port:
        yield f"127.0.0.1:{port}", errors


Posted = tuple[str, Counter[str]]


def test_environment_is_read_at_the_first_report(posted: Posted) -> None:
    address, errors = posted
    code = f"os.environ['ARBITER_LOCAL_LISTEN'] = '{address}'\nreport(2)\nreport(app_start='mine')"
    _run(code, ARBITER_APP_START="7")
    assert errors == {"unknown 7": 2, "unknown mine": 1}


@pytest.mark.parametrize(
    ("listen", "configured", "stats", "log"),
    [
        ("off", "", [0, 0, 1000], ""),
        ("ADDRESS", "", [0, 1000, 0], "no sidecar answers at ADDRESS: reports wait for at most 30 s, "),
        ("web.example:9180", "", [0, 1000, 0], "no sidecar answers at web.example:9180, which is no address of n"),
        ("off", "configure(listen='ADDRESS')", [0, 1000, 0], "no sidecar answers at ADDRESS: "),
    ],
    ids=["off", "nobody listens", "a name", "configured"],
)
def test_without_a_sidecar_reports_wait_and_one_line_says_so(
    listen: str, configured: str, stats: list[int], log: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    code = f"""
from sidecar.client import configure, reporting
{configured}
for _ in range(1000): report()
reporting.EMITTER.close()
print(json.dumps(stats()))
""".replace("ADDRESS", address)
    program = _start(PATIENT + code, ARBITER_LOCAL_LISTEN=listen.replace("ADDRESS", address))
    stdout, stderr = program.communicate(timeout=30)  # it does not end only when the thread does, after 35 s
    assert json.loads(stdout) == stats
    assert stderr.startswith(log.replace("ADDRESS", address))
    assert stderr.count("\n") == bool(log)


FORK = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 of a fork beside threads
for _ in range(100): report(kind="parent")
pid = os.fork()
if pid == 0:
    begun = stats()
    report(5, kind="child")
    sys.exit(0 if begun == (0, 0, 0) and stats().sent + stats().kept == 5 else 3)
for _ in range(100): report(kind="parent")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_fork_and_the_end_of_a_process_lose_and_double_nothing(posted: Posted) -> None:
    address, errors = posted
    assert _run(PATIENT + FORK, ARBITER_LOCAL_LISTEN=address) == "0\n"
    assert errors == {"parent": 200, "child": 5}


SIGNALS = """
import signal
signals = 0
def handle(*_):
    global signals
    signals += 1
    report(kind="signal")
signal.signal(signal.SIGVTALRM, handle)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
for _ in range(9000): report(kind="call")
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
print(signals)
"""


def test_signals_lose_and_double_nothing(posted: Posted) -> None:
    address, errors = posted
    signals = int(_run(PATIENT + SIGNALS, ARBITER_LOCAL_LISTEN=address))
    assert signals > 0
    assert errors == {"call": 9_000, "signal": signals}
