"""What the containers of a past have when all is well: requests a second, and the part of them that fails."""

from __future__ import annotations

from collections import Counter
from math import ceil
from statistics import median
from typing import NamedTuple

from sidecar.backtest.past import Past, PastError
from sidecar.core.measure.noise import most_errors
from sidecar.core.measure.outlier import quantile
from sidecar.simulation.traffic import RequestLoad


class UsualLoad(NamedTuple):
    """The number of containers at a time, and the load of one of them.

    The part of its requests that fails is the most that is likely after ``errors`` in ``recorded_s`` seconds of all
    containers together: a short record without errors does not mean that there are none.
    """

    containers: int
    load: RequestLoad
    errors: int
    recorded_s: float


def usual_load(past: Past, window_s: float) -> UsualLoad:
    """The mean of all windows of ``window_s`` seconds but those with more errors than chance gives: these were sick.

    Raises PastError if the requests are not known.
    """
    if not past.has_requests:
        raise PastError(f"{past.source}: the requests have to be known for --suggest: add --requests")
    steps = max(1, ceil(window_s / past.step_s))
    windows: list[tuple[int, int]] = []
    first = past.span[0] if past.seen else 0
    there = Counter[int]()
    for container in past.containers.values():
        requests, errors = Counter[int](), Counter[int]()
        for step, count in container.requests:
            requests[(step - first) // steps] += count
        for counts in container.errors.values():
            for step, count in counts:
                errors[(step - first) // steps] += count
        windows += [(errors[window], count) for window, count in requests.items()]
        there.update(requests.keys())
    if not windows:
        raise PastError(f"{past.source}: there are no requests")
    too_many = quantile(max(1.0, median(errors for errors, _ in windows)))
    usual = [(errors, requests) for errors, requests in windows if errors < too_many]
    errors_sum, requests_sum = (sum(counts) for counts in zip(*usual, strict=True))
    per_s = requests_sum / len(usual) / (steps * past.step_s)
    load = RequestLoad(max(0.001, per_s), min(1.0, most_errors(errors_sum) / requests_sum))
    return UsualLoad(round(median(there.values())), load, errors_sum, len(usual) * steps * past.step_s)
