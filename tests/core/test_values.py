"""Copies of frozen values: as ``dataclasses.replace``."""

from __future__ import annotations

import dataclasses

import pytest

from sidecar.core.life.container import Container
from sidecar.core.types import State
from sidecar.core.values import replace

CONTAINER = Container(State.UP, 1.0, "web/a", due=3.0)


@pytest.mark.parametrize("changes", [{}, {"due": None}, {"state": State.SUSPECT, "since": 2.0, "asked": True}])
def test_copy_is_that_of_dataclasses(changes: dict[str, object]) -> None:
    before = dataclasses.astuple(CONTAINER)
    assert replace(CONTAINER, **changes) == dataclasses.replace(CONTAINER, **changes)  # type: ignore[arg-type]
    assert dataclasses.astuple(CONTAINER) == before


def test_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="Container has no field duee"):
        replace(CONTAINER, duee=1.0)
