"""Kinds as people write them in settings: what is taken, what is refused, and that the normal form agrees."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import syntax

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


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert len(syntax.kind_limits(text)) <= text.count(",") + 1
