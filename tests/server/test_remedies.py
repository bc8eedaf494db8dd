"""What would clear it: a sentence for every state, every refusal and every unclear answer, and never none."""

from __future__ import annotations

import pytest

from sidecar.core.claims import Answer, Claim, Denied, Granted, Unknown
from sidecar.core.explain import words
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import CullOrder
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Evidence, Hold, Latch, Policy, Reason, State, Verdict
from sidecar.server.remedies import Outlook, remedies

NOW = 1_000.0
UNIX = 50_400.0  # 14:00 UTC
ERRORS = Reason("errors", 9, 5, "9 server errors")
BAD = Verdict((ERRORS,))
DUE = NOW + 12.2
UP = start("app/a", NOW, Policy())._replace(state=State.UP, grace_ends=DUE, ask_at=DUE, drain_ends=DUE)
SUSPECT = UP._replace(state=State.SUSPECT, verdict=BAD, is_announced=True)
EVIDENCE = Evidence(60, 9, {"redis": 9}, {}, 20)
OUTLOOK = Outlook(UNIX, (5, 12), 10.0, None)
ANSWERS: list[Answer | None] = [
    None,
    Granted(3, 10),
    *(Denied(reason, 10, 10, 200.0) for reason in [*words.REFUSALS, "eclipse"]),
    *(Unknown(word) for word in [*words.FAILURES, "eclipse"]),
]


def _remedies(container: Container, outlook: Outlook = OUTLOOK) -> tuple[str, ...]:
    return tuple(remedies(Snapshot(NOW, container, EVIDENCE, NOW), outlook))


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
@pytest.mark.parametrize("state", State)
def test_every_obstacle_has_a_sentence(state: State, answer: Answer | None) -> None:
    for due in (None, NOW - 1, NOW + 5):
        for latch in (None, Latch("c", 1.0, "bad"), Latch("", 1.0, "old", lease="word")):
            container = SUSPECT._replace(state=state, ask_at=due, answer=answer, lease_answer=answer, latch=latch)
            sentences = _remedies(container)
            assert sentences
            assert all(sentence and "{" not in sentence and "None" not in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Denied("window", 10, 10, 200.0), "the next token comes back in 3m 10s"),
        (Denied("window", 10, 10, 10.0), "the next token comes back now"),
        (Denied("hold", 0, 10, 300.0), "the hold ends in 4m 50s, or health-arbiter release ends it"),
        (
            Denied("paused", 0, 10, 3610.0),
            "the pause ends in 1h; or an engineer finds what is wrong, then health-arbiter release",
        ),
        (Denied("eclipse", 0, 10, 20.0), "the reason of the refusal is over; the sidecar asks again in 10s"),
        (Unknown("readonly"), "ARBITER_REDIS_URL leads to a master; the sidecar asks again in 13s"),
        (Unknown("eclipse"), "Redis gives a clear answer; the sidecar asks again in 13s"),
        (None, "it claims a token in 13s, unless its errors have left the window by then"),
    ],
    ids=lambda value: value.split(",")[0] if isinstance(value, str) else "",
)
def test_refusal_says_when_it_is_over(answer: Answer | None, sentence: str) -> None:
    errors = "5 of 9 errors leave the window in 12s, if no more come"
    assert _remedies(SUSPECT._replace(answer=answer)) == (errors, sentence)


