"""The reasons that a real sidecar gives: at both listeners and in the body of a 503, with evidence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.sidecar import AT_ONCE
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

FAST: dict[str, Any] = {**AT_ONCE, "drain": "1s"}
MESSAGE = "connect to redis://:hunter2@10.0.0.1:6379 failed after %d ms, token=s3cr3t"
TEXT = {"Accept": "text/plain"}


def _why(one: Sidecar, listener: str = "local") -> dict[str, Any]:
    reply = one.request(listener, "GET", "/why")
    assert reply.status == 200
    value: dict[str, Any] = reply.json()
    return value


def _make_sick(one: Sidecar, app_start: str = "life-0") -> None:
    for number in range(5):
        one.post_error(kind="redis", message=MESSAGE % (number * 11), app_start=app_start)


def _is_out(one: Sidecar) -> bool:
    return one.health()[0] == 503


def _body_with_the_fleet(one: Sidecar) -> str:
    status, body = one.health()
    assert status == 503
    return body if "fleet: " in body else ""


def test_cull_is_explained_at_both_listeners_and_in_the_health_body(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    one = sidecar(redis_url=redis_server.url, runbook_url="https://runbooks.example.org/arbiter", **FAST)
    began = time.time()
    _make_sick(one)
    reported = time.time()
    wait_for(lambda: _is_out(one), timeout_s=60, what="it is culled")
    wait_for(lambda: _why(one)["fleet"], timeout_s=60, what="the first beat is answered")
    local, public = _why(one), _why(one, "public")
    for shown in (local, public):
        assert shown["state"] in ("draining", "down")
        assert shown["sentence"].startswith("5 server errors in 60 s (5 of them redis), the limit is 5")
        assert (shown["window"]["errors"], shown["window"]["kinds"]) == (5, {"redis": 5})
        assert (shown["claim"]["outcome"], shown["budget"]["left"]) == ("granted", 9)
        assert [event["what"] for event in shown["history"]] == ["culled", "granted", "suspect"]
        assert "health-arbiter revive" in shown["remedies"][0]
    (sample,) = local["samples"]
    assert (sample["count"], sample["kind"], sample["level"]) == (5, "redis", "server_error")
    assert sample["message"] == "connect to redis://***@10.0.0.1:6379 failed after 44 ms, token=***"
    assert began - 1 <= sample["last"] <= reported + 1
    body = wait_for(lambda: _body_with_the_fleet(one), timeout_s=60, what="the body has the fleet, a second later")
    assert len(body.encode()) <= 3_072
    for part in (
        "(redis 5), limit 5",
        "claim granted",
        "tokens: 1 of 10",
        "fleet: ",
        "clears when: ",
        "culled: 5 server",
    ):
        assert part in body
    said = [body, str(public), one.request("public", "GET", "/why", headers=TEXT).body, one.output()]
    assert not any(secret in text for secret in ("hunter2", "s3cr3t", "10.0.0.1") for text in said)
    assert "10.0.0.1" in one.request("local", "GET", "/why?format=text").body
