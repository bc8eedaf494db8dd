"""Turns one decision into the changes for each server, in the time of that server's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sidecar.core.fleet.data_loss import AHEAD_US
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.records import Cull, HoldRow, StoredRecord
from sidecar.core.fleet.view import Edits, View
from sidecar.store.protocol import Changes, Write


def changes_for(view: View, edits: Edits, place: int, raw: Raw, granted: str = "") -> Changes | None:
    """The changes for the server at ``place`` of the view, which holds ``raw``; None if there are none.

    A server that missed a commit gets everything that it may lack, except culls whose grant never reached a majority:
    otherwise they would count as granted. ``granted``: the instance that gets a token or a lease by this decision.
    """
    found = view.servers[place]
    writes: list[Write] = []
    if place in edits.epochs:
        writes.append(Write("state", "epoch", edits.epochs[place].shifted(-found.offset_us).written()))
    tables: list[tuple[str, Mapping[str, StoredRecord], Mapping[str, StoredRecord | None], Mapping[str, str]]] = []
    if edits.state is not None:
        writes.append(Write("state", "state", edits.state.shifted(-found.offset_us).written()))
        tables.append(("culls", view.culls, edits.culls, raw.culls))
        tables.append(("leases", view.leases, edits.leases, raw.leases))
    tables.append(("holds", view.holds, edits.holds, raw.holds))  # an order needs no majority and changes no state
    for table, before, changed, kept in tables:
        rows = dict(changed)
        if edits.state is not None and found.is_behind:
            rows = dict.fromkeys(kept, None) | dict(before) | rows
        if table == "culls":
            rows = {name: row for name, row in rows.items() if name == granted or _may_have(view, name, row, kept)}
        writes += [Write(table, name, _written(row, -found.offset_us)) for name, row in rows.items()]
    grant = edits.grant if place == edits.server else ""
    refund = tuple(claim for claim in edits.refund if claim in found.grants)
    entries = edits.entries if place == _first(view) else ()
    if not (writes or grant or refund or entries):
        return None
    return Changes(tuple(writes), grant, edits.window_us, edits.capacity, edits.most, refund, entries)


def _may_have(view: View, name: str, row: StoredRecord | None, kept: Mapping[str, str]) -> bool:
    """Whether to write this cull to a server that holds ``kept``: a majority has it, or this server has it already."""
    if name not in view.unsettled or not isinstance(row, Cull) or row.down_us:
        return True
    known = Cull.read(kept.get(name, ""))
    return known is not None and known.claim == row.claim


def lacking_holds(view: View, raws: Sequence[Raw]) -> dict[str, HoldRow | None]:
    """The holds of the view that one of its servers lacks, or has an older version of."""
    return {
        scope: row
        for scope, row in view.holds.items()
        if any(
            _is_older(HoldRow.read(raw.holds.get(scope, "")), row.shifted(-found.offset_us))
            for found, raw in zip(view.servers, raws, strict=True)
        )
    }


def is_hold_lacking(rows: Sequence[str]) -> bool:
    """Whether servers have different rows of one hold, except for the time, which is on their own clocks."""
    known = [HoldRow.read(row) for row in rows]
    return len({row and replace(row, at_us=0) for row in known}) > 1


def _is_older(row: HoldRow | None, newest: HoldRow) -> bool:
    return row is None or row.at_us < newest.at_us - AHEAD_US or replace(row, at_us=newest.at_us) != newest


def _first(view: View) -> int:
    """The place of the server that gets the ledger's entries: the first of the list that answered."""
    return min(range(len(view.servers)), key=lambda place: view.servers[place].number)


def _written(row: StoredRecord | None, by_us: int) -> str:
    return "" if row is None else row.shifted(by_us).written()
