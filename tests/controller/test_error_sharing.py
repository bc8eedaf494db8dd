"""The errors of a container are added to those of its service."""

from __future__ import annotations

from random import Random

import pytest

from sidecar.controller.error_sharing import ErrorSharing
from sidecar.core.types import Unknown


class Rig:
    def __init__(self) -> None:
        self.total = 7
        self.added: list[int] = []
        self.failures: list[Exception] = []
        self.answer: int | Unknown | Exception = 1
        self.sharing = ErrorSharing(lambda: self.total, self, rng=Random(1), on_failure=self.failures.append)

    async def add_errors(self, count: int) -> int | Unknown:
        self.added.append(count)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [1, Unknown("timeout"), ValueError("x")], ids=["added", "unknown", "failed"])
async def test_growth_is_sent_once_whatever_the_answer(answer: int | Unknown | Exception) -> None:
    rig = Rig()
    await rig.sharing.turn()
    assert rig.added == [], "errors from before the start are not new"
    rig.answer, rig.total = answer, 12
    await rig.sharing.turn()
    await rig.sharing.turn()
    assert rig.added == [5]
    assert rig.failures == ([answer] if isinstance(answer, Exception) else [])
