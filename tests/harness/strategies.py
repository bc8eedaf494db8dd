"""Strategies of hypothesis for the project's records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def built(
    kind: Callable[..., T], *fields: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> st.SearchStrategy[T]:
    """``st.builds``, which leaves fields with a default alone; those of a named tuple it would fill in."""
    return st.builds(lambda *values, **more: kind(*values, **more), *fields, **named)  # noqa: PLW0108 - as above
