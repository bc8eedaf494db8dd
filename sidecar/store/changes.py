"""What each server has to write of one decision, by its own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sidecar.core.fleet.data_loss import AHEAD_US
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.records import Cull, HoldRow, Row
from sidecar.core.fleet.view import Edits, View
from sidecar.store.protocol import Changes, Write


def changes_for(view: View, edits: Edits, place: int, raw: Raw, granted: str = "") -> Changes | None:
    """The changes for the server at this place in the view, which holds ``raw``; None: nothing is to be written.

    A server that was away for a commit gets all that it may lack, except culls that count for nobody: once a majority
    held them they would seem to have been told. ``granted``: the instance whose claim or lease this decision grants.
    """
    found = view.servers[place]
    writes: list[Write] = []
    if place in edits.epochs:
        writes.append(Write("state", "epoch", edits.epochs[place].shifted(-found.offset_us).written()))
    tables: list[tuple[str, Mapping[str, Row], Mapping[str, Row | None], Mapping[str, str]]] = []
    if edits.state is not None:
        writes.append(Write("state", "state", edits.state.shifted(-found.offset_us).written()))
        tables.append(("culls", view.culls, edits.culls, raw.culls))
        tables.append(("leases", view.leases, edits.leases, raw.leases))
    tables.append(("holds", view.holds, edits.holds, raw.holds))  # orders are no decision of a majority: without state
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


def _may_have(view: View, name: str, row: Row | None, kept: Mapping[str, str]) -> bool:
    """Whether a server that holds ``kept`` may be written this cull: one that was told, or that it has already."""
    if name not in view.unsettled or not isinstance(row, Cull) or row.down_us:
        return True
    known = Cull.read(kept.get(name, ""))
    return known is not None and known.claim == row.claim


def lacking_holds(view: View, raws: Sequence[Raw]) -> dict[str, HoldRow | None]:
    """The holds of the view that one of its servers has not heard of, or has an older one in their place."""
    return {
        scope: row
        for scope, row in view.holds.items()
        if any(
            _is_older(HoldRow.read(raw.holds.get(scope, "")), row.shifted(-found.offset_us))
            for found, raw in zip(view.servers, raws, strict=True)
        )
    }


def is_hold_lacking(rows: Sequence[str]) -> bool:
    """Whether servers have different rows of one hold, each by its own clock."""
    known = [HoldRow.read(row) for row in rows]
    return len({row and replace(row, at_us=0) for row in known}) > 1


def _is_older(row: HoldRow | None, newest: HoldRow) -> bool:
    return row is None or row.at_us < newest.at_us - AHEAD_US or replace(row, at_us=newest.at_us) != newest


def _first(view: View) -> int:
    """The place of the server that the ledger is written to: the first of the list that answered."""
    return min(range(len(view.servers)), key=lambda place: view.servers[place].number)


def _written(row: Row | None, by_us: int) -> str:
    return "" if row is None else row.shifted(by_us).written()
