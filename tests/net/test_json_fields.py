"""Objects and queries by the readers of their fields: what is read, and the sentence for what is not."""

from __future__ import annotations

import json
import re

import pytest

from sidecar.net.json_fields import BadFieldError, Readers, decoded, read_fields, read_object, read_pairs


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("takes a number")  # noqa: TRY004 - as the readers of the sidecar
    return value


READERS: Readers = {"count": ("errors", _number), "kind": ("kind", str), "level": ("level", str)}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b' \r\n\t{ "count" : 2 } \n', (("count", 2),)),
        (b"\xef\xbb\xbf[{},7]", [(), 7]),
        (b'{"a":{"b":null},"a":1}', (("a", (("b", None),)), ("a", 1))),
    ],
    ids=["blanks around it", "with a byte order mark", "two fields of one name"],
)
def test_object_is_decoded_as_pairs(body: bytes, value: object) -> None:
    assert decoded(body) == value


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "Expecting value at character 0"),
        (b" ", "Expecting value at character 0"),
        (b"count=1", "Expecting value at character 0"),
        (b"{}{}", "Extra data at character 2"),
        (b"{'count':1}", ""),
        (b'{"count":1', ""),
        (b'{"message":"a\nb"}', "Invalid control character"),
        (b'{"kind":"\xff"}', "the text is not UTF-8"),
        ('{"count":1}'.encode("utf-16"), "the text is not UTF-8"),
        (b"\x00" * 4, ""),
        (b"[" * 65_000, "nested too deeply"),
        (b'{"a":' * 13_000, "nested too deeply"),
        (b'{"count":%s}' % (b"9" * 5_000), "a number is too long"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_body_that_is_no_json_is_refused_with_the_cause(body: bytes, cause: str) -> None:
    with pytest.raises(BadFieldError, match="^" + re.escape(f"body: not JSON ({cause}")) as caught:
        decoded(body)
    assert (caught.value.status, caught.value.word) == (400, "body")


def test_fields_are_read_by_their_names() -> None:
    assert read_object(b'{"kind":"a","count":2}', READERS) == {"kind": "a", "errors": 2}
    assert read_pairs([("kind", "a")], READERS) == {"kind": "a"}
    assert read_pairs([], READERS) == {}


@pytest.mark.parametrize("body", [b"{}", b'[{"count":1}]', b"null"])
def test_object_is_needed_and_has_to_say_something(body: bytes) -> None:
    with pytest.raises(BadFieldError, match=r"^body: takes an object with fields of count, kind, level$"):
        read_object(body, READERS)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"kind": "a", "count": "x"}, "[1].count: takes a number"),
        ({"cuont": 1}, "[1].cuont: no such field, did you mean count?"),
        ({"zzz": 1}, "[1].zzz: no such field; it takes count, kind, level"),
        ({"": 1}, "[1].: no such field; it takes count, kind, level"),
        ({"x" * 60_000: 1}, f"[1].{'x' * 64}: no such field; it takes count, kind, level"),
        ([], "body[1]: takes an object"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_field_is_named_by_its_path(value: object, sentence: str) -> None:
    with pytest.raises(BadFieldError, match="^" + re.escape(sentence) + "$"):
        read_fields(decoded(json.dumps(value).encode()), "[1].", READERS)


def test_field_is_given_once() -> None:
    with pytest.raises(BadFieldError, match=r"^kind: given twice$"):
        read_object(b'{"kind":"a","count":1,"kind":"b"}', READERS)
