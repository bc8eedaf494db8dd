"""Kinds as people write them in settings: what is taken, what is refused, and that the two forms agree."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import kinds

KIND = st.from_regex(r"[A-Za-z0-9_.:/-]{1,64}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("", (), id="none"),
        pytest.param(" , ,", (), id="commas"),
        pytest.param("cache", ("cache",), id="one"),
        pytest.param(" cache ,\tsearch\n", ("cache", "search"), id="blanks around"),
        pytest.param("cache,search,", ("cache", "search"), id="comma behind"),
        pytest.param("db/redis:time-out_1.x", ("db/redis:time-out_1.x",), id="every sign"),
        pytest.param("k" * 64, ("k" * 64,), id="longest"),
        pytest.param("redis:3", ("redis:3",), id="colon is a part of a kind"),
    ],
)
def test_names_are_read_in_order(text: str, names: tuple[str, ...]) -> None:
    assert kinds.names(text) == names


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        pytest.param("", (), id="none"),
        pytest.param("redis:3", (("redis", 3),), id="one"),
        pytest.param(" redis:3 , mysql:5, ", (("redis", 3), ("mysql", 5)), id="blanks around"),
        pytest.param("mysql:5,redis:3", (("mysql", 5), ("redis", 3)), id="order is kept"),
        pytest.param("db:redis:3", (("db:redis", 3),), id="last colon parts"),
        pytest.param("a::3", (("a:", 3),), id="colon at the end of the kind"),
        pytest.param("redis:007", (("redis", 7),), id="zeros before"),
        pytest.param("redis:999999", (("redis", 999_999),), id="largest"),
        pytest.param("redis:3,Redis:4", (("redis", 3), ("Redis", 4)), id="kinds differ by their letters"),
    ],
)
def test_limits_are_read_in_order(text: str, limits: tuple[tuple[str, int], ...]) -> None:
    assert kinds.limits(text) == limits


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("redis", "has 'redis': write kind:limit", id="no limit"),
        pytest.param("redis:", "has 'redis:'", id="empty limit"),
        pytest.param(":3", "has ':3'", id="no kind"),
        pytest.param("redis:0", "a limit of at least 1", id="nought"),
        pytest.param("redis:-1", "has 'redis:-1'", id="negative"),
        pytest.param("redis:3.5", "has 'redis:3.5'", id="fraction"),
        pytest.param("redis:1000000", "has 'redis:1000000'", id="too large"),
        pytest.param("redis: 3", "has 'redis: 3'", id="blank before the limit"),
        pytest.param("redis:\u0663", "has 'redis:", id="digit of another script"),
        pytest.param("redis=3", "has 'redis=3'", id="equals sign"),
        pytest.param("redis:3;mysql:5", "has 'redis:3;mysql:5'", id="semicolon"),
        pytest.param("a b:3", "has 'a b:3'", id="blank in the kind"),
        pytest.param("k" * 65 + ":3", "has 'kkk", id="kind too long"),
        pytest.param("redis:3,mysql:5,redis:3", "has two limits for redis", id="two limits"),
    ],
)
def test_bad_limits_are_refused_by_the_part_that_is_bad(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        kinds.limits(text)


@pytest.mark.parametrize(
    "text",
    ["a b", "a,b c", "r\u00e9dis", "a{b}", "k" * 65, "a\x00b", "a;b", "\u0661"],
    ids=["blank", "second", "accent", "braces", "too long", "zero", "semicolon", "digit of another script"],
)
def test_what_is_no_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="which is no kind: 1 to 64 of A-Z a-z 0-9"):
        kinds.names(text)


def test_a_bad_part_of_a_novel_is_not_repeated_whole() -> None:
    for read in (kinds.names, kinds.limits):
        with pytest.raises(ValueError, match=r"^has ") as caught:
            read("x" * 60_000)
        assert len(str(caught.value)) < 200


@given(st.lists(KIND, max_size=5))
def test_names_survive_their_normal_form(names: list[str]) -> None:
    written = kinds.checked_names(" , ".join(names))
    assert kinds.names(written) == tuple(names)
    assert kinds.checked_names(written) == written


@given(st.dictionaries(KIND, st.integers(1, 999_999), max_size=5))
def test_limits_survive_their_normal_form(limits: dict[str, int]) -> None:
    written = kinds.checked_limits(" , ".join(f"{kind}:{limit}" for kind, limit in limits.items()))
    assert dict(kinds.limits(written)) == limits
    assert kinds.checked_limits(written) == written


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (kinds.names, kinds.limits):
        with suppress(ValueError):
            assert len(read(text)) <= text.count(",") + 1
