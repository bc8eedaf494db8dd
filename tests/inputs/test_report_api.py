"""The app's routes on a real socket: the responses to reports, and the requests that are refused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, chunked, get, post
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Heartbeat, Load, Report, Results
from sidecar.core.claims import Answer, Claim, Denied, Granted, Unknown
from sidecar.core.explain import reasons
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Latch, Policy, Reason, State, Verdict
from sidecar.inputs import report_api
from sidecar.inputs.report_api import SMALL_BODY
from sidecar.net.web import BODY_LIMIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sidecar.core.life.container import Container
    from sidecar.server.local_server import LocalServer

FULL_BODY = (
    b'{"count":2,"level":"recovered","kind":"redis","message":"m","fingerprint":"f","fatal":true,"app_start":"b"}'
)
FULL_REPORT = ErrorReport(2, ErrorLevel.RECOVERED, "redis", "m", "f", fatal=True, app_start="b")
REASON = Reason("errors", 5, 5, "5 server errors in 60 s, the limit is 5")
EVIDENCE = Evidence(60, 5, {"redis": 3, "unknown": 2}, {"recovered": 1}, newest_age_s=0)
UP = start("app/a", 100.0, Policy())


class Controller:
    """An inbox that may be full, and a snapshot."""

    def __init__(self) -> None:
        self.taken: list[tuple[Report, ...]] = []
        self.full = False
        self.snapshot = Snapshot(105.5, UP._replace(state=State.UP), EVIDENCE, 100.0)

    def offer(self, reports: Sequence[Report]) -> bool:
        if not self.full:
            self.taken.append(tuple(reports))
        return not self.full


@pytest.fixture
def controller() -> Controller:
    return Controller()


def _routes(controller: Controller) -> Any:
    return report_api.routes(
        lambda reports: controller.offer(reports),  # noqa: PLW0108 - a test replaces the method
        snapshot=lambda: controller.snapshot,
        mode="enforce",
    )


@pytest.fixture
async def listener(controller: Controller, observed: Observed) -> AsyncIterator[LocalServer]:
    async with serving(_routes(controller), observed) as listener:
        yield listener
    assert observed.failures == []


@pytest.fixture
async def wire(listener: LocalServer) -> AsyncIterator[RawConnection]:
    async with await RawConnection.to(listener) as wire:
        yield wire


errors = partial(post, "/errors")


@pytest.mark.parametrize(
    ("request_", "reports"),
    [
        pytest.param(errors(), (ErrorReport(),), id="nothing"),
        pytest.param(get("/errors", method="POST"), (ErrorReport(),), id="nothing, and no length"),
        pytest.param(b"POST /errors HTTP/1.0\r\n\r\n", (ErrorReport(),), id="HTTP/1.0"),
        pytest.param(errors(FULL_BODY), (FULL_REPORT,), id="every field"),
        pytest.param(chunked("/errors", FULL_BODY[:9], FULL_BODY[9:]), (FULL_REPORT,), id="in chunks"),
        pytest.param(
            errors(b'[{"count":2},{"kind":"redis"}]'), (ErrorReport(2), ErrorReport(kind="redis")), id="array"
        ),
        pytest.param(errors(b"{}", "Content-Type: text/plain"), (ErrorReport(),), id="any content type"),
        pytest.param(errors(b" " * (BODY_LIMIT - 2) + b"{}"), (ErrorReport(),), id="largest body"),
        pytest.param(chunked("/errors", *[b" "] * 127, b"{}"), (ErrorReport(),), id="in as many chunks as are taken"),
        pytest.param(post("/results", b'{"ok":3,"failed":2,"load":0.7}'), (Results(3, 2, load=0.7),), id="results"),
        pytest.param(get("/heartbeat", method="POST"), (Heartbeat(),), id="heartbeat, and no length"),
        pytest.param(post("/heartbeat", b"nonsense"), (Heartbeat(),), id="heartbeat, whatever it says"),
    ],
)
async def test_report_is_passed_on_and_answered_with_the_state(
    wire: RawConnection, controller: Controller, observed: Observed, request_: bytes, reports: tuple[Report, ...]
) -> None:
    answer = await wire.ask(request_)
    assert (answer.status, answer.body) == (202, b'{"state":"up"}\n')
    assert answer.headers["content-type"] == "application/json"
    assert controller.taken == [reports]
    assert observed == Observed()


async def test_each_turn_of_the_loop_parses_one_large_body(listener: LocalServer, controller: Controller) -> None:
    turns, parsed_in = 0, []
    offer = controller.offer

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def noted_offer(reports: Sequence[Report]) -> bool:
        parsed_in.append(turns)
        return offer(reports)

    controller.offer = noted_offer  # type: ignore[method-assign]
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(await RawConnection.to(listener)) for _ in range(8)]
        counting = asyncio.create_task(count_turns())
        await asyncio.gather(*(wire.send(errors(b" " * SMALL_BODY + b"{}")) for wire in wires))
        assert [(await wire.answer()).status for wire in wires] == [202] * 8
        counting.cancel()
    assert len(set(parsed_in)) == 8


@pytest.mark.parametrize("state", State)
async def test_response_has_the_present_state(wire: RawConnection, controller: Controller, state: State) -> None:
    controller.snapshot = Snapshot(105.5, UP._replace(state=state), EVIDENCE, 100.0)
    assert (await wire.ask(errors())).json() == {"state": state.value}


@pytest.mark.parametrize(
    ("request_", "status", "word", "error"),
    [
        (errors(b"{"), 400, "body", "body: not JSON"),
        (errors(b'[{},{"kind":"a b"}]'), 400, "body", "[1].kind: takes 1 to 64"),
        (errors(b'{"\\ud800\\n\\u0000":1}'), 400, "body", "\ud800\n\0: no such field"),
        (errors(b" " * BODY_LIMIT + b"{}"), 413, "too_large", "body: larger than 65536 bytes"),
        (chunked("/errors", *[b" "] * 128, b"{}"), 413, "chunks", "body: has more than 128 chunks"),
        (errors(b"\x1f\x8b", "Content-Encoding: gzip"), 415, "encoding", "Content-Encoding: "),
        (post("/results", b'{"ok":-1}'), 400, "body", "ok: takes a whole number"),
        (get("/errors"), 405, "method", "method: /errors takes POST"),
        (post("/verdict"), 405, "method", "method: /verdict takes GET, HEAD"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_bad_report_is_refused_by_field_counted_and_not_passed_on(
    wire: RawConnection,
    controller: Controller,
    observed: Observed,
    *,
    request_: bytes,
    status: int,
    word: str,
    error: str,
) -> None:
    answer = await wire.ask(request_)
    assert answer.status == status
    assert answer.error.startswith(error)
    assert observed.refusals == [("listener", word)]
    assert controller.taken == []
    if status == HTTPStatus.BAD_REQUEST:
        assert (await wire.ask(errors())).status == 202, "the connection is kept"


@pytest.mark.parametrize(
    "request_", [errors(), post("/results", b'{"ok":1}'), post("/heartbeat")], ids=["errors", "results", "heartbeat"]
)
async def test_report_to_a_full_inbox_is_a_503(
    wire: RawConnection, controller: Controller, observed: Observed, request_: bytes
) -> None:
    controller.full = True
    answer = await wire.ask(request_)
    assert (answer.status, answer.error) == (503, "too many reports are waiting, this one was not counted")
    assert observed.refusals == [("listener", "full")]


# -- the verdict --------------------------------------------------------------------------------------------

SICK = Verdict((REASON,))
SUSPECT = UP._replace(state=State.SUSPECT, verdict=SICK)
DOWN = UP._replace(
    state=State.DOWN,
    verdict=SICK,
    latch=Latch("app/a/-", 1.0, REASON.sentence),
    answer=Granted(3, 10),
    app_start="b2",
)
NAMES = {
    *("mode", "state", "state_age_s", "verdict", "reasons", "evidence", "claim", "latched", "would_be_down"),
    *("weight", "success_rate", "app_start", "age_s", "retire_in_s", "load"),
}
JUDGED = {
    "verdict": "excessive",
    "reasons": [{"rule": "errors", "value": 5, "limit": 5, "sentence": REASON.sentence}],
}
DENIED, TIMEOUT, GRANTED = Denied("window", 10, 10, 211.5), Unknown("timeout"), Granted(3, 10)


def _claim(answer: Answer, **more: object) -> dict[str, object]:
    nothing = {"outstanding": False, "used": None, "capacity": None, "retry_after_s": None}
    words = {"outcome": reasons.outcome(answer), "reason": reasons.reason_word(answer)}
    return {"claim": {**nothing, **words, "sentence": reasons.answer(answer), **more}}


@pytest.mark.parametrize(
    ("container", "said"),
    [
        (UP, {"verdict": None, "reasons": [], "claim": None, "latched": False, "weight": 100, "state_age_s": 5.5}),
        (SUSPECT, {"state": "suspect", **JUDGED}),
        (SUSPECT._replace(outstanding=Claim("")), {**JUDGED, "claim": {"outstanding": True}}),
        (SUSPECT._replace(answer=DENIED), _claim(DENIED, used=10, capacity=10, retry_after_s=211.5)),
        (SUSPECT._replace(answer=TIMEOUT, outstanding=Claim("")), _claim(TIMEOUT, outstanding=True)),
        (
            DOWN,
            {"state": "down", "latched": True, "weight": 0, "app_start": "b2", **_claim(GRANTED, used=3, capacity=10)},
        ),
        (UP._replace(would_down=True), {"would_be_down": True, "state": "starting", "mode": "enforce"}),
    ],
    ids=["begun", "judged", "asking", "denied", "unknown, and asking again", "culled", "would be culled"],
)
async def test_verdict_has_state_evidence_and_claim(
    wire: RawConnection, controller: Controller, container: Container, said: dict[str, object]
) -> None:
    controller.snapshot = Snapshot(105.5, container, EVIDENCE, 100.0)
    answer = await wire.ask(get("/verdict"))
    value = answer.json()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert value.keys() == NAMES
    assert {name: value[name] for name in said} == said
    assert value["evidence"] == EVIDENCE._asdict()
    assert answer.body.endswith(b"}\n")


async def test_verdict_has_weight_success_rate_and_the_planned_retirement(
    wire: RawConnection, controller: Controller
) -> None:
    old = UP._replace(state=State.RETIRING, born=-894.5)
    more: dict[str, Any] = {"retire_at": 100.0, "load": Load(0.7, 3.0), "success_rate": 0.50123}
    controller.snapshot = Snapshot(105.5, old, EVIDENCE, 100.0, weight=13, **more)
    value = (await wire.ask(get("/verdict"))).json()
    assert (value["weight"], value["success_rate"], value["state"]) == (13, 0.5012, "retiring")
    assert (value["age_s"], value["retire_in_s"], value["load"]) == (1000.0, -5.5, 0.7)
