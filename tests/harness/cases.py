"""A table of cases: each row stands beside the id that says what it is about."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


def cases(names: str, rows: Mapping[str, object]) -> pytest.MarkDecorator:
    """Run a test for each row: its values for these names, which are separated by commas, or its value for one."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))
