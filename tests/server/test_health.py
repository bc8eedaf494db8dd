"""What each state answers on each path, and that an answer waits for nothing and never fails the app for us."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request

from harness.raw_http import Observed, RawConnection, get, listening
from harness.virtual_time import in_virtual_time
from sidecar.core.life import transitions
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.life.triggers import StopRequested
from sidecar.core.types import Denied, Evidence, Granted, Judgement, Latch, Policy, Reason, State, Unknown, Verdict
from sidecar.net import request_head
from sidecar.server import health
from sidecar.server.health_cache import HealthCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from sidecar.core.life.container import Container
    from sidecar.net.web import Routes

STALE_S = 38.0
SENTENCE = "5 server errors in 60 s (5 of them redis), the limit is 5"
LATCH = Latch("app/a/-", 1.0, SENTENCE)
STARTING = start("app/a", 100.0, Policy())
UP = replace(STARTING, state=State.UP)
SUSPECT = replace(UP, state=State.SUSPECT)
RETIRING = replace(UP, state=State.RETIRING)
DRAINING = replace(UP, state=State.DRAINING, latch=LATCH, answer=Granted(3, 10))
DOWN = replace(DRAINING, state=State.DOWN)
STOPPING, STOPPING_DRAINING, STOPPING_DOWN = (
    transitions.step(container, StopRequested(), 105.0, Policy())[0] for container in (UP, DRAINING, DOWN)
)
SHADOW = replace(SUSPECT, would_culls=1, would_down=True)
DENIED = replace(SUSPECT, answer=Denied("window", 10, 10, 60.0))
UNKNOWN = replace(SUSPECT, answer=Unknown("timeout"), unknowns=7)
EVIDENCE = Evidence(60, 0, {}, {}, None, None)
PATHS = ("/health", "/health/haproxy", "/health/nomad", "/health/restart", "/livez", "/readyz")


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
        self.pages = 0
        self.polls: list[tuple[str, str, int]] = []
        self.failures: list[Exception] = []

    def snapshot(self) -> Snapshot:
        if self.failure is not None:
            raise self.failure
        return Snapshot(self.now, self.container, EVIDENCE, self.checked_at, self.weight)

    def metrics(self) -> tuple[bytes, str]:
        self.pages += 1
        return b"arbiter_state 1\n", "text/plain; version=0.0.4; charset=utf-8"

    def routes(self, down_status: int = 503, clock: Callable[[], float] = time.monotonic) -> Routes:
        return health.routes(self.health(down_status), metrics=self.metrics, clock=clock)

    def health(self, down_status: int = 503) -> health.Health:
        return health.Health(
            self.snapshot,
            down_status=down_status,
            stale_after_s=STALE_S,
            on_poll=lambda *poll: self.polls.append(poll),
            on_failure=self.failures.append,
            clock=lambda: self.now,
        )


def _ask(routes: Routes, path: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """The answer of a handler that is run by hand: one that awaited anything would not come to its end."""
    answering = routes[path]["GET"](make_mocked_request("GET", path, headers=headers))
    assert asyncio.iscoroutine(answering)
    with pytest.raises(StopIteration) as ended:
        answering.send(None)
    response: web.Response = ended.value.value
    return response


@pytest.mark.parametrize(
    ("container", "haproxy", "nomad", "ready"),
    [
        pytest.param(STARTING, 200, 200, 200, id="starting"),
        pytest.param(UP, 200, 200, 200, id="up"),
        pytest.param(SUSPECT, 200, 200, 200, id="suspect"),
        pytest.param(DENIED, 200, 200, 200, id="suspect, denied"),
        pytest.param(UNKNOWN, 200, 200, 200, id="suspect, unknown"),
        pytest.param(SHADOW, 200, 200, 200, id="suspect, would be culled"),
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
    assert [_ask(routes, path).status for path in PATHS] == [haproxy, haproxy, nomad, nomad, 200, ready]


def test_preset_has_another_status_for_down() -> None:
    routes = Controller(DOWN).routes(down_status=400)
    assert [_ask(routes, path).status for path in PATHS] == [400, 400, 400, 400, 200, 200]


def test_every_state_has_a_row_above() -> None:
    rows = (STARTING, UP, SUSPECT, RETIRING, DRAINING, DOWN, STOPPING)
    assert {container.state for container in rows} == {*State}


@pytest.mark.parametrize(
    ("container", "text"),
    [
        pytest.param(UP, "up\n", id="up"),
        pytest.param(DRAINING, f"draining: {SENTENCE}\ntoken granted, 3 of 10 in use\n", id="draining"),
        pytest.param(DOWN, f"down: {SENTENCE}\ntoken granted, 3 of 10 in use\n", id="down"),
        pytest.param(replace(DOWN, answer=None), f"down: {SENTENCE}\n", id="down since before our start"),
        pytest.param(STOPPING, "stopping: the sidecar is stopping\n", id="stopping"),
        pytest.param(STOPPING_DOWN, f"stopping: {SENTENCE}\ntoken granted, 3 of 10 in use\n", id="stopping while down"),
    ],
)
def test_body_says_why(container: Container, text: str) -> None:
    response = _ask(Controller(container).routes(), "/health")
    assert (response.text, response.content_type) == (text, "text/plain")


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
        observed = dict(_ask(routes, path).headers)
        assert observed.pop("Content-Type") == "text/plain; charset=utf-8"
        assert observed == headers


@pytest.mark.parametrize("reason", ["a\r\nSet-Cookie: b\0", "\u00fc\u23f1\ud800", "x" * 10_000])
def test_reason_read_from_disk_is_printable_in_a_header(reason: str) -> None:
    controller = Controller(replace(DOWN, latch=replace(LATCH, reason=reason)))
    observed = _ask(controller.routes(), "/health").headers["X-Arbiter-Reason"]
    assert observed.isascii()
    assert observed.isprintable()
    assert 0 < len(observed) <= 120


@pytest.mark.parametrize("reason", ["x" * 10_000, "\u00fc" * 10_000, "\u23f1" * 5_000, "\ud800" * 5_000])
def test_body_of_a_reason_read_from_disk_fits_what_nomad_keeps(reason: str) -> None:
    controller = Controller(replace(DOWN, latch=replace(LATCH, reason=reason)))
    response = _ask(controller.routes(), "/health/nomad")
    assert response.status == 503
    assert isinstance(response.body, bytes)
    assert 3_000 < len(response.body) <= 3_072
    assert response.body.endswith(b"\n")
    assert controller.failures == []


def test_body_has_no_free_text_of_the_app() -> None:
    verdict = Verdict(Judgement.EXCESSIVE, (Reason("errors", 5, 5, SENTENCE),))
    observed = replace(DOWN, verdict=verdict, app_start="free-text", incarnation="free-text")
    routes = Controller(observed).routes()
    for path in ("/health", "/health/haproxy", "/health/nomad"):
        assert "free-text" not in (_ask(routes, path).text or "")


@pytest.mark.parametrize("path", ["/health", "/health/haproxy", "/health/nomad"])
def test_failure_of_the_sidecar_is_reported_and_the_app_is_up(path: str) -> None:
    controller = Controller(DOWN)
    controller.failure = RuntimeError("broken")
    response = _ask(controller.routes(), path)
    assert (response.status, response.text) == (200, "up\n")
    assert controller.failures == [controller.failure]


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
    assert _ask(routes, "/livez").status == status
    assert _ask(routes, "/health").status == 200


@pytest.mark.parametrize(
    ("container", "checked_at", "status"),
    [
        pytest.param(UP, None, 503, id="not checked yet"),
        pytest.param(UP, 100.0, 200, id="checked"),
        pytest.param(DOWN, 100.0, 200, id="down: the sidecar itself is ready"),
        pytest.param(STOPPING, 100.0, 503, id="stopping"),
    ],
)
def test_readyz_is_about_the_sidecar(container: Container, checked_at: float | None, status: int) -> None:
    assert _ask(Controller(container, checked_at).routes(), "/readyz").status == status


def test_metrics_page_is_served_unchanged() -> None:
    response = _ask(Controller().routes(), "/metrics")
    assert response.body == b"arbiter_state 1\n"
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


@in_virtual_time
async def test_many_requests_for_metrics_share_a_page() -> None:
    controller = Controller()
    routes = controller.routes(clock=partial(next, count(step=0.001)))
    request = make_mocked_request("GET", "/metrics")
    answers = [await each for each in asyncio.as_completed([routes["/metrics"]["GET"](request) for _ in range(40)])]
    assert {answer.status for answer in answers} == {200}
    assert controller.pages == 2, "one for the first, and one for all later requests"


@pytest.mark.parametrize(
    ("user_agent", "path", "name"),
    [
        ("Nomad/1.8.0 (+https://www.nomadproject.io/; go1.22.4)", "/health/nomad", "nomad"),
        ("nomad/1.6.1+ent", "/health", "nomad"),
        ("Consul Health Check", "/health", "consul"),
        ("HAProxy", "/health", "haproxy"),
        (None, "/health/haproxy", "haproxy"),
        ("", "/health/haproxy", "haproxy"),
        (None, "/health", "other"),
        (None, "/health/nomad", "other"),
        ("Go-http-client/1.1", "/health/nomad", "other"),
        ("curl/8.5.0", "/health/haproxy", "other"),
        ("curl/8.5.0 (of nomad, consul and haproxy)", "/health", "other"),
        ("Prometheus/3.1.0", "/health", "other"),
    ],
)
def test_poll_is_counted_by_poller(user_agent: str | None, path: str, name: str) -> None:
    controller = Controller()
    _ask(controller.routes(), path, {} if user_agent is None else {"User-Agent": user_agent})
    assert controller.polls == [(name, path, 200)]


def test_only_health_is_counted_as_a_poll_with_its_status() -> None:
    controller = Controller(DRAINING)
    routes = controller.routes()
    for path in routes:
        _ask(routes, path)
    assert controller.polls == [
        ("other", "/health", 503),
        ("haproxy", "/health/haproxy", 503),
        ("other", "/health/nomad", 200),
        ("other", "/health/nomad", 200),
    ]


# -- the cache ----------------------------------------------------------------------------------------------


def _cache(controller: Controller) -> HealthCache:
    answers = controller.health()
    return HealthCache({**answers.polls, **answers.probes})


@pytest.mark.parametrize("container", [UP, SUSPECT, DRAINING, DOWN, STOPPING], ids=lambda container: container.state)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "form",
    [
        "{method} {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n",
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n",
        "{method} {path} HTTP/1.0\r\n{more}\r\n",
        "{method} {path} HTTP/1.0\r\nConnection: Keep-Alive\r\n{more}\r\n",
    ],
    ids=["1.1", "1.1 that closes", "1.0", "1.0 that keeps"],
)
async def test_cached_bytes_are_those_of_aiohttp(container: Container, path: str, form: str) -> None:
    controller = Controller(container, weight=40)
    cache = _cache(controller)
    asked = Mock(side_effect=cache)
    async with listening(controller.routes(), Observed(), response_cache=asked) as listener:
        for method in ("GET", "HEAD"):
            answers = []
            for more in ("", "Expect: nothing\r\n"):  # the latter is for aiohttp
                async with await RawConnection.to(listener) as wire:
                    answer = await wire.ask(form.format(method=method, path=path, more=more).encode())
                    keeps = answer.headers.get("connection", "")
                    if keeps == "close":
                        assert await wire.rest() == b""
                    answers.append(answer)
            quick, slow = answers
            assert (quick.status, quick.body) == (slow.status, slow.body)
            assert {**quick.headers, "date": ""} == {**slow.headers, "date": ""}
    assert asked.call_count == 2, "one of each pair was cached"


async def test_cache_answers_nothing_but_polls() -> None:
    controller = Controller(UP)
    async with (
        listening(controller.routes(), Observed(), response_cache=_cache(controller)) as listener,
        await RawConnection.to(listener) as wire,
    ):
        refused = await wire.ask(b"POST /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (refused.status, "GET" in refused.headers["allow"]) == (405, True)


def test_cached_answer_follows_state_and_weight_at_once() -> None:
    controller = Controller(UP)
    cache = _cache(controller)
    head = request_head.parse(b"GET /health HTTP/1.0\r\n\r\n")
    for container, weight, status, share in (
        (UP, 100, b" 200 ", b"Weight: 100"),
        (UP, 70, b" 200 ", b"Weight: 70"),
        (DRAINING, 70, b" 503 ", b"Weight: 0"),
        (DOWN, 70, b" 503 ", b"Weight: 0"),
        (UP, 70, b" 200 ", b"Weight: 70"),
    ):
        controller.container, controller.weight = container, weight
        answer = cache(head) or b""
        assert status in answer
        assert share in answer
    assert len(controller.polls) == 5


def test_reasons_in_a_cached_answer_are_at_most_a_second_old() -> None:
    now, texts = [0.0], iter(("first", "second", "third"))
    health_ = health.Health(
        Controller(DOWN).snapshot,
        down_status=503,
        stale_after_s=STALE_S,
        on_poll=lambda *_: None,
        on_failure=print,
        explanation=lambda _limit: next(texts),
        clock=lambda: now[0],
    )
    said = [health_.polls["/health"]("").body for now[0] in (0.0, 0.9, 1.0, 1.9, 2.0)]
    assert said == [b"first", b"first", b"second", b"second", b"third"]


@pytest.mark.parametrize("container", [UP, DOWN], ids=["up", "down"])
async def test_on_the_wire_head_is_get_without_the_body_and_the_rest_is_refused(container: Container) -> None:
    controller, observed = Controller(container), Observed()
    async with listening(controller.routes(), observed) as listener, await RawConnection.to(listener) as wire:
        for path in (*PATHS, "/metrics"):
            whole = await wire.ask(get(path))
            head = await wire.ask(get(path, method="HEAD"))
            assert (head.status, head.body) == (whole.status, b"")
            assert head.headers["content-length"] == str(len(whole.body))
        for method in ("POST", "PUT", "DELETE"):
            assert (await wire.ask(get("/health", method=method))).status == 405
    assert observed.words == ["method"] * 3


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /health/haproxy HTTP/1.0\r\n\r\n", id="option httpchk GET /health/haproxy"),
        pytest.param(b"OPTIONS /health/haproxy HTTP/1.0\r\n\r\n", id="option httpchk /health/haproxy"),
        pytest.param(b"GET /health/haproxy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", id="http-check send"),
    ],
)
async def test_on_the_wire_haproxy_is_answered_as_it_asks(request_: bytes) -> None:
    controller = Controller(DRAINING)
    async with listening(controller.routes(), Observed()) as listener, await RawConnection.to(listener) as wire:
        assert (await wire.ask(request_)).status == 503
        assert await wire.rest() == b""
    assert controller.polls == [("haproxy", "/health/haproxy", 503)]
