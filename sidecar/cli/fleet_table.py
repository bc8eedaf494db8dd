"""The fleet as text: a few lines on the whole of it, then a row for each container, what needs a look first.

It comes as the JSON of ``GET /fleet``. What people and apps wrote is printed without anything that moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Final, NamedTuple

from sidecar.cli.terminal import plain

_MINUTE_S: Final = 60
_EXACT_S: Final = 600
_RELEASE: Final = "look for the cause, or try again at once with health-arbiter release --service"

SILENT: Final = "silent"
GONE: Final = "gone"
DUPLICATE: Final = "duplicate"
"""Two lives beat under one instance name: what is told of it is of either, and neither may be culled."""

UNKNOWN: Final = "-"
SILENT_BEATS: Final = 3
"""As the bucket has it: who was not heard of for so long is struck off as soon as anybody else beats."""

RANKS: Final = (DUPLICATE, SILENT, "suspect", "draining", "down", "starting", "stopping", "retiring", GONE)
"""What needs a look first; whatever is not named here is well."""

MOST_ROWS: Final = 40
MOST_GONE: Final = 10
"""So many of those who fell silent or said goodbye have a row: a deployment leaves a crowd of them."""

_SAME: Final = {"up": "well"}
"""What the sidecar calls its own state, in the word that the fleet has for it."""

_WITHIN: Final = {
    "well": {"up", "starting", "retiring", "stopping"},
    "suspect": {"suspect"},
    "down": {"draining", "down"},
}
"""The states that say more than what the fleet knows, and do not contradict it."""


class Row(NamedTuple):
    """One container. What the bucket does not know of others is ``-``."""

    instance: str
    state: str
    kind: str = UNKNOWN
    since: str = UNKNOWN
    heard: str = UNKNOWN
    errors: str = UNKNOWN
    weight: str = UNKNOWN
    life: str = UNKNOWN
    version: str = UNKNOWN
    age: str = UNKNOWN

    @property
    def rank(self) -> int:
        """How soon somebody should look at it, 0 being at once."""
        return RANKS.index(self.state) if self.state in RANKS else len(RANKS)

    @property
    def is_well(self) -> bool:
        """Whether nobody need look."""
        return self.rank == len(RANKS)


def head(seen: dict[str, Any], now: float) -> Iterator[str]:
    """The lines on the whole; ``now`` in Unix seconds, to tell what is left of a hold."""
    fleet = seen["fleet"]
    yield _headline(seen, now)
    if fleet is not None:
        yield f"culls   {fleet['helped']} helped, {fleet['unhelped']} did not help, {fleet['unclear']} unclear"
        yield from map(_trial, fleet["trials"])
        yield from _errors(fleet)
        yield from _oddities(fleet)
    yield from (f"hold    {hold_line(hold, now)}" for hold in _holds(seen))
    if seen["local_hold"]:
        yield f"hold    {hold_line(seen['local_hold'], now)} (known to this sidecar only)"
    if seen.get("own"):
        yield plain(f"here    {seen['instance']}: {told(seen['own'], now)}")


def rows(seen: dict[str, Any], now: float, most_gone: int | None = MOST_GONE) -> list[Row]:
    """Every container that is known, what needs a look first; at the end of that at most so many who are gone."""
    limit_s = SILENT_BEATS * seen.get("beat_interval", float("inf"))
    made = [(_row(member, seen, now, limit_s), member["age_s"]) for member in seen["members"]]
    gone = seen.get("departed", ())[:most_gone]
    made += [(Row(one["instance"], GONE, heard=f"silent for {span(one['age_s'])}"), -one["age_s"]) for one in gone]
    return [row for row, _ in sorted(made, key=lambda one: (one[0].rank, -one[1] * (not one[0].is_well), one[0]))]


def chosen(every: Sequence[Row], most: int | None) -> tuple[list[Row], int]:
    """The rows to show, and how many are left out: of more than ``most`` only some of those that are well."""
    if most is None:
        return list(every), 0
    shown = max(most, sum(not row.is_well for row in every))
    return list(every[:shown]), max(0, len(every) - shown)


def foot(seen: dict[str, Any], left_out: int, most_gone: int | None = MOST_GONE) -> Iterator[str]:
    """The lines on who has no row."""
    gone = len(seen.get("departed", ())) - len(seen.get("departed", ())[:most_gone])
    if gone:
        yield f"... and {gone} more that fell silent or said goodbye before: --all shows them"
    if left_out:
        yield f"... and {left_out} more, all well: --all shows them"
    fleet = seen["fleet"]
    unlisted = (fleet["alive"] + fleet["down"] if fleet else 0) - len(seen["members"])
    if seen["members"] and unlisted > 0:
        yield f"... and {unlisted} more"


def _row(member: dict[str, Any], seen: dict[str, Any], now: float, limit_s: float) -> Row:
    state, age_s = member["presence"], member["age_s"]
    is_down = state == "down"
    if state in ("well", "suspect") and age_s > limit_s:
        state = SILENT
    if member.get("duplicate"):
        state = DUPLICATE
    row = Row(
        member["instance"],
        state,
        member["kind"] or UNKNOWN,
        since=span(age_s) if is_down else UNKNOWN,
        heard=UNKNOWN if is_down else f"{span(age_s)} ago",
    )
    own = seen.get("own")
    if own is not None and member["instance"] == seen["instance"] and state not in (SILENT, DUPLICATE):
        return _detailed(row, own, now)
    about = member.get("about")
    if about is None:
        return row
    detailed = _detailed(row, about, now)
    agrees = about["state"] in _WITHIN.get(state, ())
    return detailed if agrees else detailed._replace(state=row.state, since=row.since)


def _detailed(row: Row, about: dict[str, Any], now: float) -> Row:
    """With what its own sidecar says."""
    return row._replace(
        state=_SAME.get(about["state"], about["state"]),
        since=span(now - about["since"]),
        errors=f"{about['errors']}/{about['limit']}",
        weight=f"{about['weight']}%",
        life=about["incarnation"],
        version=about["version"],
        age=span(now - about["born"]) if about.get("born") else UNKNOWN,
    )


def told(about: dict[str, Any], now: float) -> str:
    """What a sidecar says of its own container, as one line."""
    age = f", age {span(now - about['born'])}" if about.get("born") else ""
    state = f"{about['state']} for {span(now - about['since'])}{age}, {about['errors']} errors of {about['limit']}"
    return f"{state}, weight {about['weight']} %, incarnation {about['incarnation']}, version {about['version']}"


def hold_line(hold: dict[str, Any], now: float) -> str:
    """Who holds what, for how long still, and why."""
    whom = f"instance {hold['instance']}" if hold["instance"] else "the service"
    return plain(f"{whom} by {hold['author']}, {span(hold['until'] - now)} left: {hold['reason']}")


def span(seconds: float) -> str:
    """Seconds as a person says them, never shorter than they are: ``45s``, ``1m30s``, ``12m``, ``1h 5m``."""
    left = max(0, ceil(seconds - 0.5))
    if left < _MINUTE_S:
        return f"{left}s"
    if left < _EXACT_S:
        minutes, rest = divmod(left, _MINUTE_S)
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    minutes = ceil(left / _MINUTE_S)
    if minutes < _MINUTE_S:
        return f"{minutes}m"
    hours, rest = divmod(minutes, _MINUTE_S)
    return f"{hours}h {rest}m" if rest else f"{hours}h"


def _headline(seen: dict[str, Any], now: float) -> str:
    fleet = seen["fleet"]
    name = plain(f"{seen['service']}{' (shadow)' if seen['mode'] == 'shadow' else ''}")
    if fleet is None:
        return f"{name}: nothing is known of the fleet"
    retiring = f", {fleet['retiring']} retiring" if fleet.get("retiring") else ""
    told = f"{fleet['alive']} alive, {fleet['suspect']} of them suspect, {fleet['down']} down{retiring}"
    return f"{name}: {told}{_tokens(seen, now)}"


def _tokens(seen: dict[str, Any], now: float) -> str:
    if seen["used"] is None:
        return ""
    budget, used = str(seen["budget"]), seen["used"]
    left = f", {max(0, int(budget) - used)} left" if budget.isdecimal() else ""
    grants = seen.get("grants")
    back = f", the next is back in {span(grants[0] + seen['budget_window'] - now)}" if grants else ""
    return f", {used} of {budget} tokens in use{left}{back}"


def _trial(trial: dict[str, Any]) -> str:
    """How far culls for one cause are: tried, or paused because the last one did not help."""
    if trial["paused_s"] > 0:
        failures = "the last cull" if trial["failures"] == 1 else f"the last {trial['failures']} culls"
        return plain(
            f"paused  no culls for {trial['cause']} for {span(trial['paused_s'])}: {failures} did not help; {_RELEASE}"
        )
    return plain(f"trial   {trial['cause']}: {trial['out']} of at most {trial['limit']} culls without an outcome")


def _errors(fleet: dict[str, Any]) -> Iterator[str]:
    """What most suspects share, and what is usual in the fleet: a suspect has to stand out from that."""
    if fleet["cause"]:
        yield plain(f"cause   most suspects share {fleet['cause']}")
    if fleet["median_errors"] is not None:
        ratio = fleet["median_ratio"]
        of_requests = "" if ratio is None else f", {100 * ratio:.3g} % of its requests"
        yield f"median  {fleet['median_errors']} errors of a container in the window{of_requests}"


def _oddities(fleet: dict[str, Any]) -> Iterator[str]:
    if fleet["duplicate"]:
        yield "double  another container beats under the name of this one, so neither of them may be culled"
    if fleet["policies"] > 1:
        yield f"drift   {fleet['policies']} different settings, the strictest of each holds: see health-arbiter doctor"
    for server in fleet["away"]:
        yield plain(f"away    {server}, and its share of the budget")
    if fleet["losses"]:
        yield f"memory  lost {fleet['losses']} times"


def _holds(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """All of them, or the one in force here when the last beat is all that is known."""
    hold = seen["fleet"] and seen["fleet"]["hold"]
    return seen["holds"] or ([hold] if hold and hold != seen["local_hold"] else [])
