"""What each state answers on each path, and that an answer waits for nothing and never fails the app for us."""

from __future__ import annotations

import time
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest

from harness.listeners import public_listener
from harness.raw_http import Observed, RawConnection, get
from sidecar.core.claims import Granted
from sidecar.core.life import transitions
from sidecar.core.life.container import start
from sidecar.core.life.events import StopRequested
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Latch, Policy, State
from sidecar.net.http_error import HttpError
from sidecar.server import health
from sidecar.server.health import CREDIT_S, MetricsPage, public_pages
from sidecar.server.public_http import PublicRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecar.core.life.container import Container
    from sidecar.server.public_http import PublicAnswer

STALE_S = 38.0
SENTENCE = "5 server errors in 60 s (5 of them redis), the limit is 5"
LATCH = Latch("app/a/-", 1.0, SENTENCE)
STARTING = start("app/a", 100.0, Policy())
UP = STARTING._replace(state=State.UP)
SUSPECT = UP._replace(state=State.SUSPECT)
RETIRING = UP._replace(state=State.RETIRING)
DRAINING = UP._replace(state=State.DRAINING, latch=LATCH, answer=Granted(3, 10))
DOWN = DRAINING._replace(state=State.DOWN)
STOPPING, STOPPING_DRAINING, STOPPING_DOWN = (
    transitions.step(container, StopRequested(), 105.0, Policy())[0] for container in (UP, DRAINING, DOWN)
)
EVIDENCE = Evidence(60)
POLLS = ("/health", "/health/haproxy", "/health/nomad", "/health/restart")
PATHS = (*POLLS, "/livez", "/readyz")
PAGES = ("/livez", "/readyz", "/metrics", "/why")
COST_S = 0.003


class Controller:
    """The snapshot that the listener is given, and what it reports. ``failure`` is what reading the snapshot raises."""

    def __init__(
        self, container: Container = UP, checked_at: float | None = 100.0, now: float = 105.0, *, weight: int = 100
    ) -> None:
        self.now = now
        self.weight = weight
        self.container = container
        self.checked_at = checked_at
        self.failure: Exception | None = None
        self.polls: list[tuple[str, int]] = []
        self.failures: list[Exception] = []

    def snapshot(self) -> Snapshot:
        if self.failure is not None:
            raise self.failure
        return Snapshot(self.now, self.container, EVIDENCE, self.checked_at, self.weight)

    def explain(self, limit: int) -> str:
        """The body of a "down"."""
        return "why it is down"[:limit]

    def routes(self) -> Mapping[str, Callable[[], PublicAnswer]]:
        answers = self.health()
        return {**answers.polls, **answers.probes}

    def health(self) -> health.Health:
        return health.Health(
            self.snapshot,
            stale_after_s=STALE_S,
            on_poll=lambda *poll: self.polls.append(poll),
            on_failure=self.failures.append,
            explanation=self.explain,
            clock=lambda: self.now,
        )


@pytest.mark.parametrize(
    ("container", "haproxy", "nomad", "ready"),
    [
        pytest.param(STARTING, 200, 200, 200, id="starting"),
        pytest.param(UP, 200, 200, 200, id="up"),
        pytest.param(SUSPECT, 200, 200, 200, id="suspect"),
        pytest.param(RETIRING, 200, 200, 200, id="retiring"),
        pytest.param(DRAINING, 503, 200, 200, id="draining"),
        pytest.param(DOWN, 503, 503, 200, id="down"),
        pytest.param(STOPPING, 503, 200, 503, id="stopping"),
        pytest.param(STOPPING_DRAINING, 503, 200, 503, id="stopping while draining"),
        pytest.param(STOPPING_DOWN, 503, 503, 503, id="stopping while down"),
    ],
)
def test_status_of_each_path_in_each_state(container: Container, haproxy: int, nomad: int, ready: int) -> None:
    routes = Controller(container).routes()
    assert [routes[path]().status for path in PATHS] == [haproxy, haproxy, nomad, nomad, 200, ready]


