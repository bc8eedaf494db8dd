"""The functions of ``sidecar.client``, and what only a process of its own can show: forks, ends, the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from client.statsd_receiver import Receiver, Totals
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar.client import heartbeat, report, results, stats

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


def _run_beside(receiver: Receiver, code: str) -> str:
    """The same while the receiver is read, for which the program's end waits longer than for a sidecar."""
    patient = f"from sidecar.client import emitter\nemitter.EXIT_S = 10.0\n{code}"
    program = _start(patient, ARBITER_STATSD_SOCKET=str(receiver.path))
    wait_for(lambda: receiver.read() and program.poll() is not None, timeout_s=60, what="the program ends")
    return _output(program)


def test_report_sends_everything(totals: Totals, receiver: Receiver) -> None:
    report()
    report(3, level="client_error", kind="redis", message="a, b", fingerprint="f", fatal=True, app_start="7")
    heartbeat()
    results(ok=4, failed=1)
    results()
    assert totals() == {
        "errors|level:server_error": 1,
        "errors|level:client_error,kind:redis,fingerprint:f,fatal:true,app_start:7": 3,
        "heartbeat": 1,
        "requests": 4,
        "failed": 1,
    }
    assert any(line.endswith(b",message:a; b") for line in receiver.read())


@pytest.mark.parametrize(
    ("given", "line"),
    [(0, b"in_flight:0|g"), (7, b"in_flight:7|g"), (True, b"in_flight:1|g"), (10**9, b"in_flight:1000000|g")],
    ids=["none", "some", "a bool", "more than a line holds"],
)
def test_results_send_the_requests_in_flight(given: int, line: bytes, totals: Totals, receiver: Receiver) -> None:
    results(ok=2, in_flight=given)
    totals()
    assert receiver.read() == [b"requests:2|c", line]


@pytest.mark.parametrize(
    ("given", "line"),
    [(0, b"load:0|g"), (0.7, b"load:0.7|g"), (3, b"load:3|g"), (1e300, b"load:1e+15|g"), (1e-300, b"load:0|g")],
    ids=["none", "a part", "a whole number", "more than a line holds", "less than a line holds"],
)
def test_results_send_the_load(given: float, line: bytes, totals: Totals, receiver: Receiver) -> None:
    results(ok=2, in_flight=4, load=given)
    totals()
    assert receiver.read() == [b"requests:2|c", b"in_flight:4|g", line]


@pytest.mark.parametrize("load", [-1, -0.1, float("nan"), float("inf"), "0.5", [], 10**400, 1j])
def test_load_that_is_none_is_dropped_and_raises_nothing(load: float, totals: Totals) -> None:
    dropped = stats().dropped
    results(ok=1, load=load)
    assert totals() == {}
    assert stats().dropped == dropped + 1


class Hostile:
    """Fails at whatever it is asked."""

    def __str__(self) -> str:
        raise RuntimeError("no name")

    __repr__ = __hash__ = __bool__ = __index__ = __lt__ = __str__  # type: ignore[assignment]  # the point of it


@pytest.mark.parametrize(
    "given",
    [
        {"count": -1},
        {"count": 1.5},
        {"count": "1"},
        {"count": None},
        {"count": Hostile()},
        {"level": "error"},
        {"level": Hostile()},
        {"kind": Hostile()},
        {"kind": []},
        {"message": Hostile()},
        {"fingerprint": Hostile()},
        {"fatal": Hostile()},
        {"app_start": Hostile()},
    ],
    ids=lambda given: "-".join(f"{name}={type(value).__name__}" for name, value in given.items()),
)
def test_report_that_cannot_be_sent_is_counted_and_raises_nothing(given: dict[str, Any], totals: Totals) -> None:
    before = stats().dropped
    report(**given)
    assert stats().dropped == before + 1
    assert totals() == {}