@pytest.mark.parametrize(
    ("hold", "sentence"),
    [
        (Hold("anna", "deploy", UNIX + 300), "the hold by anna ends at 14:05 UTC, or health-arbiter release ends it"),
        (
            Hold("anna", "deploy", UNIX + 2 * 86_400 + 3_600),
            "the hold by anna ends in 2d 1h, at 15:00 UTC, or health-arbiter release ends it",
        ),
    ],
    ids=["minutes", "days"],
)
def test_hold_is_shown_with_its_end(hold: Hold, sentence: str) -> None:
    denied = SUSPECT._replace(answer=Denied("hold", 0, 10, 300.0))
    assert _remedies(denied, OUTLOOK._replace(hold=hold))[-1] == sentence


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        (UP, "nothing has to change: it is in service"),
        (UP._replace(verdict=BAD), "5 of 9 errors leave the window in 12s, if no more come"),
        (UP._replace(state=State.STARTING), "its grace is over, and it is judged, in 13s"),
        (UP._replace(state=State.STARTING, grace_ends=NOW), "its grace is over, and it is judged, now"),
        (UP._replace(state=State.RETIRING), "or the app is replaced before that"),
        (
            UP._replace(state=State.DRAINING),
            (
                "it is down in 13s, or earlier when no request is in flight; "
                "then: the container is replaced, or health-arbiter revive"
            ),
        ),
        (
            SUSPECT._replace(is_announced=False),
            "Redis answers a beat, so that the fleet knows that it is suspect; then it claims a token",
        ),
        (SUSPECT._replace(outstanding=Claim("")), "the answer to its claim is on the way"),
        (
            SUSPECT._replace(outstanding=Claim(""), order=CullOrder("anna", "free text", State.UP)),
            "the answer to its claim is on the way, an operator ordered the cull",
        ),
        (SUSPECT._replace(would_down=True), "nothing else: in shadow mode it stays in service"),
        (UP._replace(state=State.DOWN), "the container is replaced, or health-arbiter revive"),
        (
            UP._replace(state=State.DOWN, lease_ends=NOW + 90),
            "or it is not replaced before its lease ends in 1m 30s: then it is up again",
        ),
        (UP._replace(state=State.STOPPING), "the sidecar is started again"),
        (
            UP._replace(state=State.STOPPING, latch=Latch("c", 1.0, "bad")),
            "the container is replaced, or health-arbiter revive",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.state,
)
def test_state_says_what_comes_next(container: Container, sentence: str) -> None:
    assert _remedies(container)[-1] == sentence


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "it asks for a lease in 13s"),
        (Denied("slots", 1, 1, 30.0), "a container that is retiring is replaced; the sidecar asks again in 20s"),
        (Unknown("loading"), "Redis has loaded its data; the sidecar asks again in 13s"),
    ],
    ids=["not asked yet", "denied", "unknown"],
)
def test_retiring_container_says_when_it_gets_a_lease(answer: Answer | None, sentence: str) -> None:
    retiring = UP._replace(state=State.RETIRING, answer=Granted(1, 10), lease_answer=answer)
    assert _remedies(retiring)[0] == sentence


def test_window_that_is_below_its_limit_already_waits_for_the_next_check() -> None:
    outlook = OUTLOOK._replace(leaving=(0, 0))
    assert _remedies(SUSPECT, outlook)[0] == "the next check sees that the errors have left the window"


def test_unannounced_suspect_says_what_redis_lacks() -> None:
    snapshot = Snapshot(NOW, SUSPECT._replace(is_announced=False), EVIDENCE, NOW, beat_error="auth")
    wanted = words.FAILURES["auth"].remedy
    assert list(remedies(snapshot, OUTLOOK))[-1].startswith(f"{wanted}, so that the fleet knows that it is suspect; ")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("errors", "5 of 9 errors leave the window in 12s, if no more come"),
        ("kind", "the counted errors leave the window within 40s, if no more come"),
        ("fatal", "the counted errors leave the window within 40s, if no more come"),
        ("ratio", "less than 500 % of the requests fail"),
        ("heartbeat", "the app sends a heartbeat"),
        ("eclipse", "the counted errors leave the window within 40s, if no more come"),
    ],
)
def test_each_rule_says_when_it_is_satisfied(rule: str, sentence: str) -> None:
    verdict = Verdict((ERRORS._replace(rule=rule),))
    assert _remedies(SUSPECT._replace(verdict=verdict))[0] == sentence
