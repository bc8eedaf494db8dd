"""``fleet``: a few lines about all of it, and what to do; then a row for each container, the most urgent first.

The input is the JSON of ``GET /fleet``. Text from people and apps is printed without control characters.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

import click

from sidecar.cli.local_api import OK, ask, listener, refused, where
from sidecar.cli.options import Command, json_option, tell
from sidecar.cli.terminal import EXIT_FAILED, coloured, complain, plain
from sidecar.core.explain import reasons
from sidecar.core.types import Hold

SILENT: Final = "silent"
GONE: Final = "gone"
DUPLICATE: Final = "duplicate"
"""Two containers beat under one instance name: the row may describe either, and neither may be culled."""

RANKS: Final = (DUPLICATE, SILENT, "suspect", "draining", "down", "starting", "stopping", "retiring")
"""The states that need attention, the most urgent first. Any other state is fine."""

ALWAYS: Final = ("instance", "state", "cause", "since", "heard")
COLUMNS: Final = (*ALWAYS, "age", "errors", "weight", "version", "node", "app", "incarnation")
"""The columns. Of those behind the first ones, as many are shown as fit and as a container has a value for."""

ROWS_LIMIT: Final = 40
_EXACT_S: Final = 600

Row = Mapping[str, str]
"""One container: column -> text. What the fleet does not know of it is missing."""


@click.command(cls=Command)
@click.option("--all", "is_all", is_flag=True, help="Every container, not only some of the healthy ones.")
@json_option
@where
@click.pass_context
def fleet(ctx: click.Context, /, *, is_all: bool, as_json: bool) -> int:
    """Show the fleet, the containers that need attention first."""
    reply = ask(listener(ctx), "GET", "/fleet")
    if "fleet" not in reply.value:
        return refused(reply, "nothing is known of the fleet")
    limit, width = None if is_all else ROWS_LIMIT, shutil.get_terminal_size().columns
    lines = as_text(reply.value, time.time(), width, limit)
    tell(reply.value, "\n".join(lines), as_json=as_json)
    if reply.status == OK:
        return 0
    complain(heard_last(reply.value))
    return EXIT_FAILED


def as_text(answer: dict[str, Any], now: float, width: int, limit: int | None) -> list[str]:
    """The whole answer as lines for a terminal of this width, with all rows that need attention.

    There are at most ``limit`` rows beside those, None: no limit.
    """
    lines = [coloured(line, line.partition(" ")[0]) for line in head(answer, now)]
    every, fleet = rows(answer, now), answer["fleet"]
    urgent = sum(row["state"] in RANKS for row in every)
    shown = every if limit is None else every[: max(limit, urgent)]
    lines += ["", *table(shown, width)] if shown else []
    unlisted = fleet["alive"] + _out(fleet) - len(answer["members"]) if fleet and answer["members"] else 0
    if left_out := len(every) - len(shown) + max(0, unlisted):
        lines.append(f"... and {left_out} more: --all shows those that are known")
    return lines


# -- rows -------------------------------------------------------------------------------------------------------


def rows(answer: dict[str, Any], now: float) -> list[Row]:
    """Every known container: the most urgent first, then those that ended, then those that are fine."""
    made = [(_row(member, now), member["age_s"]) for member in answer["members"]]
    for member in answer.get("departed", ()):
        gone = {"instance": member["instance"], "state": GONE, "heard": f"silent for {span(member['age_s'])}"}
        made.append((gone, member["age_s"]))
    made.sort(key=lambda pair: (_urgency(pair[0]["state"], pair[1]), pair[0]["instance"]))
    return [row for row, _ in made]


def _urgency(state: str, age_s: float) -> tuple[int, float]:
    """The place among the rows, the most urgent first; of a state that needs attention, the longest first."""
    if state in RANKS:
        return RANKS.index(state), -age_s
    return (len(RANKS), age_s) if state == GONE else (len(RANKS) + 1, 0.0)


def _row(member: dict[str, Any], now: float) -> Row:
    state = DUPLICATE if member.get("duplicate") else member["state"]
    row = {"instance": member["instance"], "state": state, "cause": member["kind"]}
    if member["since"] is not None:
        row["since"] = span(now - member["since"])
    if member["presence"] != "down":
        row["heard"] = f"{span(member['age_s'])} ago"
    if details := member.get("about"):
        row |= {
            "errors": f"{details['errors']}/{details['limit']}",
            "weight": f"{details['weight']}%",
            "incarnation": details["incarnation"],
            "version": details["version"],
            "node": details.get("node") or "",
            "app": details.get("app_version") or "",
            "age": span(now - details["born"]) if details.get("born") else "",
        }
    return row


def table(shown: Sequence[Row], width: int) -> list[str]:
    """The rows as lines, with as many columns as fit, without control characters."""
    names = [name for name in COLUMNS if name in ALWAYS or any(row.get(name) for row in shown)]
    cells = [[name.upper() for name in names], *([plain(row.get(name) or "-") for name in names] for row in shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while len(widths) > len(ALWAYS) and sum(widths) + 2 * len(widths) - 2 > width:
        widths.pop()
    padded = ([cell.ljust(size) for cell, size in zip(line, widths, strict=False)] for line in cells)
    title, *lines = ("  ".join(line).rstrip() for line in padded)
    words = (row["state"] if row["state"] in (*RANKS, GONE) else "" for row in shown)
    return [title, *map(coloured, lines, words)]


# -- lines about the fleet --------------------------------------------------------------------------------------


def head(answer: dict[str, Any], now: float) -> Iterator[str]:
    """The lines about the whole fleet; ``now`` in Unix seconds, for the time that a hold still lasts.

    What is wrong and what to do is what the sidecar says, as on its page.
    """
    fleet, banner = answer["fleet"], answer.get("banner")
    yield _headline(answer, now)
    if banner and banner["level"] != "ok":
        yield plain(f"now     {banner['sentence']}")
        if banner["action"]:
            yield plain(f"do      {banner['action']} {banner['command']}".rstrip())
    if answer.get("bound"):
        yield plain(f"bound   {answer['bound']}")
    if fleet is not None:
        yield from _of_fleet(fleet, now)
    yield from (f"hold    {hold_line(hold, now)}" for hold in answer["holds"])
    if answer["local_hold"]:
        yield f"hold    {hold_line(answer['local_hold'], now)} (known to this sidecar only)"


def hold_line(hold: dict[str, Any], now: float) -> str:
    """A hold: its scope, author, remaining time and reason."""
    scope = f"instance {hold['instance']}" if hold["instance"] else "the service"
    return plain(f"{scope} by {hold['author']}, {span(hold['until'] - now)} left: {hold['reason']}")


def span(seconds: float) -> str:
    """A duration for a person; from ten minutes on in whole minutes, rounded up: ``45s``, ``1m 30s``, ``1h 5m``."""
    left = max(0, ceil(seconds - 0.5))
    return reasons.span(left if left < _EXACT_S else 60 * ceil(left / 60))


def heard_last(answer: dict[str, Any]) -> str:
    """The sentence about an answer that is old, because the store does not answer the sidecar."""
    age_s = answer.get("fleet_age_s")
    ago = "" if age_s is None else f", {span(age_s)} ago"
    return f"{answer.get('sentence')}: this is what the sidecar heard last{ago}"


def _headline(answer: dict[str, Any], now: float) -> str:
    fleet, is_shadow = answer["fleet"], answer["mode"] == "shadow"
    name = plain(f"{answer['service']}{' (shadow)' if is_shadow else ''}")
    if fleet is None:
        return f"{name}: nothing is known of the fleet"
    draining = f"{fleet['draining']} draining, " if fleet.get("draining") else ""
    retiring = f", {fleet['retiring']} retiring" if fleet.get("retiring") else ""
    alive, away = fleet["alive"], f"{draining}{fleet['down']} down"
    if is_shadow:  # a container that would be culled is one that serves
        alive, away = alive + _out(fleet), f"{_out(fleet)} would be down"
    return f"{name}: {alive} alive, {fleet['suspect']} of them suspect, {away}{retiring}{_tokens(answer, now)}"


def _out(fleet: dict[str, Any]) -> int:
    """How many containers were culled or retired and are not replaced yet; 0.2 counts them all as down."""
    return int(fleet["down"]) + int(fleet.get("draining", 0))


def _tokens(answer: dict[str, Any], now: float) -> str:
    if answer["used"] is None:
        return ""
    budget, used = str(answer["budget"]), answer["used"]
    left = f", {max(0, int(budget) - used)} left" if budget.isdecimal() else ""
    grants = answer.get("grants")
    back = f", the next is back in {span(grants[0] + answer['budget_window'] - now)}" if grants else ""
    return f", {used} of {budget} tokens in use{left}{back}"


def _of_fleet(fleet: dict[str, Any], now: float) -> Iterator[str]:
    """The outcomes of culls, the trials, the usual errors, which a suspect has to exceed, and what Redis lost."""
    yield f"culls   {fleet['helped']} helped, {fleet['unhelped']} did not help, {fleet['unclear']} unclear"
    yield from (_trial(trial, now) for trial in fleet["trials"])
    if fleet["median_errors"] is not None:
        ratio = fleet["median_ratio"]
        of_requests = "" if ratio is None else f", {100 * ratio:.3g} % of its requests"
        yield f"median  {fleet['median_errors']} errors of a container in the window{of_requests}"
    if lost := fleet.get("lost_hold"):
        hold = Hold(lost["author"], lost["reason"], lost["until"], lost["instance"])
        yield plain(f"lost    {reasons.lost_hold(hold)}")
    if fleet["losses"]:
        lost = f"memory  Redis lost its record of earlier culls {fleet['losses']} time{'s' * (fleet['losses'] > 1)}"
        yield f"{lost}: no cull in the window of the budget after one"


def _trial(trial: dict[str, Any], now: float) -> str:
    """The limit on culls for one cause and its episode, or their pause because the last one did not help."""
    if trial["paused_s"] <= 0:
        out = f"{trial['out']} of at most {trial['limit']} culls without an outcome"
        since = f", its episode began {span(now - trial['since'])} ago" if trial["since"] else ""
        return plain(f"trial   {trial['cause']}: {out}{since}")
    last = "the last cull" if trial["failures"] == 1 else f"the last {trial['failures']} culls"
    return plain(f"paused  no culls for {trial['cause']} for {span(trial['paused_s'])}: {last} did not help")
