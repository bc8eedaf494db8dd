"""One human sentence for each verdict and each answer, and the machine's word beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar import controller, store
from sidecar.core import fleet, life
from sidecar.core.claims import ALONE, Answer, Denied, Granted, Unknown
from sidecar.core.explain import reasons, words
from sidecar.core.types import Hold, Reason, Verdict


def refusals() -> list[str]:
    """Every text that could be the first argument of a ``GateRefusal``, or of a refusal by the sidecar itself."""
    own = {word for word in _first_arguments(life.__file__, "Denied") if word}
    return sorted(_first_arguments(fleet.__file__, "GateRefusal") | own)


def failures() -> set[str]:
    """Every word for an unclear answer: where it arises, beside the exception that it stands for, or ``ALONE``."""
    words = {
        ALONE,
        *_first_arguments(store.__file__, "Unknown", "StoreError"),
        *_first_arguments(controller.__file__, "Unknown"),
    }
    for node in _nodes(store.__file__):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2 and ast.unparse(node.elts[0]).endswith("Error"):
            words |= _texts(node.elts[1])
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words |= {*re.findall(r"\(\?P<(\w+)>", node.value)}
    return words


def _first_arguments(package: str | None, *names: str) -> set[str]:
    calls = [node for node in _nodes(package) if isinstance(node, ast.Call) and node.args]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]
    return {text for call in named for text in _texts(call.args[0])}


def _texts(part: ast.expr) -> set[str]:
    constants = [node for node in ast.walk(part) if isinstance(node, ast.Constant)]
    return {constant.value for constant in constants if isinstance(constant.value, str)}


def _nodes(package: str | None) -> Iterator[ast.AST]:
    assert package is not None
    for path in Path(package).parent.glob("*.py"):
        yield from ast.walk(ast.parse(path.read_text()))


FREEZE = Hold("ann", "deploy of 4.2", 1_700_000_000.0)


@pytest.mark.parametrize(
    ("answer", "word", "sentence"),
    [
        (Granted(3, 10), "granted", "token granted, 3 of 10 in use"),
        (Granted(3, 10, replayed=True), "replayed", "token granted (already ours), 3 of 10 in use"),
        (
            Denied("paused", 1, 10, 540.0, 40, 30, "redis"),
            "paused",
            (
                "culls for this cause are paused for 9m: the last one has not helped; "
                "most of 30 suspects of 40 containers have redis"
            ),
        ),
        (
            Denied("hold", 0, 10, 59.5, hold=FREEZE),
            "hold",
            "ann holds the service: deploy of 4.2, no container is culled for 1m",
        ),
        (
            Denied("hold", 0, 10, 60.0, hold=Hold("ann", "look", 1.0, "web-1")),
            "hold",
            "ann holds instance web-1: look, no container is culled for 1m",
        ),
        (Denied("floor", 0, 10, 10.0, alive=4), "floor", "too few of the 4 containers would stay in service"),
        (Denied("eclipse", 10, 10, 211.0), "eclipse", "eclipse"),
        (Unknown("timeout"), "timeout", "Redis did not answer in time: without a clear answer there is no token"),
        (Unknown("eclipse"), "eclipse", "eclipse: without a clear answer there is no token"),
        (Granted(1, 2), "granted", "lease granted, 1 of 2 in use"),
        (Denied("slots", 1, 1, 10.0), "slots", "no retirement lease is free, 1 of 1 are in use"),
        (
            Denied("culls", 0, 1, 10.0, alive=9, suspect=2),
            "culls",
            "culls come before retirements: 2 of 9 containers are suspect",
        ),
        (Unknown("timeout"), "timeout", "Redis did not answer in time: without a clear answer there is no lease"),
    ],
)
def test_every_answer_has_a_word_and_a_sentence(answer: Answer, word: str, sentence: str) -> None:
    assert reasons.reason_word(answer) == word
    assert reasons.answer(answer, "lease" if "lease" in sentence else "token") == sentence


def test_wait_at_another_process_says_what_happened_and_a_new_store_does_not() -> None:
    new, other = Denied("newborn", 0, 4, 15.0), Denied("newborn", 0, 4, 15.0, is_other_process=True)
    assert reasons.answer(new) == "Redis has not heard from the whole fleet yet, no container is culled for 15s"
    assert reasons.answer(other) == "Redis was restarted or failed over, no container is culled for 15s"
    assert reasons.remedy(new, "in 15s") != reasons.remedy(other, "in 15s")
    assert reasons.remedy(other, "in 15s").endswith(" in 15s")


@pytest.mark.parametrize("word", sorted({*words.REFUSALS, *words.FAILURES}))
def test_every_known_refusal_and_error_is_a_whole_sentence(word: str) -> None:
    is_error = word in words.FAILURES
    sentence = reasons.answer(Unknown(word) if is_error else Denied(word, 7, 10, 42.0))
    assert " " in sentence
    assert "{" not in sentence
    assert not is_error or (sentence.startswith(words.FAILURES[word].sentence) and sentence.endswith("is no token"))


def test_every_refusal_of_the_fleet_has_a_row_and_no_other_has() -> None:
    assert words.REFUSALS.keys() == set(refusals())


def test_every_failure_of_the_store_has_a_row_and_no_other_has() -> None:
    assert words.FAILURES.keys() == failures()


@pytest.mark.parametrize(
    ("word", "heading"),
    [
        pytest.param("data_loss", "memory", id="refusal"),
        pytest.param("slots", "retirement", id="refusal of a lease"),
        pytest.param("auth", "access", id="failure"),
        pytest.param("internal", "internal", id="own failure"),
        pytest.param("not_honoured", "arbiternothonoured", id="message"),
        pytest.param("eclipse", "", id="unknown word"),
    ],
)
def test_word_of_the_tables_has_its_runbook(word: str, heading: str) -> None:
    assert reasons.runbook(word) == heading


def test_remedy_of_an_unknown_word_waits_or_is_the_given_one() -> None:
    assert reasons.remedy(Denied("window", 10, 10, 9.0), "in 9s") == "the next token comes back in 9s"
    assert reasons.remedy(Denied("eclipse", 10, 10, 9.0), "now").endswith("the sidecar asks again now")
    assert reasons.failure_remedy("connection", "other") == "Redis can be reached"
    assert reasons.failure_remedy("eclipse", "other") == "other"


@pytest.mark.parametrize("text", ["{", "}", "{0}", "{nobody}"])
def test_what_people_write_is_never_read_as_a_pattern(text: str) -> None:
    sentence = reasons.answer(Denied("hold", 0, 10, 60.0, cause=text, hold=Hold(text, text, 1.0, text)))
    assert sentence.startswith(f"{text} holds instance {text}: {text}, no container")
    assert sentence.endswith(f" have {text}")


@pytest.mark.parametrize(("retry_after_s", "told"), [(0.000_001, "1s"), (0.4, "1s"), (1.0, "1s"), (211.0, "3m 31s")])
def test_wait_is_never_told_as_none(retry_after_s: float, told: str) -> None:
    assert reasons.answer(Denied("window", 10, 10, retry_after_s)).endswith(f"comes back in {told}")


@pytest.mark.parametrize(
    ("verdict", "sentence", "rule"),
    [
        (None, "", ""),
        (Verdict(), "", ""),
        (Verdict((Reason("errors", 7, 5, "7 errors"),)), "7 errors", "errors"),
        (
            Verdict((Reason("errors", 7, 5, "7 errors"), Reason("success", 0.2, 0.5, "20 %"))),
            "7 errors; 20 %",
            "errors",
        ),
    ],
    ids=["not judged yet", "fine", "one reason", "two reasons"],
)
def test_verdict_says_all_its_reasons_and_names_the_first_rule(
    verdict: Verdict | None, sentence: str, rule: str
) -> None:
    assert (reasons.verdict(verdict), reasons.rule(verdict)) == (sentence, rule)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.2s"),
        (59.9, "59.9s"),
        (59.96, "1m"),
        (60, "1m"),
        (90, "1m 30s"),
        (3_599.6, "1h"),
        (21_720, "6h 2m"),
        (3_605, "1h"),
        (86_400, "1d"),
        (93_784, "1d 2h"),
        (2_592_000, "30d"),
    ],
)
def test_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert reasons.span(seconds) == text


@pytest.mark.parametrize(
    ("most", "text"), [(3, "a, b, c"), (2, "a, b and 1 more"), (1, "a and 2 more")], ids=["all", "all but one", "one"]
)
def test_names_beyond_the_most_are_counted(most: int, text: str) -> None:
    assert reasons.names(["a", "b", "c"], most) == text
