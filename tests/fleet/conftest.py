"""Every world of a test ends with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.small import OPEN


@pytest.fixture(autouse=True)
def _closed_worlds() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()
