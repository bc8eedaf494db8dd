"""Whatever comes back is read, or refused in one way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.store import redis_content as content
from sidecar.store.redis_content import ENCODING_ERRORS, UNREADABLE

VALUES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=8) | st.sampled_from([b"1700000000000000", b"inf", b"\xff"]),
    lambda inner: st.lists(inner, max_size=4),
)
READERS = [content.view, content.beat_reply, content.committed, content.count, content.times, content.texts]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@settings(max_examples=40)
@given(reply=VALUES | st.lists(VALUES, min_size=12, max_size=12) | st.lists(VALUES, min_size=16, max_size=16))
def test_anything_else_is_no_answer(read: object, reply: object) -> None:
    assert callable(read)
    try:
        read(reply)
    except UNREADABLE:
        return


@pytest.mark.parametrize("text", ["", "ä", "\ud800", "\U0001f680", "\x00\n"])
def test_text_comes_back_as_it_was_written(text: str) -> None:
    assert content.texts([text.encode(errors=ENCODING_ERRORS)]) == [text]
