"""A made-up result of ``simulate --json`` with everything in it, as large as a test wants."""

from __future__ import annotations

from random import Random
from typing import Any

GATES = ("trial", "floor", "window", "paused")


def day(containers: int = 200, hours: float = 24, step_s: float = 60.0, noise: float = 0.02) -> dict[str, Any]:
    """A day with incidents; ``noise``: the part of the buckets in which a healthy container has an error."""
    rng = Random(1)
    buckets = int(hours * 3600 / step_s)
    each = [_container(rng, place, buckets, step_s, noise) for place in range(containers)]
    culls = [
        {"at_s": at_s, "container": one["container"], "name": one["name"], "cause": "redis", "need": "stuck"}
        | {"reason": "7 server errors in 60 s (7 of them redis), the limit is 5"}
        for one in each
        for at_s, state in one["state"]
        if state == "draining"
    ]
    refusals = [
        {"at_s": at_s + 5, "container": one["container"], "name": one["name"], "gate": rng.choice(GATES)}
        for one in each
        for at_s, state in one["state"]
        if state == "suspect" and rng.random() < 0.7
    ]
    times = sorted(cull["at_s"] for cull in culls)
    used = sorted([(at_s, 1) for at_s in times] + [(at_s + 600, -1) for at_s in times])
    steps, level = [[0.0, 0]], 0
    for at_s, change in used:
        level += change
        steps.append([at_s, level])
    rules = {
        **_figures("yours", len(culls)),
        "each_cull": sorted(culls, key=lambda cull: cull["at_s"]),
        "each_refusal": sorted(refusals, key=lambda one: one["at_s"]),
        "series": {"step_s": step_s, "buckets": buckets, "budget_used": steps, "budget": 10, "containers": each},
    }
    return {
        "kind": "day",
        "day": "a day",
        "duration_s": hours * 3600,
        "containers": containers,
        "seed": 1,
        "start_unix": None,
        "notes": ["Avoidable: failed outside of an outage of all containers."],
        "rules": [_figures("do nothing", 0), _figures("article", 40), rules],
    }


def _figures(name: str, culls: int) -> dict[str, Any]:
    return {
        "rules": name,
        "settings": {"error_limit": 5, "error_window_s": 60, "budget": "10", "budget_window_s": 600},
        "failed_requests": 12345,
        "avoidable_failed_requests": 6789,
        "avoidable_less_than": {"do nothing": 4321} if culls else {},
        "culls": culls,
        "culls_per_day": float(culls),
        "culls_by_need": {"stuck": culls, "healthy": 2, "sick": 0, "outage": 0},
        "refused_containers": {"trial": 9, "window": 1} if culls else {},
        "recovered_without_restart": 3,
        "time_to_cull_s": {"median": 8.2, "max": 31.0} if culls else None,
        "most_tokens_in_a_window": 7,
        "most_out_of_service": 4,
        "visits_of_an_engineer": 0,
        "stuck_at_the_end": 0,
    }


def _container(rng: Random, place: int, buckets: int, step_s: float, noise: float) -> dict[str, Any]:
    errors = {bucket: 1 + int(rng.expovariate(1)) for bucket in range(buckets) if rng.random() < noise}
    state: list[list[Any]] = [[0.0, "up"]]
    weight: list[list[Any]] = [[0.0, 100]]
    if place % 9 == 0:
        at = rng.randrange(buckets // 4, buckets - 20)
        for bucket in range(at, at + rng.randrange(1, 12)):
            errors[bucket] = rng.randrange(4, 60)
        at_s = at * step_s + 8
        state += [[at_s, "suspect"]]
        weight += [[at_s, 10]]
        if place % 2:
            state += [[at_s + 40, "draining"], [at_s + 50, "down"], [at_s + 100, "starting"], [at_s + 102, "up"]]
            weight += [[at_s + 40, 0], [at_s + 102, 100]]
        else:
            state += [[at_s + 400, "up"]]
            weight += [[at_s + 400, 50], [at_s + 460, 100]]
    return {
        "container": place,
        "name": f"c{place:03d}",
        "errors": [list(pair) for pair in sorted(errors.items())],
        "weight": weight,
        "state": state,
    }


def sweep() -> dict[str, Any]:
    """A sweep over two settings."""
    rows = [
        {
            "settings": {"error_limit": limit, "budget": budget},
            "figures": {
                "culls": 12,
                "culls_per_day": 12.0,
                "culls_of_healthy": max(0, 40 - 3 * limit),
                "avoidable_failed_requests": 500 + 90 * limit + 3000 // budget,
                "time_to_cull_longest_s": 3.0 + limit / 2,
            },
        }
        for limit in (3, 5, 8, 12, 18, 25)
        for budget in (5, 10, 20)
    ]
    return {"kind": "sweep", "day": "a day", "containers": 200, "swept": ["error_limit", "budget"], "rows": rows}


def suggestion() -> dict[str, Any]:
    """A suggestion with a limit that was chosen."""
    return {
        "kind": "suggestion",
        "day": "a day",
        "containers": 200,
        "error_limit": 18,
        "budget": 10,
        "goals": {"reached_by_noise_per_month": 1.0, "time_to_cull_s": 30.0},
        "sentence": "error_limit = 18, budget = 10: healthy containers are culled less than once a month.",
        "limits": [
            {
                "error_limit": limit,
                "reached_by_noise_per_month": 50_000 * 0.4 ** (limit - 5),
                "healthy_culls_simulated": max(0, 9 - limit),
                "time_to_cull_longest_s": 3 + limit,
                "is_met": 18 <= limit <= 27,
            }
            for limit in range(5, 33)
        ],
        "budgets": [
            {"budget": budget, "avoidable_failed_requests": 9000 // budget, "refused_by_window": max(0, 12 - budget)}
            for budget in (5, 8, 10, 15, 20)
        ],
    }
