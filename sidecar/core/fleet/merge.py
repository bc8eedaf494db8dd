"""The view of what one or several servers hold.

Every commit writes the state to a majority of the servers, and every state names the commits before it. These names
show whether the state of one server includes that of another. The view has the states that no other includes. If there
are several, two sidecars wrote at the same time, or a commit reached too few servers: the view has the rows of all,
which can only make the fleet more careful. Serial numbers do not decide, because commits that reached a single server
can count higher than one that reached a majority. A hold needs no majority: the newest row counts, on any server.

Clocks of servers differ. Every instant is moved to the clock of the first server before it is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from sidecar.core.fleet.data_loss import AHEAD_US
from sidecar.core.fleet.majority import is_majority
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord, Trial
from sidecar.core.fleet.terms import Terms
from sidecar.core.fleet.view import MemberKey, ServerView, View

R = TypeVar("R", bound=StoredRecord)

MOST_FORMER: Final = 12
"""Commits that a state names. A server that missed more of them holds nothing new."""


class _Read(NamedTuple):
    """What one server holds, as records by the clock of the first server."""

    number: int
    raw: Raw
    offset_us: int
    state: FleetState
    culls: Mapping[str, Cull]
    leases: Mapping[str, Slot]
    holds: Mapping[str, HoldRow]


def view_of(answers: Sequence[tuple[int, Raw]], configured: int) -> View:
    """The view of the servers' answers, each with its number: at least one, in the order in which to take tokens."""
    now_us = answers[0][1].now_us
    reads = [_read(number, raw, now_us - raw.now_us) for number, raw in answers]
    current = _current(reads)
    largest = max(reads, key=lambda read: read.raw.alive)
    culls = _merged([read.culls for read in current], _cull_rank)
    unsettled = _unsettled(culls, reads, configured)
    return View(
        now_us,
        state=_united(current, unsettled),
        servers=tuple(_server(read, current) for read in reads),
        configured=configured,
        culls=culls,
        leases=_merged([read.leases for read in current], lambda row: row.at_us + row.for_us),
        holds=_merged([read.holds for read in reads], lambda row: row.at_us),
        settings=_settings(reads),
        alive=largest.raw.alive,
        beating={name: member_life(row) for read in reads for name, row in read.raw.beating.items()},
        causes=largest.raw.causes,
        control=_largest_counts([read.raw.control for read in reads]),
        life=member_life(largest.raw.member),
        identity=member_of(largest.raw.member).identity,
        seen_us=max(_moved(read.raw.seen_us, read.offset_us) for read in reads),
        departed_us=max(_moved(read.raw.departed_us, read.offset_us) for read in reads),
        unsettled=unsettled,
        median_errors=max(read.raw.median_errors for read in reads),
    )


def member_life(row: str) -> str:
    """The incarnation in a member row."""
    return row.partition("\n")[0]


def member_of(row: str) -> MemberKey:
    """The incarnation and the identity in a member row."""
    life, _, rest = row.partition("\n")
    identity = rest.partition("\n")[0] if rest.count("\n") > 1 else ""
    return MemberKey(life, identity)


def table(texts: Mapping[str, str], kind: type[R], offset_us: int) -> dict[str, R]:
    """The rows of a table that can be read, moved to another clock."""
    rows = {name: row for name, text in texts.items() if (row := kind.read(text)) is not None}
    return {name: row.shifted(offset_us) for name, row in rows.items()} if offset_us else rows


def _read(number: int, raw: Raw, offset_us: int) -> _Read:
    state = (FleetState.read(raw.state) or FleetState()).shifted(offset_us)
    return _Read(
        number,
        raw,
        offset_us,
        state,
        table(raw.culls, Cull, offset_us),
        table(raw.leases, Slot, offset_us),
        table(raw.holds, HoldRow, offset_us),
    )


def _current(reads: Sequence[_Read]) -> list[_Read]:
    """The servers whose state no other includes, the highest serial number first."""
    ordered = sorted(reads, key=lambda read: -read.state.serial)
    return [read for read in ordered if not any(_is_part(read, other) for other in ordered)]


