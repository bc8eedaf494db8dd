"""A sidecar in memory, to which the functions of ``sidecar.client`` post."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sidecar.client import configure, exceptions, reporting
from sidecar.client.exchange import CURRENT
from sidecar.client.local_http import LocalHttp, Outcome
from sidecar.client.reporting import EMITTER
from sidecar.core.app_reports import ErrorReport, Results
from sidecar.inputs.report_bodies import read_errors, read_results

Totals = Callable[[], dict[str, int]]
"""What the client has sent since the last call: ``ok``, ``failed``, ``heartbeat``, and errors by level and kind."""


def failed(kind: str) -> dict[str, int]:
    """The totals of one failed request with one error of this kind."""
    return {"failed": 1, f"server_error {kind}": 1}


class Listener(LocalHttp):
    """Reads what is posted as the sidecar does: it raises at what a sidecar refuses. ``outcome`` is its answer."""

    def __init__(self) -> None:
        super().__init__("in memory")
        self.outcome = Outcome.SENT
        self.errors: list[ErrorReport] = []
        self.results: list[Results] = []
        self.heartbeats = self.posts = 0
        self.bodies: list[bytes] = []

    def post(self, path: str, body: bytes, now: float, timeout_s: float) -> Outcome:
        del now, timeout_s
        self.posts += 1
        if self.outcome is Outcome.SENT:
            self.bodies.append(body)
            if path == "/errors":
                self.errors += read_errors(body)
            elif path == "/results":
                self.results.append(read_results(body))
            else:
                assert (path, body) == ("/heartbeat", b"")
                self.heartbeats += 1
        return self.outcome

    def totals(self) -> dict[str, int]:
        totals = Counter({"heartbeat": self.heartbeats})
        for results in self.results:
            totals.update(ok=results.ok, failed=results.failed)
        for error in self.errors:
            totals[f"{error.level.value} {error.kind}"] += error.errors
        return {name: count for name, count in totals.items() if count}


@pytest.fixture(scope="session", autouse=True)
def _nowhere() -> None:
    """Keep reports of this process from a sidecar that another test runs at the default address."""
    configure()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a machine that stops for seconds the same results: for two reports of one exception, and for ``close``."""
    CURRENT.set(None)  # the middleware for WSGI leaves its request there
    monkeypatch.setattr(exceptions, "SAME_S", 3600.0)
    monkeypatch.setattr(reporting, "EXIT_S", 60.0)


@pytest.fixture
def listener() -> Iterator[Listener]:
    """What the functions of ``sidecar.client`` post to."""
    EMITTER.close()  # what other tests have reported to nowhere
    listener = Listener()
    EMITTER.use(lambda: listener)
    yield listener
    configure()
    EMITTER.close()


@pytest.fixture
def totals(listener: Listener) -> Totals:
    before = Counter[str]()

    def totals() -> dict[str, int]:
        nonlocal before
        EMITTER.close()
        earlier, before = before, Counter(listener.totals())
        return dict(before - earlier)

    return totals
