"""The paths of the public listener, and metrics that take a bounded share of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from sidecar.core.life.container import Snapshot, start
from sidecar.core.types import Evidence, Policy, State
from sidecar.net.http_error import HttpError
from sidecar.server.health import CREDIT_S, Health, MetricsPage, public_pages
from sidecar.server.public_http import PublicAnswer, PublicRequest

if TYPE_CHECKING:
    from collections.abc import Callable

POLLS: Final = ("/health", "/health/haproxy", "/health/nomad", "/health/restart")
PAGES: Final = ("/livez", "/readyz", "/metrics", "/why")
UP: Final = start("app/a", 100.0, Policy())._replace(state=State.UP)
COST_S: Final = 0.003


def _request(method: str, path: str) -> PublicRequest:
    return PublicRequest(method, path, "", keeps=True)


@pytest.fixture
def polls() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def answer_to(polls: list[tuple[str, int]]) -> Callable[[PublicRequest], PublicAnswer]:
    health = Health(
        lambda: Snapshot(105.0, UP, Evidence(60), 100.0),
        stale_after_s=38.0,
        on_poll=lambda *poll: polls.append(poll),
        on_failure=lambda error: pytest.fail(str(error)),
        explanation=lambda _: "down",
        clock=lambda: 105.0,
    )
    return public_pages(
        health, metrics=lambda: PublicAnswer(200, b"a 1\n"), why=lambda query: PublicAnswer(200, query.encode())
    )


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [*POLLS, *PAGES])
def test_path_takes_get_and_head_and_a_poll_also_what_haproxy_sends_by_default(
    answer_to: Callable[[PublicRequest], PublicAnswer], polls: list[tuple[str, int]], method: str, path: str
) -> None:
    if method == "OPTIONS" and path in PAGES:
        with pytest.raises(HttpError, match=f"method: {path} takes GET, HEAD") as refused:
            answer_to(_request(method, path))
        assert (refused.value.status, refused.value.headers) == (405, {"Allow": "GET, HEAD"})
    else:
        assert answer_to(_request(method, path)).status == 200
    assert len(polls) == (path in POLLS)


@pytest.mark.parametrize(
    "path", ["/", "/up", "//health", "/health/", "/a/../health", "http://a/health", "*", "/" + "x" * 999]
)
def test_other_path_is_refused_with_a_sentence_of_a_bounded_length(
    answer_to: Callable[[PublicRequest], PublicAnswer], path: str
) -> None:
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
