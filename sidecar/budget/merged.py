"""What several servers say of one fleet, as one answer: refusals, the fleet, and its members. Each needs one at least.

Their ledgers are merged in ``pages``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from sidecar.core.words import MOST_GRANTS, Brake, Denied, Fleet, Roll

_BRAKES: Final = (Brake.OFF, Brake.OPEN, Brake.ON, Brake.CLOSED)


def merged_denial(denials: Sequence[Denied]) -> Denied:
    """What several refusals are together: the one that is over soonest, as the best informed know the fleet."""
    return replace(
        min(denials, key=lambda denied: denied.retry_after_s),
        alive=max(denied.alive for denied in denials),
        wanting=max(denied.wanting for denied in denials),
        cause=max(denied.cause for denied in denials),
    )


def merged_fleet(fleets: Sequence[Fleet]) -> Fleet:
    """The fleet of several servers: each number as the one that knows of most has it, losses and tokens added up."""
    return Fleet(
        alive=max(fleet.alive for fleet in fleets),
        wanting=max(fleet.wanting for fleet in fleets),
        down=max(fleet.down for fleet in fleets),
        brake=max((fleet.brake for fleet in fleets), key=_BRAKES.index),
        cause=max(fleet.cause for fleet in fleets),
        policies=max(fleet.policies for fleet in fleets),
        losses=sum(fleet.losses for fleet in fleets),
        helped=max(fleet.helped for fleet in fleets),
        unhelped=max(fleet.unhelped for fleet in fleets),
        unclear=max(fleet.unclear for fleet in fleets),
        useless=tuple(sorted({kind for fleet in fleets for kind in fleet.useless})),
        hold=next((fleet.hold for fleet in fleets if fleet.hold), None),
        retiring=max(fleet.retiring for fleet in fleets),
        culls_by=_most_of_each(row for fleet in fleets for row in fleet.culls_by),
        used=sum(fleet.used for fleet in fleets),
        capacity=sum(fleet.capacity for fleet in fleets),
    )


def merged_roll(rolls: Sequence[Roll]) -> Roll:
    """The members as the server tells them that knows of most; the numbers of the fleet, tokens and holds of all."""
    largest = max(rolls, key=lambda roll: len(roll.members))
    holds = {hold.instance: hold for roll in reversed(rolls) for hold in roll.holds}
    return Roll(
        merged_fleet([roll.fleet for roll in rolls]),
        sum(roll.used for roll in rolls),
        largest.members,
        tuple(holds[one] for one in sorted(holds)),
        largest.policies,
        tuple(sorted(at for roll in rolls for at in roll.grants)[:MOST_GRANTS]),
        largest.departed,
    )


def _most_of_each(rows: Iterable[tuple[str, str, int]]) -> tuple[tuple[str, str, int], ...]:
    """Each outcome and kind with the most culls that a server knows of."""
    most: dict[tuple[str, str], int] = {}
    for outcome, kind, count in rows:
        most[outcome, kind] = max(count, most.get((outcome, kind), 0))
    return tuple(sorted((outcome, kind, count) for (outcome, kind), count in most.items()))
