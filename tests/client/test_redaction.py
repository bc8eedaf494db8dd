from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import redacted
from sidecar.client.redaction import LOOKED_AT, MASK

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter2 for bob", "password=*** for bob"),
        ("db_password: 'hunter 2', x", "db_password: ***, x"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("ACCESS-TOKEN=abc&next=1", "ACCESS-TOKEN=***&next=1"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("sent Bearer abcdefghijkl to it", "sent Bearer *** to it"),
        ("redis://:hunter2@10.0.0.1:6379/0", "redis://***@10.0.0.1:6379/0"),
        ("mysql://bob:hunter2@db.example.org/shop", "mysql://***@db.example.org/shop"),
        ("user:bob@example.org", "user:***"),
        ("password=x4111 1111 1111 1111", "password=***"),
        ("no user bob.smith+x@mail.example.org", "no user ***"),
        ("card 4111 1111 1111 1111 refused", "card *** refused"),
        ("call 0170-1234567", "call ***"),
        (f"key {HEX} unknown", "key *** unknown"),
        ("user 123e4567-e89b-12d3-a456-426614174000", "user ***"),
        ("eyJhbGciOiJI.eyJzdWIi.c2ln bad", "*** bad"),
    ],
    ids=lambda text: text[:24],
)
def test_secrets_are_masked(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Error 111 connecting to 10.0.0.1:6379. Connection refused.",
        "KeyError: 'cart'",
        "took 12345 ms at line 4711",
        "a_very_long_function_name_without_any_number failed",
        "tokenizer failed",
        "no such file: /srv/shop/releases/v2/templates/cart.html",
        "",
    ],
    ids=lambda text: text[:24],
)
def test_what_helps_is_left(text: str) -> None:
    assert redacted(text) == text


def test_end_of_a_long_message_is_cut_off_between_words() -> None:
    assert redacted("abc " * LOOKED_AT) == ("abc " * (LOOKED_AT // 4)).strip()


def test_key_at_the_cut_is_not_left_in_part() -> None:
    assert "0123" not in redacted(f"{'x ' * (LOOKED_AT // 2 - 8)}{HEX}")


def test_letters_that_grow_in_lower_case_move_no_mask() -> None:
    assert redacted("\u0130 PASSWORD=hunter2 \u0130") == "\u0130 PASSWORD=*** \u0130"


@given(before=st.text(max_size=50), after=st.text(max_size=50))
def test_password_of_a_url_is_masked_wherever_it_stands(before: str, after: str) -> None:
    assert "hunter2" not in redacted(f"{before} redis://:hunter2@host {after}")


@pytest.mark.parametrize("text", ["a" * 10_000, "1" * 10_000, "a-" * 5_000, "@" * 5_000, "://" * 3_000, "a.a@" * 2_000])
def test_hostile_message_is_read_in_time(text: str) -> None:
    assert len(redacted(text)) <= LOOKED_AT * len(MASK)