@pytest.mark.parametrize(
    ("container", "weight", "headers"),
    [
        pytest.param(UP, 100, {"X-Arbiter-Weight": "100", "X-Arbiter-State": "up"}, id="well"),
        pytest.param(STARTING, 73, {"X-Arbiter-Weight": "73", "X-Arbiter-State": "starting"}, id="starting"),
        pytest.param(SUSPECT, 50, {"X-Arbiter-Weight": "50", "X-Arbiter-State": "suspect"}, id="not so well"),
        pytest.param(
            SUSPECT,
            49,
            {"X-Arbiter-Weight": "49", "X-Arbiter-State": "suspect", "x-envoy-degraded": "true"},
            id="degraded",
        ),
        pytest.param(
            DRAINING,
            13,
            {"X-Arbiter-Weight": "0", "X-Arbiter-State": "draining", "X-Arbiter-Reason": SENTENCE},
            id="draining",
        ),
        pytest.param(
            DOWN, 100, {"X-Arbiter-Weight": "0", "X-Arbiter-State": "down", "X-Arbiter-Reason": SENTENCE}, id="down"
        ),
        pytest.param(
            STOPPING,
            100,
            {
                "X-Arbiter-Weight": "0",
                "X-Arbiter-State": "stopping",
                "X-Arbiter-Reason": "the sidecar is stopping",
            },
            id="stopping",
        ),
    ],
)
def test_headers_have_weight_state_and_reason(container: Container, weight: int, headers: dict[str, str]) -> None:
    routes = Controller(container, weight=weight).routes()
    for path in ("/health", "/health/haproxy", "/health/nomad"):
        observed = dict(routes[path]().headers)
        assert observed.pop("Content-Length").isdigit()
        assert observed.pop("Content-Type") == "text/plain; charset=utf-8"
        assert observed == headers


@pytest.mark.parametrize("reason", ["a\r\nSet-Cookie: b\0", "\u00fc\u23f1\ud800", "x" * 10_000])
def test_reason_read_from_disk_is_printable_in_a_header(reason: str) -> None:
    controller = Controller(DOWN._replace(latch=replace(LATCH, reason=reason)))
    observed = controller.routes()["/health"]().headers["X-Arbiter-Reason"]
    assert observed.isascii()
    assert observed.isprintable()
    assert 0 < len(observed) <= 120


def test_failure_of_the_sidecar_is_reported_and_the_app_is_up() -> None:
    controller = Controller(DOWN)
    controller.failure = RuntimeError("broken")
    answers = [poll() for poll in controller.health().polls.values()]
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"up\n")}
    assert controller.failures == [controller.failure] * len(answers)


@pytest.mark.parametrize(
    ("checked_at", "now", "status"),
    [
        pytest.param(None, 100.0, 503, id="not checked yet"),
        pytest.param(100.0, 100.0 + STALE_S, 200, id="still in time"),
        pytest.param(100.0, 100.1 + STALE_S, 503, id="too old"),
    ],
)
def test_livez_is_about_the_last_check(checked_at: float | None, now: float, status: int) -> None:
    routes = Controller(UP, checked_at, now).routes()
    assert routes["/livez"]().status == status
    assert routes["/readyz"]().status == (503 if checked_at is None else 200), "it has been checked once"
    assert routes["/health"]().status == 200


def test_only_health_is_counted_as_a_poll_with_its_status() -> None:
    controller = Controller(DRAINING)
    routes = controller.routes()
    for path in routes:
        routes[path]()
    assert controller.polls == [
        ("/health", 503),
        ("/health/haproxy", 503),
        ("/health/nomad", 200),
        ("/health/nomad", 200),
    ]


def test_answer_follows_state_and_weight_at_once_and_is_the_same_until_then() -> None:
    controller = Controller(UP)
    health_at = controller.routes()["/health"]
    for container, weight, status, share in (
        (UP, 100, 200, "100"),
        (UP, 70, 200, "70"),
        (DRAINING, 70, 503, "0"),
        (DOWN, 70, 503, "0"),
        (UP, 70, 200, "70"),
    ):
        controller.container, controller.weight = container, weight
        answer = health_at()
        assert (answer.status, answer.headers["X-Arbiter-Weight"]) == (status, share)
        assert health_at() is answer
    assert len(controller.polls) == 10


def test_reasons_in_an_answer_are_at_most_a_second_old() -> None:
    now, texts = [0.0], iter(("first", "second", "third"))
    health_ = health.Health(
        Controller(DOWN).snapshot,
        stale_after_s=STALE_S,
        on_poll=lambda *_: None,
        on_failure=print,
        explanation=lambda _limit: next(texts),
        clock=lambda: now[0],
    )
    said = [health_.polls["/health"]().body for now[0] in (0.0, 0.9, 1.0, 1.9, 2.0)]
    assert said == [b"first", b"first", b"second", b"second", b"third"]


# -- on the wire --------------------------------------------------------------------------------------------


def _pages(polls: health.Health) -> Callable[[PublicRequest], PublicAnswer]:
    return public_pages(polls, metrics=lambda: health.READY, why=lambda _: health.READY)


