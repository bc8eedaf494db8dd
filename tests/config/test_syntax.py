"""Shares, limits of kinds and templates as people write them: what is taken, and what is refused with which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import syntax

# -- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "share", "written"),
    [
        ("10", (10, False), "10"),
        (10, (10, False), "10"),
        (" 007 ", (7, False), "7"),
        ("999999", (999_999, False), "999999"),
        ("5 %", (50, True), "5%"),
        ("0.1%", (1, True), "0.1%"),
        ("050.0%", (500, True), "50%"),
        ("100%", (1000, True), "100%"),
    ],
)
def test_share_is_a_count_or_thousandths_of_the_fleet(value: object, share: tuple[int, bool], written: str) -> None:
    assert syntax.parse_share(value) == share
    assert syntax.checked_share(value) == syntax.write_share(share[0], is_part=share[1]) == written


@pytest.mark.parametrize(
    "value",
    ["", "-1", "+1", "1.5", "1e3", "5%%", "%", ".5%", "5.%", "12.25%", "five", "5\n6", "\u0665", True, None, 5.0, [10]],
)
def test_anything_else_is_told_how_to_write_it(value: object) -> None:
    with pytest.raises(ValueError, match=re.escape("must be a whole number, or a percentage such as 5% or 12.5%")):
        syntax.checked_share(value)


@pytest.mark.parametrize(("value", "most"), [("100.1%", "100%"), ("101%", "100%"), ("1000000", "999999")])
def test_nothing_is_more_than_the_whole_fleet(value: str, most: str) -> None:
    with pytest.raises(ValueError, match=f"must be at most {most}"):
        syntax.parse_share(value)


@given(st.integers(0, 999_999) | st.integers(0, 1000).map(lambda part: f"{part / 10}%"))
def test_what_is_written_is_read_as_the_same_share(value: object) -> None:
    assert syntax.parse_share(syntax.checked_share(value)) == syntax.parse_share(value)


# -- limits of kinds -------------------------------------------------------------------------------------------------


KIND = st.from_regex(r"[A-Za-z0-9_.:/-]{1,64}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "limits", "ignored"),
    [
        ("", (), ()),
        (" , ,", (), ()),
        (" redis:3 , mysql:5, ", (("redis", 3), ("mysql", 5)), ()),
        ("db:redis:3", (("db:redis", 3),), ()),
        ("redis:007,Redis:999999", (("redis", 7), ("Redis", 999_999)), ()),
        ("cache:off,redis:3,\tdb/search:time-out_1.x:off\n", (("redis", 3),), ("cache", "db/search:time-out_1.x")),
        (f"{'k' * 64}:off", (), ("k" * 64,)),
        ("off:1,off:off:off", (("off", 1),), ("off:off",)),
    ],
)
def test_limits_and_ignored_kinds_are_read_in_order(
    text: str, limits: tuple[tuple[str, int], ...], ignored: tuple[str, ...]
) -> None:
    assert (syntax.kind_limits(text), syntax.ignored_kinds(text)) == (limits, ignored)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("redis", "has 'redis': write kind:limit"),
        (":3", "has ':3'"),
        ("redis:0", "a limit of at least 1"),
        ("redis:-1", "has 'redis:-1'"),
        ("redis:3.5", "has 'redis:3.5'"),
        ("redis:1000000", "has 'redis:1000000'"),
        ("redis: 3", "has 'redis: 3'"),
        ("redis:\u0663", "has 'redis:"),
        ("redis:OFF", "or kind:off"),
        ("a b:3", "has 'a b:3'"),
        ("r\u00e9dis:off", "has 'r"),
        ("k" * 65 + ":off", "has 'kkk"),
        ("redis:3,mysql:5,redis:off", "has two limits for redis"),
        ("x" * 60_000, r"^has 'x{80}': write"),
    ],
    ids=lambda text: text[:20],
)
def test_bad_limits_are_refused_by_the_part_that_is_bad(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        syntax.kind_limits(text)


@given(st.dictionaries(KIND, st.integers(1, 999_999) | st.just("off"), max_size=5))
def test_limits_survive_their_normal_form(written: dict[str, int | str]) -> None:
    text = syntax.checked_kind_limits(" , ".join(f"{kind}:{limit}" for kind, limit in written.items()))
    assert syntax.checked_kind_limits(text) == text
    read = dict(syntax.kind_limits(text)) | dict.fromkeys(syntax.ignored_kinds(text), "off")
    assert read == written


# -- the template of a webhook ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (b'{"text": "$sentense"}', "knows no field 'sentense', only at, cause, command"),
        (b'{"text": $sentence}', "within quotes"),
        (b'{"text": "$sentence"', "no JSON"),
        (b'{"text": "$ 5"}', "no JSON"),
        (b"", "no JSON"),
        (b'{"text": "\xff"}', "cannot be read: not UTF-8"),
        (None, "cannot be read: No such file or directory"),
    ],
    ids=["unknown field", "outside quotes", "cut off", "bare dollar", "empty", "not UTF-8", "no file"],
)
def test_template_of_no_use_is_refused_with_the_reason(tmp_path: Path, template: bytes | None, says: str) -> None:
    path = tmp_path / "template"
    if template is not None:
        path.write_bytes(template)
    with pytest.raises(ValueError, match=says):
        syntax.read_template(str(path))


def test_usable_template_is_returned_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_text('{"text": "$severity: $sentence", "cost": "$$5"}')
    assert syntax.read_template(str(path)) == path.read_text()
