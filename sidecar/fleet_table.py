"""The fleet for a terminal: a few lines on the whole of it, then one for each container.

It comes as the JSON of ``GET /fleet``. What people and apps wrote is printed without anything that moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any, Final

from sidecar.terminal import plain

BRAKES: Final = {
    "off": "off",
    "on": "on: many suffer at once, so one canary per window tells whether a restart helps",
    "open": "open: the canary got well, so the budget alone limits",
    "closed": "closed: the canary did not get well, so nobody is culled until the incident ends; a person has to look, "
    "then health-arbiter release",
}
_MINUTE_S: Final = 60
_EXACT_S: Final = 600
_USELESS: Final = (
    "culls did not help, so there are none for these kinds; a person has to look, then health-arbiter release"
)
_COLUMNS: Final = ("INSTANCE", "PRESENCE", "KIND", "HEARD")


def lines(seen: dict[str, Any], now: float) -> Iterator[str]:
    """The lines of the table; ``now`` in Unix seconds, to tell what is left of a hold."""
    fleet = seen["fleet"]
    yield _headline(seen)
    if fleet is not None:
        yield f"brake   {BRAKES.get(fleet['brake'], fleet['brake'])}{_cause(fleet)}"
        yield f"culls   {fleet['helped']} helped, {fleet['unhelped']} did not, {fleet['unclear']} are unclear"
        yield from _oddities(fleet)
    yield from (f"hold    {hold_line(hold, now)}" for hold in _holds(seen))
    if seen["local_hold"]:
        yield f"hold    {hold_line(seen['local_hold'], now)} (known to this sidecar only)"
    yield from _members(seen["members"], fleet)


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


def _headline(seen: dict[str, Any]) -> str:
    fleet = seen["fleet"]
    name = plain(f"{seen['service']}{' (shadow)' if seen['mode'] == 'shadow' else ''}")
    if fleet is None:
        return f"{name}: nothing is known of the fleet"
    used = "" if seen["used"] is None else f", {seen['used']} of {seen['budget']} tokens in use"
    return f"{name}: {fleet['alive']} alive, {fleet['wanting']} of them wanting a cull, {fleet['down']} down{used}"


def _cause(fleet: dict[str, Any]) -> str:
    return plain(f" (they share a cause: {fleet['cause']})") if fleet["cause"] else ""


def _oddities(fleet: dict[str, Any]) -> Iterator[str]:
    if fleet["useless"]:
        yield plain(f"useless {', '.join(fleet['useless'])}: {_USELESS}")
    if fleet["policies"] > 1:
        yield f"drift   {fleet['policies']} different policies, the strictest of each number holds"
    for server in fleet["away"]:
        yield plain(f"away    {server}, and its share of the budget")
    if fleet["losses"]:
        yield f"memory  lost {fleet['losses']} times"


def _holds(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """All of them, or the one in force here when the last beat is all that is known."""
    hold = seen["fleet"] and seen["fleet"]["hold"]
    return seen["holds"] or ([hold] if hold and hold != seen["local_hold"] else [])


def _members(members: list[dict[str, Any]], fleet: dict[str, Any] | None) -> Iterator[str]:
    if not members:
        return
    rows = [_COLUMNS, *((m["instance"], m["presence"], m["kind"] or "-", f"{span(m['age_s'])} ago") for m in members)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for row in rows:
        yield plain("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    known = fleet["alive"] + fleet["down"] if fleet else 0
    if known > len(members):
        yield f"... and {known - len(members)} more"
