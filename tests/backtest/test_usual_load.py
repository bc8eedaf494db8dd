"""The usual load of a past: incidents do not count."""

from __future__ import annotations

from random import Random

import pytest

from sidecar.backtest.past import Past, PastError
from sidecar.backtest.usual_load import usual_load


def test_usual_load_is_that_of_windows_without_incidents() -> None:
    rng = Random(1)
    past = Past("made", 1.0, has_requests=True, is_sampled=False)
    for name in "abcd":
        container = past.container(name)
        errors = past.errors(container, "http")
        for step in range(3600):
            container.requests.add(step, 10)
            container.see(step, step)
            is_sick = (name == "a" and step < 1200) or 3000 <= step < 3200
            errors.add(step, sum(rng.random() < (0.5 if is_sick else 0.005) for _ in range(10)))
    past.finish()
    usual = usual_load(past, 60.0)
    assert usual.containers == 4
    assert usual.load.per_s == pytest.approx(10, rel=0.01)
    assert usual.load.stray == pytest.approx(0.005, rel=0.15)


@pytest.mark.parametrize(("has_requests", "sentence"), [(False, "add --requests"), (True, "there are no requests")])
def test_unknown_requests_are_said(*, has_requests: bool, sentence: str) -> None:
    with pytest.raises(PastError, match=sentence):
        usual_load(Past("made", 1.0, has_requests=has_requests), 60.0)
