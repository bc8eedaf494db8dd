"""Checks of rules: a rule holds for the shipped text, and finds each of its mutations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def check(
    rule: Callable[[T], list[str]],
    read: Callable[[str], T],
    text: str,
    mutations: Sequence[tuple[Callable[[T], list[str]], str, str]],
) -> None:
    """AssertionError unless the rule holds, and finds all its mutations: ``(rule, old, new)`` with a unique ``old``."""
    assert rule(read(text)) == []
    own = [(old, new) for of, old, new in mutations if of is rule]
    assert own, "the rule has no mutation"
    for old, new in own:
        assert text.count(old) == 1, f"the text must have {old!r} once"
        assert rule(read(text.replace(old, new))), f"not found: {old!r} -> {new!r}"
