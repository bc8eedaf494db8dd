"""Every body that may come: the good ones to the report, the bad ones to the sentence that names the field."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.app_reports import ErrorLevel, ErrorReport, Results
from sidecar.inputs.report_bodies import (
    MESSAGE_LIMIT,
    MOST_ERRORS,
    MOST_REPORTS,
    read_errors,
    read_results,
)
from sidecar.net.json_fields import BadFieldError

FULL = {
    "count": 3,
    "level": "investigation",
    "kind": "db/redis:time-out_1.x",
    "message": "Zeit\u00fcberschreitung \u23f1\n",
    "fingerprint": "#a1|{~}",
    "fatal": True,
    "app_start": "2026-11-20T10:00:00Z@42",
    "version": "4.1",
}
FULL_REPORT = ErrorReport(
    3,
    ErrorLevel.INVESTIGATION,
    "db/redis:time-out_1.x",
    "Zeit\u00fcberschreitung \u23f1\n",
    "#a1|{~}",
    fatal=True,
    app_start="2026-11-20T10:00:00Z@42",
    version="4.1",
)


@pytest.mark.parametrize(
    ("body", "reports"),
    [
        (b"", (ErrorReport(),)),
        (b"{}", (ErrorReport(),)),
        (b' \r\n\t{ "count" : 2 } \n', (ErrorReport(2),)),
        (b'[{"count":2},{},{"count":0}]', (ErrorReport(2), ErrorReport(), ErrorReport(0))),
        (json.dumps(FULL).encode(), (FULL_REPORT,)),
        (json.dumps(FULL, ensure_ascii=False).encode("utf-8-sig"), (FULL_REPORT,)),
        (b'{"message":null,"fingerprint":null,"app_start":null}', (ErrorReport(),)),
        (b'{"message":""}', (ErrorReport(message=""),)),
        (b'{"count":%d}' % MOST_ERRORS, (ErrorReport(MOST_ERRORS),)),
        (json.dumps({"message": "\u00fc" * MESSAGE_LIMIT}).encode(), (ErrorReport(message="\u00fc" * MESSAGE_LIMIT),)),
        (json.dumps({"kind": "k" * 64}).encode(), (ErrorReport(kind="k" * 64),)),
        (b"[" + b",".join([b"{}"] * MOST_REPORTS) + b"]", (ErrorReport(),) * MOST_REPORTS),
        *((b'{"level":"%s"}' % level.encode(), (ErrorReport(level=level),)) for level in ErrorLevel),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_good_body_becomes_error_reports(body: bytes, reports: tuple[ErrorReport, ...]) -> None:
    assert read_errors(body) == reports


OBJECTS = "body: takes an object or a non-empty array of objects"
WHOLE = "takes a whole number from 0 to 1000000"
TOKEN = "takes 1 to 64 printable ASCII characters without blanks"
ALL = "it takes count, level, kind, message, fingerprint, fatal, app_start"
FIELDS: dict[str, tuple[str, list[bytes]]] = {
    "count": (WHOLE, [b"true", b"1.0", b"1e3", b"NaN", b"-Infinity", b'"1"', b"null", b"{}", b"-1", b"1000001"]),
    "level": (
        "takes one of server_error, client_error, investigation, recovered",
        [b'"error"', b'"SERVER_ERROR"', b'["up"]'],
    ),
    "kind": (
        "takes 1 to 64 of A-Z a-z 0-9 _ . : / -",
        [b'""', b'"a b"', b'"redis\\n"', b'"r\xc3\xa9dis"', b'"\\u0661"', b'"a{b}"', b'"%s"' % (b"k" * 65), b"null"],
    ),
    "message": ("takes a text of at most 4096 characters", [b'"%s"' % (b"m" * 4097), b'["m"]', b'{"m":1}']),
    "fingerprint": (TOKEN, [b'""', b"7"]),
    "app_start": (TOKEN, [b'"a b"', b'"b\\n"', b'"%s"' % (b"b" * 65)]),
    "fatal": ("takes true or false", [b"1", b'"true"', b"null"]),
}
WRONG: list[tuple[bytes, str]] = [
    *((body, OBJECTS) for body in (b"null", b"7", b"NaN", b'"errors"', b"[]")),
    (b"[[]]", "body[0]: takes an object"),
    (b"[{},null]", "body[1]: takes an object"),
    (b"[" + b",".join([b"{}"] * (MOST_REPORTS + 1)) + b"]", "body: takes at most 1000 objects, not 1001"),
    (b'{"count":%s}' % (b"9" * 400), f"count: {WHOLE}"),
    (b"{", "body: not JSON"),
    (b'{"zzz":1}', f"zzz: no such field; {ALL}"),
    (b'[{},{"count":-1}]', f"[1].count: {WHOLE}"),
]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        *(
            (b'{"%s":%s}' % (name.encode(), value), f"{name}: {takes}")
            for name, (takes, values) in FIELDS.items()
            for value in values
        ),
        *WRONG,
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_body_is_refused_by_the_name_of_the_field(body: bytes, complaint: str) -> None:
    with pytest.raises(BadFieldError, match="^" + re.escape(complaint)):
        read_errors(body)


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
@given(st.lists(GOOD, max_size=3), st.sampled_from([7, [], {"count": -1}, {"kind": "a b"}]), st.lists(GOOD, max_size=3))
def test_one_bad_object_refuses_the_whole_array(before: list[object], bad: object, after: list[object]) -> None:
    with pytest.raises(BadFieldError, match=rf"\[{len(before)}\]"):
        read_errors(json.dumps([*before, bad, *after]).encode())


# -- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "results"),
    [
        (b'{"failed":2,"ok":3}', Results(3, 2)),
        (b'{"ok":3,"failed":2,"in_flight":7}', Results(3, 2, 7)),
        (b'{"ok":0,"failed":0}', Results()),
        (b'{"in_flight":0}', Results(in_flight=0)),
        (b'{"load":0.7}', Results(load=0.7)),
        (b'{"load":0,"ok":1}', Results(1, load=0.0)),
        (b'{"load":1e300}', Results(load=1e300)),
        (b'{"ok":%d}' % MOST_ERRORS, Results(MOST_ERRORS)),
    ],
)
def test_good_body_becomes_results(body: bytes, results: Results) -> None:
    assert read_results(body) == results


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "body: not JSON"),
        *(
            (body, "body: takes an object with fields of ok, failed, in_flight, load")
            for body in (b"{}", b'[{"ok":1}]', b"null")
        ),
        *((b'{"ok":%s}' % value, f"ok: {WHOLE}") for value in (b"-1", b"1.0", b"true", b"null", b'"2"', b"1000001")),
        *((b'{"in_flight":%s}' % value, f"in_flight: {WHOLE}") for value in (b"-1", b"0.5", b"null")),
        *(
            (b'{"load":%s}' % value, "load: takes a number of 0 or more")
            for value in (b"-0.1", b"NaN", b"Infinity", b"1e400", b"1" * 400, b"true", b"null", b'"0.7"', b"[1]")
        ),
        (b'{"count":1}', "count: no such field; it takes ok, failed, in_flight"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_results_are_refused_by_the_name_of_the_field(body: bytes, complaint: str) -> None:
    with pytest.raises(BadFieldError, match="^" + re.escape(complaint)):
        read_results(body)