@pytest.mark.parametrize("container", [UP, DOWN], ids=["up", "down"])
async def test_head_is_get_without_the_body(container: Container) -> None:
    controller, observed = Controller(container), Observed()
    answer_to = _pages(controller.health())
    async with public_listener(observed, answer_to) as server, await RawConnection.to(server) as client:
        for path in PATHS:
            whole = await client.ask(get(path))
            head = await client.ask(get(path, method="HEAD"))
            assert (head.status, head.body) == (whole.status, b"")
            assert head.headers == {**whole.headers, "date": head.headers["date"]}
            assert parsedate_to_datetime(head.headers["date"]).timestamp() == pytest.approx(time.time(), abs=60)
    assert observed == Observed()


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /health/haproxy HTTP/1.0\r\n\r\n", id="option httpchk GET /health/haproxy"),
        pytest.param(b"OPTIONS /health/haproxy HTTP/1.0\r\n\r\n", id="option httpchk /health/haproxy"),
        pytest.param(b"GET /health/haproxy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", id="http-check send"),
    ],
)
async def test_haproxy_is_answered_as_it_asks(request_: bytes) -> None:
    controller = Controller(DRAINING)
    answer_to = _pages(controller.health())
    async with public_listener(Observed(), answer_to) as server, await RawConnection.to(server) as client:
        assert (await client.ask(request_)).status == 503
        assert await client.rest() == b""
    assert controller.polls == [("/health/haproxy", 503)]


# -- the other paths, and metrics that take a bounded share of the time ---------------------------------------------


def _request(method: str, path: str) -> PublicRequest:
    return PublicRequest(method, path, "", keeps=True)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [*POLLS, *PAGES])
def test_path_takes_get_and_head_and_a_poll_also_what_haproxy_sends_by_default(method: str, path: str) -> None:
    controller = Controller()
    answer_to = _pages(controller.health())
    if method == "OPTIONS" and path in PAGES:
        with pytest.raises(HttpError, match=f"method: {path} takes GET, HEAD") as refused:
            answer_to(_request(method, path))
        assert (refused.value.status, refused.value.headers) == (405, {"Allow": "GET, HEAD"})
    else:
        assert answer_to(_request(method, path)).status == 200
    assert len(controller.polls) == (path in POLLS)


@pytest.mark.parametrize(
    "path", ["/", "/up", "//health", "/health/", "/a/../health", "http://a/health", "*", "/" + "x" * 999]
)
def test_other_path_is_refused_with_a_sentence_of_a_bounded_length(
    path: str,
) -> None:
    answer_to = _pages(Controller().health())
    with pytest.raises(HttpError, match=r"^path: there are .*/metrics.*; .* is not served here$") as refused:
        answer_to(_request("GET", path))
    assert (refused.value.status, refused.value.word) == (404, "path")
    assert len(str(refused.value)) < 250


class Metrics:
    """A page that says when it was written, which takes ``cost_s``."""

    def __init__(self, cost_s: float = COST_S) -> None:
        self.now = 1_000.0
        self.cost_s = cost_s
        self.written = 0
        self.page = MetricsPage(self.write, lambda: self.now)

    def write(self) -> tuple[bytes, str]:
        text = f"{self.now}\n"
        self.now += self.cost_s
        self.written += 1
        return text.encode(), "text/plain; version=0.0.4"

    def age_s(self) -> float:
        """How old the page is that a request gets now."""
        asked_at = self.now
        return asked_at - float(self.page().body)


def test_endless_requests_for_metrics_take_a_fifth_of_the_time_and_get_no_old_page() -> None:
    metrics, ages = Metrics(), list[float]()
    while metrics.now < 1_010:
        ages.append(metrics.age_s())
        metrics.now += 0.0001
    assert metrics.written * COST_S == pytest.approx(10 / 5 + CREDIT_S, rel=0.05)
    assert max(ages) <= 5 * COST_S + 0.001


def test_few_requests_get_the_page_of_their_moment() -> None:
    metrics = Metrics()
    for _ in range(5):
        for _ in range(int(CREDIT_S / COST_S / 2)):
            assert metrics.age_s() == 0
        metrics.now += 1
    assert metrics.page().headers["Content-Type"] == "text/plain; version=0.0.4"


def test_process_that_was_suspended_while_it_wrote_the_page_writes_the_next_one() -> None:
    metrics = Metrics(cost_s=60.0)
    metrics.age_s()
    assert metrics.age_s() == 0
