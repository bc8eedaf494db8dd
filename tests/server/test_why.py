"""``GET /why`` as JSON and as text: whole at the local listener, without free text of the app at the public one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import make_mocked_request

from sidecar.actions.actuator import ActionResult
from sidecar.core.app_reports import ErrorLevel
from sidecar.core.claims import Answer, CauseTrial, Denied, Fleet, Granted, Unknown
from sidecar.core.explain.samples import CullEvidence, ErrorSample
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import CullOrder
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Entry, Evidence, Hold, Latch, Policy, Reason, State, Verdict
from sidecar.net.web import HttpError
from sidecar.server import health
from sidecar.server.why import Why, WhyIdentity, WhySources
from sidecar.server.why_text import as_text

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.net.web import Handler
    from sidecar.server.public_http import PublicAnswer

FREE = "free text"
NOW, UNIX = 1_000.0, 50_400.0
BAD = Verdict((Reason("errors", 9, 5, "9 server errors in 60 s"),))
HOLD = Hold("anna", "a deploy", UNIX + 300)
BEGAN = UNIX - 300
TRIED = CauseTrial("mysql", 2, 1, since=BEGAN)
PAUSED = CauseTrial("redis", 1, 0, 539.5, 1)
FLEET = Fleet(
    20,
    3,
    3,
    "redis",
    (TRIED, PAUSED),
    hold=HOLD,
    culls_by=(("helped", "redis", 1),),
    median_errors=1,
    median_ratio=0.0025,
    draining=1,
)
UP = start("app/a", NOW - 12, Policy(), app_start=f"life-{FREE}")._replace(state=State.UP, incarnation=f"life-{FREE}")
SUSPECT = UP._replace(state=State.SUSPECT, verdict=BAD, ask_at=NOW + 5, is_announced=True)
HELD = SUSPECT._replace(answer=Denied("hold", 3, 10, 300.0, hold=HOLD))
DOWN = SUSPECT._replace(
    state=State.DOWN,
    answer=Granted(3, 10),
    latch=Latch("app/a/life", 1.0, "9 server errors in 60 s"),
    order=CullOrder(FREE, FREE, State.UP),
)
EVIDENCE = Evidence(60, 9, {"mysql": 2, "redis": 7}, {"recovered": 1}, 20, requests=40, failed=9)
SAMPLE = ErrorSample("f1", "redis", ErrorLevel.SERVER_ERROR, 7, NOW - 40, NOW - 2, f"{FREE}: password=hunter2")
OLD = SAMPLE._replace(fingerprint="f0")


class Memory:
    """What the sidecar knows."""

    def __init__(
        self,
        container: Container = UP,
        fleet: Fleet | None = FLEET,
        last_cull: CullEvidence | None = None,
        *,
        mode: str = "enforce",
        began_at: float = UNIX,
    ) -> None:
        self.container = container
        self.last_cull = last_cull
        self.fleet = fleet
        self.heard_s = 2.0
        self.weight = 100
        self.mode = mode
        self.local_hold: Hold | None = None
        self.action: ActionResult | None = None
        self.warnings: list[str] = []
        self.entries: list[Entry] = []
        self.counts = Counter[tuple[str, str]]()
        self.unix = began_at
        self.why = Why(
            WhyIdentity("app", "a", mode, 5, "https://runbooks.example.org/arbiter"),
            WhySources(
                self.snapshot,
                lambda _since: self.entries,
                self.counts,
                fleet=lambda: self.fleet,
                heard_s=lambda: self.heard_s,
                local_hold=lambda: self.local_hold,
                leaving=lambda _limit: (5, 12),
                samples=lambda: (SAMPLE,),
                wall=lambda: self.unix,
                action=lambda: self.action,
                warnings=lambda: self.warnings,
            ),
        )
        self.unix = UNIX

    def snapshot(self) -> Snapshot:
        return Snapshot(
            NOW,
            self.container,
            EVIDENCE,
            NOW,
            self.weight,
            is_soft_drained=self.weight < 100,
            enforce=self.mode == "enforce",
            last_cull=self.last_cull,
            unix=UNIX,
        )

    def answered(self, at: float) -> None:
        """The last answer to a claim came at this Unix time."""
        self.container = self.container._replace(answered_at=NOW - (UNIX - at))


def _ask(handler: Handler, query: str = "") -> web.Response:
    """The answer of a handler that is run by hand: one that awaited anything would not come to its end."""
    answering = handler(make_mocked_request("GET", f"/why{query}"))
    assert asyncio.iscoroutine(answering)
    with pytest.raises(StopIteration) as ended:
        answering.send(None)
    response: web.Response = ended.value.value
    return response


def _public(why: Why, query: str = "") -> PublicAnswer:
    return why.get_public(query.removeprefix("?"))


def _body_of(response: web.Response | PublicAnswer) -> str:
    assert isinstance(response.body, bytes)
    return response.body.decode()


def _json(response: web.Response | PublicAnswer) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(_body_of(response))
    return value


FIELDS = {"service", "instance", "incarnation", "mode", "would", "alone", "state", "since", "at", "health", "weight"}
FIELDS |= {"soft_drained", "sentence", "spared", "rules", "window", "claim", "budget", "fleet", "hold", "remedies"}
FIELDS |= {"history", "runbook"}


def test_public_answer_has_everything_but_free_text() -> None:
    value = _json(_public(Memory(HELD).why))
    assert value.keys() == FIELDS
    assert (value["state"], value["since"], value["weight"]) == ("suspect", UNIX - 12, 100)
    assert value["health"] == {"haproxy": True, "nomad": True}
    assert value["rules"] == [{"rule": "errors", "value": 9, "limit": 5, "sentence": value["sentence"]}]
    assert (value["window"]["kinds"], value["window"]["failed"]) == ({"mysql": 2, "redis": 7}, 9)
    assert value["window"]["levels"] == {"recovered": 1}
    assert value["claim"]["sentence"] == "anna holds the service: a deploy, no container is culled for 5m"
    assert (value["fleet"]["suspect"], value["fleet"]["paused"]) == (3, ["redis"])
    held = {"scope": "service", "author": "anna", "reason": "a deploy", "until": UNIX + 300, "instance": ""}
    assert value["hold"] == value["fleet"]["hold"] == held
    assert value["remedies"][1] == "the hold by anna ends at 14:05 UTC, or health-arbiter release ends it"
    assert value["runbook"] == "https://runbooks.example.org/arbiter#hold"


def test_what_is_not_known_is_null_and_a_hold_of_this_sidecar_alone_is_shown() -> None:
    memory = Memory(UP, fleet=None)
    value = memory.why.value()
    assert [value[name] for name in ("claim", "budget", "fleet", "hold")] == [None] * 4
    assert value["sentence"] == "in service: 9 server errors in 60 s, the limit is 5"
    memory.local_hold = HOLD
    assert memory.why.value()["hold"]["reason"] == "a deploy"


@pytest.mark.parametrize(
    "container", [UP, SUSPECT, HELD, DOWN, SUSPECT._replace(order=DOWN.order)], ids=lambda container: container.state
)
@pytest.mark.parametrize("query", ["", "?format=text"])
def test_public_answer_has_no_free_text(container: Container, query: str) -> None:
    memory = Memory(container, last_cull=CullEvidence("app/a/life", UNIX, (SAMPLE,), FREE))
    assert FREE not in _body_of(_public(memory.why, query))
    assert FREE not in memory.why.text(3_072)


def test_local_answer_has_the_incarnation_and_redacted_samples() -> None:
    value = _json(_ask(Memory(HELD).why.get_local))
    assert value.keys() == {*FIELDS, "samples", "capture", "action", "warnings"}
    assert value["incarnation"] == f"life-{FREE}"
    assert value["samples"] == [
        {
            "fingerprint": "f1",
            "kind": "redis",
            "level": "server_error",
            "count": 7,
            "first": UNIX - 40,
            "last": UNIX - 2,
            "message": f"{FREE}: password=***",
        }
    ]


def test_culled_container_shows_the_samples_of_its_cull_and_the_next_incarnation_its_own() -> None:
    value = Memory(DOWN, last_cull=CullEvidence("app/a/life", UNIX - 9, (OLD,), "stack")).why.local()
    assert [sample["fingerprint"] for sample in value["samples"]] == ["f0"]
    assert value["capture"] == "stack"
    value = Memory(UP, last_cull=CullEvidence("app/a/life", UNIX - 9, (OLD,), "stack")).why.local()
    assert [sample["fingerprint"] for sample in value["samples"]] == ["f1"]
    assert value["capture"] == "stack"


def test_wait_grows_shorter_as_the_answer_grows_old() -> None:
    memory = Memory(SUSPECT._replace(answer=Denied("window", 10, 10, 200.0)))
    memory.answered(UNIX - 10.00049)
    value = memory.why.value()
    assert (value["claim"]["retry_after_s"], value["claim"]["at"]) == (190.0, UNIX - 10), "in whole milliseconds"
    assert value["remedies"][1] == "the next token comes back in 3m 10s"


COUNTED = FLEET._replace(used=4, capacity=10)


@pytest.mark.parametrize(
    ("answer", "answered_at", "fleet", "expected"),
    [
        (None, None, COUNTED, (4, 10, 6, UNIX - 2)),
        (Denied("window", 10, 10, 9.0), UNIX - 3600, COUNTED, (4, 10, 6, UNIX - 2)),
        (Denied("window", 10, 10, 9.0), UNIX - 1, COUNTED, (10, 10, 0, UNIX - 1)),
        (Unknown("timeout"), UNIX - 1, COUNTED, (4, 10, 6, UNIX - 2)),
        (Denied("hold", 0, 0, 9.0, hold=HOLD), UNIX - 1, COUNTED, (4, 10, 6, UNIX - 2)),
        (Denied("window", 10, 10, 9.0), UNIX - 3600, FLEET, (10, 10, 0, UNIX - 3600)),
        (Granted(12, 10), UNIX - 1, None, (12, 10, 0, UNIX - 1)),
    ],
    ids=["no claim", "old claim", "new claim", "no answer", "hold known here", "answer without numbers", "no fleet"],
)
def test_tokens_are_those_of_the_last_answer_to_a_claim_or_a_beat(
    answer: Answer | None, answered_at: float | None, fleet: Fleet | None, expected: tuple[float, ...]
) -> None:
    memory = Memory(SUSPECT._replace(answer=answer), fleet=fleet)
    if answered_at is not None:
        memory.answered(answered_at)
    budget = memory.why.value()["budget"]
    assert tuple(budget[name] for name in ("used", "capacity", "left", "at")) == expected
    assert f"tokens: {expected[0]} of {expected[1]} in use, {expected[2]} left, at " in memory.why.text(3_072)


@pytest.mark.parametrize(
    ("query", "content_type"),
    [("", "application/json"), ("?format=json", "application/json"), ("?format=text", "text/plain")],
)
def test_format_is_json_or_text_as_the_client_asks(query: str, content_type: str) -> None:
    why = Memory().why
    assert _ask(why.get_local, query).content_type == content_type
    assert _public(why, query).headers["Content-Type"].startswith(content_type)
    with pytest.raises(HttpError, match="format: takes json or text"):
        _public(why, "?format=xml")


def test_text_begins_with_what_matters_most() -> None:
    memory = Memory(DOWN)
    memory.answered(UNIX - 10)
    denied = Entry("denied", UNIX - 60, "a", "redis", "window", detail="no token is left")
    others = [denied._replace(instance="b"), denied._replace(what="hold"), denied._replace(what="acted")]
    culled = Entry("culled", UNIX - 5, "a", "redis", "errors", detail=f"9 server errors\n7 x redis: {FREE}")
    revived = Entry("revived", UNIX - 4, "a", "redis", FREE, FREE)
    memory.entries = [denied, *others, culled, revived]
    assert memory.why.text(3_072).splitlines() == [
        "down: 9 server errors in 60 s",
        "window now: 9 errors in 60 s (redis 7, mysql 2), limit 5; 9 of 40 requests failed",
        "claim granted: 3 of 10 in use",
        "tokens: 3 of 10 in use, 7 left, at 13:59:50Z",
        (
            "fleet: 20 alive, 3 suspect, most of redis, 1 draining, 2 down, 0 retiring; "
            "median: 1 error, 0.25 % of the requests failed"
        ),
        "culls: 0 helped, 0 did not help, 0 unclear",
        "culls for mysql: 1 of at most 2 without an outcome, its episode began at 13:55:00Z",
        "culls for redis: paused for 9m, the last one did not help; 0 of at most 1 without an outcome",
        "hold: the service until 14:05:00Z by anna: a deploy",
        "clears when: the container is replaced, or health-arbiter revive",
        "app/a, mode enforce; since 13:59:48Z, now 14:00:00Z; haproxy down, nomad down, weight 0 %",
        "runbook: https://runbooks.example.org/arbiter",
        "13:59:56Z revived: a person ordered it",
        "13:59:55Z culled: 9 server errors",
        "13:59:00Z denied: no token is left",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"kinds": {"redis": 3, "disk": 3, "mysql": 4}},
            "9 errors in 60 s (mysql 4, disk 3, redis 3), limit 5; 9 of 40 requests failed",
        ),
        ({"errors": 1, "kinds": {}, "limit": 0, "requests": 0}, "1 error in 60 s"),
        ({"errors": 2, "kinds": {}, "usual": 3.21, "requests": 0}, "2 errors in 60 s, limit 5, 3.21 are usual"),
    ],
    ids=["as many of two kinds", "one error", "with usual errors"],
)
def test_text_has_the_window_with_the_most_frequent_kind_first(changes: dict[str, Any], line: str) -> None:
    value = Memory(DOWN).why.value()
    value["window"] |= changes
    assert f"window now: {line}" in as_text(value).splitlines()


@pytest.mark.parametrize(
    ("decisions", "age_s", "line"),
    [
        ([], 600.00049, "not have culled it in the last 10m"),
        (
            [("denied", "trial"), ("suspect", ""), ("denied", "trial"), ("denied", "window")],
            3600,
            "not have culled it in the last 1h; refusals: trial 2, window 1",
        ),
        (
            [("granted", "granted"), ("would_cull", "errors")],
            86_400,
            "have culled it once (1 a day), with 1 token in the last 1d",
        ),
        (
            [("granted", "granted"), ("would_cull", "errors"), ("would_recover", "")] * 3,
            2 * 86_400,
            "have culled it 3 times (1.5 a day), with 3 tokens; 3 of these times it recovered by itself in the last 2d",
        ),
    ],
    ids=["nothing", "refusals", "one cull", "culls"],
)
def test_shadow_says_what_enforcing_would_have_done(decisions: list[tuple[str, str]], age_s: float, line: str) -> None:
    memory = Memory(mode="shadow", began_at=UNIX - age_s)
    memory.counts.update(decisions)
    assert f"enforce mode would {line}" in memory.why.text(3_072).splitlines()
    would = memory.why.value()["would"]
    assert (would["for_s"], would["culls"]) == (round(age_s, 3), decisions.count(("would_cull", "errors")))
    assert would["since"] == round(UNIX - age_s, 3)


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (("9 server errors in 60 s",), []),
        (("no heartbeat for 9.0 s",), ["rule rule-0: 9, limit 5: no heartbeat for 9.0 s"]),
        (
            ("9 server errors in 60 s", "a fatal error"),
            ["rule rule-0: 9, limit 5: 9 server errors in 60 s", "rule rule-1: 9, limit 5: a fatal error"],
        ),
    ],
    ids=["in the first line", "another since", "several"],
)
def test_text_has_the_rules_that_its_first_line_has_not(sentences: tuple[str, ...], expected: list[str]) -> None:
    reasons = tuple(Reason(f"rule-{number}", 9, 5, sentence) for number, sentence in enumerate(sentences))
    lines = Memory(DOWN._replace(verdict=Verdict(reasons))).why.text(3_072).splitlines()
    assert [line for line in lines if line.startswith("rule ")] == expected


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"trials": (PAUSED._replace(failures=3),)}, "culls for redis: paused for 9m, the last 3 did not help; "),
        ({"trials": (PAUSED._replace(paused_s=0.5),)}, "culls for redis: paused for 1s, the last one did not help; "),
        ({"duplicate": True}, "duplicate: another container runs under this instance name"),
        (
            {"median_errors": 4, "median_ratio": None},
            "fleet: 20 alive, 3 suspect, most of redis, 1 draining, 2 down, 0 retiring; ",
        ),
    ],
    ids=["paused again", "paused for less than a second", "duplicate", "median of errors alone"],
)
def test_text_has_what_is_unusual_in_the_fleet(changes: dict[str, Any], line: str) -> None:
    text = Memory(SUSPECT, fleet=FLEET._replace(**changes)).why.text(3_072)
    assert any(one.startswith(line) for one in text.splitlines())


def test_spared_errors_are_shown_with_the_reason() -> None:
    sentence = "6 errors in 60 s are over the limit of 5, and no more than chance gives at the fleet's usual rate"
    memory = Memory(UP._replace(verdict=Verdict(spared=sentence)))
    assert memory.why.value()["spared"] == sentence
    assert memory.why.text(3_072).splitlines()[1] == f"spared: {sentence}"


def test_soft_drain_is_shown_beside_the_weight_and_apart_in_shadow_mode() -> None:
    memory = Memory(SUSPECT, mode="shadow")
    memory.weight = 10
    value = memory.why.value()
    assert (value["weight"], value["soft_drained"]) == (100, False)
    assert (value["would"]["weight"], value["would"]["soft_drained"]) == (10, True)
    lines = memory.why.text(3_072).splitlines()
    assert "enforce mode would give it weight 10 % (soft drain)" in lines
    assert any(line.endswith("haproxy up, nomad up, weight 100 %") for line in lines)
    memory = Memory(SUSPECT)
    memory.weight = 10
    assert (memory.why.value()["weight"], memory.why.value()["soft_drained"]) == (10, True)
    assert ", weight 10 % (soft drain)" in memory.why.text(3_072)


@pytest.mark.parametrize(
    "reason", ["x" * 10_000, "\u00fc" * 10_000, "\u23f1" * 5_000, "\ud800" * 5_000, "a\r\n\x1b[2J"]
)
def test_text_fits_what_nomad_keeps_and_keeps_the_most_important(reason: str) -> None:
    verdict = Verdict(tuple(Reason(rule, 9, 5, reason) for rule in ("errors", "kind")))
    memory = Memory(DOWN._replace(verdict=verdict, latch=Latch("c", 1.0, reason)))
    memory.entries = [Entry("suspect", UNIX, "a", detail="sentence " * 6)] * 60
    text = memory.why.text(health.BODY_LIMIT)
    assert 1_500 < len(text.encode()) <= health.BODY_LIMIT
    assert len(memory.why.value()["history"]) == 50
    assert text.endswith("...\n")
    assert all(line.isprintable() for line in text.splitlines())
    if len(reason) < 100:
        assert "clears when: the container is replaced" in text


def test_text_that_just_fits_is_whole_and_one_byte_less_costs_its_last_lines() -> None:
    why = Memory(DOWN).why
    whole = why.text(100_000)
    assert why.text(len(whole)) == whole
    *lines, left_out = why.text(len(whole) - 1).splitlines(keepends=True)
    assert left_out == "...\n"
    assert whole.startswith("".join(lines))
    assert len(whole) - len("".join(lines)) <= len(whole.splitlines(keepends=True)[-1]) + len(left_out)


def test_local_text_has_the_output_of_the_action_by_lines_and_what_is_wrong_around_the_sidecar() -> None:
    memory = Memory(DOWN)
    output = "the command ended with exit code 1 after 0.1 s\nno\x1b such\nunit"
    memory.action, memory.warnings = ActionResult("command", UNIX, 0.12, output, failed=True), ["nobody listens"]
    text = _body_of(_ask(memory.why.get_local, "?format=text"))
    first = "action: command failed after 0.1 s: the command ended with exit code 1 after 0.1 s"
    assert f"{first}\n| no? such\n| unit\nwarning: nobody listens\n" in text
    public = memory.why.text(100_000)
    assert "action:" not in public
    assert "warning:" not in public


def test_local_text_has_samples_and_capture_without_control_characters() -> None:
    cull = CullEvidence(
        "app/a/life", UNIX, (SAMPLE._replace(message="a\x1b[2J\nb\u202ec"),), "line one\nline \x1b two\n"
    )
    lines = _body_of(_ask(Memory(DOWN, last_cull=cull).why.get_local, "?format=text")).splitlines()
    assert "error f1 (redis, server_error): 7 from 13:59:20Z to 13:59:58Z: a?[2J?b?c" in lines
    assert lines[-2:] == ["| line one", "| line ? two"]


def test_text_can_be_printed_whatever_the_app_has_reported() -> None:
    cull = CullEvidence("app/a/life", UNIX, (SAMPLE._replace(message="a\ud800b"),), "\udfff")
    lines = as_text(Memory(DOWN, last_cull=cull).why.local()).encode().decode().splitlines()
    assert (lines[-2].endswith(": a?b"), lines[-1]) == (True, "| ?")


@pytest.mark.parametrize(
    ("changes", "anchor"),
    [
        ({"state": State.SUSPECT, "answer": Denied("paused", 3, 10, 60.0)}, "#paused"),
        ({"state": State.SUSPECT, "answer": Unknown("sentinel")}, "#redis"),
        ({"state": State.RETIRING, "lease_answer": Denied("slots", 1, 1, 60.0)}, "#retirement"),
        ({"state": State.RETIRING, "answer": Denied("paused", 3, 10, 60.0)}, ""),
        ({"state": State.UP, "answer": Denied("paused", 3, 10, 60.0)}, ""),
    ],
    ids=[
        "claim",
        "claim unknown",
        "lease",
        "former claim",
        "claim of no use any more",
    ],
)
def test_runbook_is_that_of_the_obstacle(changes: dict[str, Any], anchor: str) -> None:
    for listener in ("value", "local"):
        expected = getattr(Memory(SUSPECT._replace(**changes)).why, listener)()
        assert expected["runbook"] == f"https://runbooks.example.org/arbiter{anchor}"


@pytest.mark.parametrize("state", State)
def test_every_state_with_every_answer_has_a_text(state: State) -> None:
    for answer in (None, Granted(1, 10), HELD.answer, Denied("hold", 0, 0, 1.0, hold=HOLD), Unknown("timeout")):
        for latch in (None, DOWN.latch, Latch("", 1.0, "retired", lease="word")):
            for shadow in (False, True):
                memory = Memory(SUSPECT._replace(state=state, answer=answer, latch=latch, would_down=shadow))
                assert json.dumps(memory.why.local())
                assert memory.why.text(3_072).startswith(f"{state}: ")


# -- in the body of a "down" --------------------------------------------------------------------------------


def _body(memory: Memory, failures: list[Exception]) -> tuple[int, str]:
    """Status and body of a health answer."""
    answers = health.Health(
        memory.snapshot,
        stale_after_s=38.0,
        on_poll=lambda *_: None,
        on_failure=failures.append,
        explanation=memory.why.text,
    )
    answer = answers.polls["/health"]()
    return answer.status, answer.body.decode()


def test_body_of_a_down_is_the_text_and_a_failure_to_explain_leaves_a_culled_container_down() -> None:
    memory, failures = Memory(DOWN), list[Exception]()
    assert (_body(memory, failures), failures) == ((503, memory.why.text(3_072)), [])
    memory.entries = None  # type: ignore[assignment]  # whatever breaks in there
    assert _body(memory, failures) == (503, "down: 9 server errors in 60 s\n")
    assert len(failures) == 1