def _is_part(read: _Read, other: _Read) -> bool:
    """Whether the other state includes this one: it names the commit, or is too much later not to include it."""
    one, later = read.state, other.state
    if later.serial - one.serial > MOST_FORMER or (later.serial and not one.serial):
        return True
    return later.serial > one.serial and one.commit in later.former.split()


def _former(current: Sequence[_Read], unsettled: frozenset[str]) -> str:
    """The last commits before the next one, except those with culls that reached too few servers."""
    commits = [read.state.commit for read in current if not unsettled & read.culls.keys()]
    commits += [commit for read in current for commit in read.state.former.split()]
    return " ".join([commit for commit in dict.fromkeys(commits) if commit][:MOST_FORMER])


def _server(read: _Read, current: Sequence[_Read]) -> ServerView:
    raw, offset_us = read.raw, read.offset_us
    latest = max((raw.newest_us, *raw.grants.values()), default=0)
    return ServerView(
        read.number,
        (Epoch.read(raw.epoch) or Epoch()).shifted(offset_us),
        {claim: at + offset_us for claim, at in raw.grants.items()} if offset_us else raw.grants,
        raw.refunded,
        is_ahead=latest > raw.now_us + AHEAD_US,
        offset_us=offset_us,
        is_behind=any(one.state.commit != read.state.commit for one in current),
        run_id=raw.run_id,
    )


def _moved(at_us: int, offset_us: int) -> int:
    return at_us + offset_us if at_us else 0


def _united(reads: Sequence[_Read], unsettled: frozenset[str]) -> FleetState:
    """One state of several, with the more careful trial of each cause."""
    states = [read.state for read in reads]
    first, *others = states
    trials = dict(first.trials)
    for cause, trial in ((cause, trial) for state in others for cause, trial in state.trials.items()):
        trials[cause] = _more_careful(trials.get(cause, trial), trial)
    several_us = max(state.several_us for state in states)
    return replace(first, commit="", former=_former(reads, unsettled), trials=trials, several_us=several_us)


def _more_careful(one: Trial, other: Trial) -> Trial:
    if one == other:
        return one
    longer = max(one, other, key=lambda trial: trial.paused_us + trial.pause_us)
    latest = {name: max(getattr(one, name), getattr(other, name)) for name in ("last_us", "began_us", "quiet_us")}
    return replace(longer, limit=min(one.limit, other.limit), **latest)


def _merged(tables: Sequence[Mapping[str, R]], rank: Callable[[R], Any]) -> Mapping[str, R]:
    """The rows of all servers; of several with one name the first of the highest rank."""
    first, *others = tables
    merged = dict(first)
    for name, row in ((name, row) for rows in others for name, row in rows.items()):
        merged[name] = max(merged.get(name, row), row, key=rank)
    return merged


def _cull_rank(row: Cull) -> tuple[bool, int, int]:
    """An open row counts, then the newer."""
    return row.phase != "over", row.at_us, row.since_us


def _settings(reads: Iterable[_Read]) -> tuple[Terms, ...]:
    """All readable terms that a beat brought within their own expiry, each once."""
    found: dict[Terms, None] = {}
    for read in reads:
        for text, heard_us in read.raw.settings.items():
            terms = Terms.read(text)
            if terms is not None and read.raw.now_us - heard_us <= terms.expiry_us:
                found[terms] = None
    return tuple(found)


def _largest_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest count of each name; none that is not positive."""
    largest: dict[str, int] = {}
    for name, count in ((name, count) for one in counts for name, count in one.items()):
        if count > largest.get(name, 0):
            largest[name] = count
    return largest


def _unsettled(culls: Mapping[str, Cull], reads: Sequence[_Read], configured: int) -> frozenset[str]:
    """Containers whose grant reached fewer servers than a majority: no sidecar got it as an answer."""
    if configured == 1:
        return frozenset()
    return frozenset(
        name
        for name, cull in culls.items()
        if not is_majority(
            (read.number for read in reads if (row := read.culls.get(name)) and row.claim == cull.claim), configured
        )
    )
