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
        ("", ()),
        (" , ,", ()),
        (" cache ,\tsearch\n,", ("cache", "search")),
        ("db/redis:time-out_1.x", ("db/redis:time-out_1.x",)),
        ("k" * 64, ("k" * 64,)),
    ],
)
def test_names_are_read_in_order(text: str, names: tuple[str, ...]) -> None:
    assert kinds.names(text) == names


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", ()),
        (" redis:3 , mysql:5, ", (("redis", 3), ("mysql", 5))),
        ("db:redis:3", (("db:redis", 3),)),
        ("redis:007,Redis:999999", (("redis", 7), ("Redis", 999_999))),
    ],
)
def test_limits_are_read_in_order(text: str, limits: tuple[tuple[str, int], ...]) -> None:
    assert kinds.limits(text) == limits


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
        ("a b:3", "has 'a b:3'"),
        ("k" * 65 + ":3", "has 'kkk"),
        ("redis:3,mysql:5,redis:3", "has two limits for redis"),
    ],
)
def test_bad_limits_are_refused_by_the_part_that_is_bad(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        kinds.limits(text)


@pytest.mark.parametrize("text", ["a b", "a,b c", "r\u00e9dis", "k" * 65, "a\x00b", "a;b", "\u0661"])
def test_what_is_no_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="which is no kind: 1 to 64 of A-Z a-z 0-9"):
        kinds.names(text)


def test_bad_part_of_a_novel_is_not_repeated_whole() -> None:
    for read in (kinds.names, kinds.limits):
        with pytest.raises(ValueError, match=r"^has ") as caught:
            read("x" * 60_000)
        assert len(str(caught.value)) < 200


@given(st.dictionaries(KIND, st.integers(1, 999_999), max_size=5))
def test_both_survive_their_normal_form(limits: dict[str, int]) -> None:
    written = kinds.checked_limits(" , ".join(f"{kind}:{limit}" for kind, limit in limits.items()))
    assert dict(kinds.limits(written)) == limits
    assert kinds.names(kinds.checked_names(" , ".join(limits))) == (*limits,)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (kinds.names, kinds.limits):
        with suppress(ValueError):
            assert len(read(text)) <= text.count(",") + 1
