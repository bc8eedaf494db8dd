"""Every body that may come: the good ones to the ping, the bad ones to the sentence that names the field."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.types import ErrorLevel, ErrorReport, Results
from sidecar.inputs.report_bodies import (
    MESSAGE_LIMIT,
    MOST_ERRORS,
    MOST_REPORTS,
    BadReportError,
    read_errors,
    read_results,
)

FULL = {
    "count": 3,
    "level": "investigation",
    "kind": "db/redis:time-out_1.x",
    "message": "Zeit\u00fcberschreitung \u23f1\n",
    "fingerprint": "#a1|{~}",
    "fatal": True,
    "app_start": "2026-11-20T10:00:00Z@42",
}
FULL_PING = ErrorReport(
    3,
    ErrorLevel.INVESTIGATION,
    "db/redis:time-out_1.x",
    "Zeit\u00fcberschreitung \u23f1\n",
    "#a1|{~}",
    fatal=True,
    app_start="2026-11-20T10:00:00Z@42",
)
FIELDS = ("count", "level", "kind", "message", "fingerprint", "fatal", "app_start")


@pytest.mark.parametrize(
    ("body", "pings"),
    [
        pytest.param(b"", (ErrorReport(),), id="empty body is one server error"),
        pytest.param(b"{}", (ErrorReport(),), id="empty object is one server error"),
        pytest.param(b' \r\n\t{ "count" : 2 } \n', (ErrorReport(2),), id="blanks around"),
        pytest.param(b"[{}]", (ErrorReport(),), id="array of one"),
        pytest.param(
            b'[{"count":2},{},{"count":0}]', (ErrorReport(2), ErrorReport(), ErrorReport(0)), id="array keeps its order"
        ),
        pytest.param(json.dumps(FULL).encode(), (FULL_PING,), id="every field"),
        pytest.param(json.dumps(FULL, ensure_ascii=False).encode(), (FULL_PING,), id="every field in UTF-8"),
        pytest.param(json.dumps(FULL).encode("utf-8-sig"), (FULL_PING,), id="byte order mark"),
        pytest.param(b'{"count":0,"app_start":"b2"}', (ErrorReport(0, app_start="b2"),), id="announced by count 0"),
        pytest.param(
            b'{"message":null,"fingerprint":null,"app_start":null}', (ErrorReport(),), id="null is nothing said"
        ),
        pytest.param(b'{"count":%d}' % MOST_ERRORS, (ErrorReport(MOST_ERRORS),), id="largest count"),
        pytest.param(b'{"count":0,"version":"4.1"}', (ErrorReport(0, version="4.1"),), id="version of the app"),
        pytest.param(b'{"message":""}', (ErrorReport(message=""),), id="empty message"),
        pytest.param(
            json.dumps({"message": "\u00fc" * MESSAGE_LIMIT}).encode(),
            (ErrorReport(message="\u00fc" * MESSAGE_LIMIT),),
            id="longest message, in characters",
        ),
        pytest.param(json.dumps({"kind": "k" * 64}).encode(), (ErrorReport(kind="k" * 64),), id="longest kind"),
        pytest.param(
            b"[" + b",".join([b"{}"] * MOST_REPORTS) + b"]", (ErrorReport(),) * MOST_REPORTS, id="longest array"
        ),
        *(
            pytest.param(b'{"level":"%s"}' % level.encode(), (ErrorReport(level=level),), id=level)
            for level in ErrorLevel
        ),
    ],
)
def test_good_body_becomes_error_reports(body: bytes, pings: tuple[ErrorReport, ...]) -> None:
    assert read_errors(body) == pings


OBJECTS = "body: takes an object or a non-empty array of objects"
COUNT = "count: takes a whole number from 0 to 1000000"
KIND = "kind: takes 1 to 64 of A-Z a-z 0-9 _ . : / -"
TOKEN = "takes 1 to 64 printable ASCII characters without blanks"
MESSAGE = "message: takes a text of at most 4096 characters"
LEVEL = "level: takes one of server_error, client_error, investigation, recovered"
ALL = "it takes count, level, kind, message, fingerprint, fatal, app_start"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b" ", "body: not JSON (Expecting value at character 1)", id="blank"),
        pytest.param(b"count=1", "body: not JSON (Expecting value at character 0)", id="a form"),
        pytest.param(b"{}{}", "body: not JSON (Extra data at character 2)", id="two documents"),
        pytest.param(b"{'count':1}", "body: not JSON (", id="single quotes"),
        pytest.param(b'{"count":1', "body: not JSON (", id="cut off"),
        pytest.param(b'{"message":"a\nb"}', "body: not JSON (Invalid control character", id="raw newline in a text"),
        pytest.param(b'{"kind":"\xff"}', "body: not JSON (the text is not UTF-8)", id="not UTF-8"),
        pytest.param('{"count":1}'.encode("utf-16"), "body: not JSON (the text is not UTF-8)", id="UTF-16"),
        pytest.param(b"\x00" * 4, "body: not JSON (", id="zeros"),
        pytest.param(b"[" * 65_000, "body: not JSON (nested too deeply)", id="deep array"),
        pytest.param(b'{"a":' * 13_000, "body: not JSON (nested too deeply)", id="deep object"),
        pytest.param(b'{"count":%s}' % (b"9" * 5_000), "body: not JSON (a number is too long)", id="number of a novel"),
        pytest.param(b"null", OBJECTS, id="null"),
        pytest.param(b"7", OBJECTS, id="number"),
        pytest.param(b"NaN", OBJECTS, id="NaN"),
        pytest.param(b'"errors"', OBJECTS, id="text"),
        pytest.param(b"[]", OBJECTS, id="empty array"),
        pytest.param(b"[[]]", "body[0]: takes an object", id="array in the array"),
        pytest.param(b"[{},null]", "body[1]: takes an object", id="null in the array"),
        pytest.param(
            b"[" + b",".join([b"{}"] * (MOST_REPORTS + 1)) + b"]",
            "body: takes at most 1000 objects, not 1001",
            id="array too long",
        ),
        pytest.param(b'{"count":true}', COUNT, id="bool as count"),
        pytest.param(b'{"count":1.0}', COUNT, id="float count"),
        pytest.param(b'{"count":1e3}', COUNT, id="exponent"),
        pytest.param(b'{"count":NaN}', COUNT, id="NaN count"),
        pytest.param(b'{"count":-Infinity}', COUNT, id="infinite count"),
        pytest.param(b'{"count":"1"}', COUNT, id="text as count"),
        pytest.param(b'{"count":null}', COUNT, id="null count"),
        pytest.param(b'{"count":{}}', COUNT, id="object as count"),
        pytest.param(b'{"count":-1}', COUNT, id="negative count"),
        pytest.param(b'{"count":1000001}', COUNT, id="count too large"),
        pytest.param(b'{"count":%s}' % (b"9" * 400), COUNT, id="count beyond any float"),
        pytest.param(b'{"count":1,"count":1}', "count: given twice", id="field given twice"),
        pytest.param(b'{"kind":"a","count":1,"kind":"b"}', "kind: given twice", id="field given twice, apart"),
        pytest.param(b'{"level":"error"}', LEVEL, id="unknown level"),
        pytest.param(b'{"level":"SERVER_ERROR"}', LEVEL, id="level in capitals"),
        pytest.param(b'{"level":["up"]}', LEVEL, id="level as a list"),
        pytest.param(b'{"kind":""}', KIND, id="empty kind"),
        pytest.param(b'{"kind":"a b"}', KIND, id="kind with a blank"),
        pytest.param(b'{"kind":"redis\\n"}', KIND, id="kind with a newline behind"),
        pytest.param(b'{"kind":"r\xc3\xa9dis"}', KIND, id="kind with an accent"),
        pytest.param(b'{"kind":"\\u0661"}', KIND, id="kind with a digit of another script"),
        pytest.param(b'{"kind":"a{b}"}', KIND, id="kind with braces"),
        pytest.param(json.dumps({"kind": "k" * 65}).encode(), KIND, id="kind too long"),
        pytest.param(b'{"kind":null}', KIND, id="null kind"),
        pytest.param(json.dumps({"message": "m" * 4097}).encode(), MESSAGE, id="message too long"),
        pytest.param(b'{"message":["m"]}', MESSAGE, id="message as a list"),
        pytest.param(b'{"message":{"m":1}}', MESSAGE, id="message as an object"),
        pytest.param(b'{"fingerprint":""}', f"fingerprint: {TOKEN}", id="empty fingerprint"),
        pytest.param(b'{"fingerprint":7}', f"fingerprint: {TOKEN}", id="number as fingerprint"),
        pytest.param(b'{"app_start":"a b"}', f"app_start: {TOKEN}", id="app_start with a blank"),
        pytest.param(b'{"app_start":"b\\n"}', f"app_start: {TOKEN}", id="app_start with a newline behind"),
        pytest.param(json.dumps({"app_start": "b" * 65}).encode(), f"app_start: {TOKEN}", id="app_start too long"),
        pytest.param(b'{"fatal":1}', "fatal: takes true or false", id="number as fatal"),
        pytest.param(b'{"fatal":"true"}', "fatal: takes true or false", id="text as fatal"),
        pytest.param(b'{"fatal":null}', "fatal: takes true or false", id="null fatal"),
        pytest.param(b'{"cuont":1}', "cuont: no such field, did you mean count?", id="misspelt field"),
        pytest.param(b'{"appstart":"b"}', "appstart: no such field, did you mean app_start?", id="misspelt app_start"),
        pytest.param(b'{"zzz":1}', f"zzz: no such field; {ALL}", id="field unlike any"),
        pytest.param(b'{"":1}', f": no such field; {ALL}", id="field without a name"),
        pytest.param(json.dumps({"x" * 60_000: 1}).encode(), f"{'x' * 64}: no such field; {ALL}", id="name of a novel"),
        pytest.param(b'[{},{"count":-1}]', f"[1].{COUNT}", id="place in the array"),
        pytest.param(b'[{},{},{"kind":"a b"}]', f"[2].{KIND}", id="place in the array, kind"),
        pytest.param(b'[{"cuont":1}]', "[0].cuont: no such field, did you mean count?", id="place, misspelt"),
        pytest.param(b'[{"fatal":true,"fatal":true}]', "[0].fatal: given twice", id="place, given twice"),
    ],
)
def test_bad_body_is_refused_by_the_name_of_the_field(body: bytes, complaint: str) -> None:
    with pytest.raises(BadReportError, match="^" + re.escape(complaint)):
        read_errors(body)


def _assert_within_bounds(ping: ErrorReport) -> None:
    assert type(ping.errors) is int
    assert 0 <= ping.errors <= MOST_ERRORS
    assert type(ping.level) is ErrorLevel
    assert re.fullmatch(r"[\x21-\x7e]{1,64}", ping.kind)
    assert ping.message is None or len(ping.message) <= MESSAGE_LIMIT
    for token in (ping.fingerprint, ping.app_start):
        assert token is None or re.fullmatch(r"[\x21-\x7e]{1,64}", token)
    assert type(ping.fatal) is bool


def _read(body: bytes) -> tuple[ErrorReport, ...]:
    """What the body says, within bounds; none for one that was refused. Any other exception ends the test."""
    with suppress(BadReportError):
        pings = read_errors(body)
        assert 1 <= len(pings) <= MOST_REPORTS
        for ping in pings:
            _assert_within_bounds(ping)
        return pings
    return ()


NUMBERS = st.integers() | st.floats() | st.just(10**400)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text() | st.sampled_from([*ErrorLevel])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
NEARLY = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3)
GOOD = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(0, MOST_ERRORS),
        "level": st.sampled_from([*ErrorLevel]),
        "kind": st.from_regex(r"[A-Za-z0-9_.:/-]{1,64}", fullmatch=True),
        "message": st.none() | st.text(max_size=MESSAGE_LIMIT),
        "fatal": st.booleans(),
    },
)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]:,"\\0123e-.tfn ', max_size=60).map(str.encode))
def test_any_bytes_are_reports_within_bounds_or_refused(body: bytes) -> None:
    _read(body)


@settings(deadline=None)
@given(VALUES | NEARLY | st.lists(NEARLY | GOOD, max_size=3))
def test_any_json_is_reports_within_bounds_or_refused(value: object) -> None:
    _read(json.dumps(value).encode())


@settings(deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=5))
def test_good_fields_in_any_combination_are_read(values: list[dict[str, object]]) -> None:
    pings = _read(json.dumps(values).encode())
    assert [ping.errors for ping in pings] == [value.get("count", 1) for value in values]
    assert [ping.kind for ping in pings] == [value.get("kind", "unknown") for value in values]


@settings(deadline=None)
@given(st.lists(GOOD, max_size=3), st.sampled_from([7, [], {"count": -1}, {"kind": "a b"}]), st.lists(GOOD, max_size=3))
def test_one_bad_object_refuses_the_whole_array(before: list[object], bad: object, after: list[object]) -> None:
    with pytest.raises(BadReportError, match=rf"\[{len(before)}\]"):
        read_errors(json.dumps([*before, bad, *after]).encode())


# -- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "results"),
    [
        pytest.param(b'{"ok":3,"failed":2}', Results(3, 2), id="both"),
        pytest.param(b'{"failed":2,"ok":3}', Results(3, 2), id="in any order"),
        pytest.param(b'{"ok":3}', Results(3, 0), id="only good"),
        pytest.param(b'{"failed":2}', Results(0, 2), id="only bad"),
        pytest.param(b'{"ok":0,"failed":0}', Results(), id="none"),
        pytest.param(b'{"ok":3,"failed":2,"in_flight":7}', Results(3, 2, 7), id="all three"),
        pytest.param(b'{"in_flight":0}', Results(in_flight=0), id="only none in flight"),
        pytest.param(b'{"load":0.7}', Results(load=0.7), id="load"),
        pytest.param(b'{"load":0,"ok":1}', Results(1, load=0.0), id="no load"),
        pytest.param(b'{"load":1e300}', Results(load=1e300), id="much load"),
        pytest.param(b'{"ok":%d}' % MOST_ERRORS, Results(MOST_ERRORS), id="most"),
        pytest.param(b'\xef\xbb\xbf {"ok":1} ', Results(1), id="byte order mark and blanks"),
    ],
)
def test_good_body_becomes_results(body: bytes, results: Results) -> None:
    assert read_results(body) == results


RESULTS = "body: takes an object with ok and failed and in_flight"
NUMBER = "takes a whole number from 0 to 1000000"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "body: not JSON", id="nothing"),
        pytest.param(b"ok=1", "body: not JSON", id="a form"),
        pytest.param(b'{"ok":\xff}', "body: not JSON (the text is not UTF-8)", id="not UTF-8"),
        pytest.param(b"[" * 65_000, "body: not JSON (nested too deeply)", id="deep"),
        pytest.param(b"{}", RESULTS, id="empty object"),
        pytest.param(b'[{"ok":1}]', RESULTS, id="array"),
        pytest.param(b"[]", RESULTS, id="empty array"),
        pytest.param(b"null", RESULTS, id="null"),
        pytest.param(b"1", RESULTS, id="number"),
        pytest.param(b'"ok"', RESULTS, id="text"),
        pytest.param(b'{"ok":-1}', f"ok: {NUMBER}", id="negative"),
        pytest.param(b'{"ok":1.0}', f"ok: {NUMBER}", id="fraction"),
        pytest.param(b'{"ok":true}', f"ok: {NUMBER}", id="bool"),
        pytest.param(b'{"ok":null}', f"ok: {NUMBER}", id="null as a number"),
        pytest.param(b'{"ok":1,"in_flight":-1}', f"in_flight: {NUMBER}", id="fewer than none in flight"),
        pytest.param(b'{"ok":1,"in_flight":0.5}', f"in_flight: {NUMBER}", id="half a request in flight"),
        pytest.param(b'{"ok":1,"in_flight":null}', f"in_flight: {NUMBER}", id="null in flight"),
        *(
            pytest.param(b'{"load":%s}' % load, "load: takes a number of 0 or more", id=f"load {load.decode()[:9]}")
            for load in (b"-0.1", b"NaN", b"Infinity", b"1e400", b"1" * 400, b"true", b"null", b'"0.7"', b"[1]")
        ),
        pytest.param(b'{"inflight":0}', "inflight: no such field, did you mean in_flight?", id="misspelt in_flight"),
        pytest.param(b'{"ok":1,"failed":"2"}', f"failed: {NUMBER}", id="text as a number"),
        pytest.param(b'{"failed":1000001}', f"failed: {NUMBER}", id="too many"),
        pytest.param(b'{"ok":1,"ok":2}', "ok: given twice", id="given twice"),
        pytest.param(b'{"fialed":1}', "fialed: no such field, did you mean failed?", id="misspelt"),
        pytest.param(b'{"count":1}', "count: no such field; it takes ok, failed, in_flight", id="field of an error"),
    ],
)
def test_bad_results_are_refused_by_the_name_of_the_field(body: bytes, complaint: str) -> None:
    with pytest.raises(BadReportError, match="^" + re.escape(complaint)):
        read_results(body)


@settings(deadline=None)
@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_results_within_bounds_or_refused(body: bytes) -> None:
    with suppress(BadReportError):
        results = read_results(body)
        seen = (results.ok, results.failed, 0 if results.in_flight is None else results.in_flight)
        assert all(type(number) is int and 0 <= number <= MOST_ERRORS for number in seen)