@pytest.mark.parametrize(
    "given",
    [(-1, 0), (0, -1), ("1", 0), (0, None), (1, 0, -1), (1, 0, 0.5), (1, 0, "2"), (1, 0, Hostile())],
    ids=range(8),
)
def test_results_that_cannot_be_sent_are_counted_and_raise_nothing(given: tuple[Any, ...], totals: Totals) -> None:
    before = stats().dropped
    results(*given)
    assert stats().dropped == before + 1
    assert totals() == {}


def test_environment_names_the_socket_and_the_incarnation(receiver: Receiver) -> None:
    _run("report(2)\nreport(app_start='mine')", ARBITER_STATSD_SOCKET=str(receiver.path), ARBITER_APP_START="7")
    assert receiver.totals() == {
        "errors|level:server_error,app_start:7": 2,
        "errors|level:server_error,app_start:mine": 1,
    }


def test_environment_is_read_at_the_first_report(udp_receiver: Receiver) -> None:
    _run(f"os.environ['ARBITER_STATSD_LISTEN'] = '{udp_receiver.listen}'\nreport()")
    assert udp_receiver.totals() == {"errors|level:server_error": 1}


THOUSAND = """
from sidecar.client import emitter, reporting
emitter.EXIT_S = 10.0
for _ in range(1000): report()
reporting.EMITTER.close()
print(json.dumps(stats()))
"""


@pytest.mark.parametrize(
    ("environ", "stats", "log"),
    [
        ({"ARBITER_LOCAL_LISTEN": "off"}, [0, 0, 1000], ""),
        (
            {"ARBITER_LOCAL_LISTEN": "ADDRESS"},
            [0, 1000, 0],
            "no sidecar answers at ADDRESS: reports wait for at most 30 s, ",
        ),
        ({"ARBITER_STATSD_SOCKET": "/none.sock"}, [0, 1000, 0], "no sidecar answers at /none.sock: "),
    ],
    ids=["no address", "HTTP", "datagrams"],
)
def test_without_a_sidecar_reports_wait_and_one_line_says_so(
    environ: dict[str, str], stats: list[int], log: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    environ = {name: value.replace("ADDRESS", address) for name, value in environ.items()}
    stdout, stderr = _start(THOUSAND, **environ).communicate(timeout=90)
    assert json.loads(stdout) == stats
    assert stderr.startswith(log.replace("ADDRESS", address))
    assert stderr.count("\n") == bool(log)


@pytest.mark.parametrize("configure", ["", "from sidecar.client import configure; configure(listen=LISTEN); "])
def test_name_that_would_need_a_resolver_is_said_in_the_log(configure: str) -> None:
    code = f"LISTEN = os.environ['ARBITER_LOCAL_LISTEN']; {configure}report()"
    _, stderr = _start(code, ARBITER_LOCAL_LISTEN="web.example:9180").communicate(timeout=90)
    assert stderr.startswith("no sidecar answers at web.example:9180, which is no address of numbers: ")
    assert stderr.count("\n") == 1


def test_end_of_the_process_sends_the_sums(receiver: Receiver) -> None:
    _run_beside(receiver, "for _ in range(1000): report()")
    assert receiver.totals() == {"errors|level:server_error": 1_000}


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


def test_fork_doubles_nothing_and_loses_nothing(receiver: Receiver) -> None:
    assert _run_beside(receiver, FORK) == "0\n"
    assert receiver.totals() == {
        "errors|level:server_error,kind:parent": 200,
        "errors|level:server_error,kind:child": 5,
    }


SIGNALS = """
import signal
signals = 0
def handle(*_):
    global signals
    signals += 1
    report(kind="signal")
signal.signal(signal.SIGVTALRM, handle)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
for _ in range(20000): report(kind="call")
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
print(signals)
"""


def test_signals_lose_and_double_nothing(receiver: Receiver) -> None:
    signals = int(_run_beside(receiver, SIGNALS))
    assert signals > 0
    assert receiver.totals() == {
        "errors|level:server_error,kind:call": 20_000,
        "errors|level:server_error,kind:signal": signals,
    }
