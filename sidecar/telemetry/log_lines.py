"""The lines of the log: a table from event to level, text and fields, for steps of the container and for the fleet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sidecar.core.explain import reasons, words
from sidecar.core.fleet.fleet_events import (
    CausePaused,
    CauseRecurs,
    DataLost,
    Duplicated,
    DuplicateEnded,
    FleetEvent,
    HoldBegan,
    HoldEnded,
    HoldLost,
    PauseEnded,
    ProcessUnknown,
    SettingsDiffer,
    StoreBack,
)
from sidecar.core.life.container import Container
from sidecar.core.life.events import (
    Culled,
    Event,
    Moved,
    OrderTaken,
    Recovered,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    Suspected,
    TokenAnswered,
    WentDown,
    WouldCull,
    WouldRetire,
)
from sidecar.core.life.snapshot import Record

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


class EventLine(NamedTuple):
    """How an event is logged; ``text`` makes the message of it."""

    level: int
    text: Callable[[Any], str]


def _state(event: Moved) -> str:
    return event.state


LINES: Final[Mapping[type[Event], EventLine]] = {
    Moved: EventLine(INFO, _state),
    Suspected: EventLine(WARNING, _state),
    Recovered: EventLine(INFO, _state),
    Culled: EventLine(WARNING, _state),
    Retired: EventLine(WARNING, _state),
    WentDown: EventLine(WARNING, _state),
    Revived: EventLine(
        WARNING, lambda event: "revived" if event.order else "retired and not replaced in time, up again"
    ),
    Restarted: EventLine(INFO, lambda event: "app restarted" if event.state is event.was else event.state),
    OrderTaken: EventLine(WARNING, lambda _: "cull ordered"),
    WouldCull: EventLine(WARNING, lambda _: "would be culled (shadow mode)"),
    WouldRetire: EventLine(WARNING, lambda _: "would be retired (shadow mode)"),
}
"""The events that have a line of their own; answers without a grant have a sampled one."""

FIELDS: Final[Mapping[type[Event], Callable[[Any], dict[str, object]]]] = {
    OrderTaken: lambda event: {"author": event.order.author, "order": event.order.reason},
    Revived: lambda event: {"author": event.order.author, "order": event.order.reason} if event.order else {},
    Restarted: lambda event: {"app_start": event.app_start},
    RetirementAnswered: lambda event: {
        "lease": reasons.outcome(event.answer),
        "answer": reasons.lease(event.answer),
    },
    TokenAnswered: lambda event: {
        "claim": reasons.outcome(event.answer),
        "answer": reasons.answer(event.answer),
        "claim_id": event.claim_id,
        "claim_ms": round(event.took_s * 1000, 3),
    },
}
"""What an event adds to the fields of the lines of its step."""


def fields_of(record: Record, event: Event) -> dict[str, object]:
    """The fields of the line about ``event``."""
    fields: dict[str, object] = {
        "state": record.container.state,
        "was": event.was if isinstance(event, Moved) else record.container.state,
        "errors": record.evidence.errors,
        "kinds": record.evidence.kinds,
        "reason": _reason(record.container),
    }
    for each in record.events:
        fields |= FIELDS[type(each)](each) if type(each) in FIELDS else {}
    return fields


def _reason(container: Container) -> str:
    latched = container.latch.reason if container.latch else ""
    return latched if container.lease else reasons.verdict(container.verdict) or latched


class FleetLine(NamedTuple):
    """How an event of the fleet is logged."""

    level: int
    text: Callable[[Any], str]
    fields: Callable[[Any], dict[str, object]] = lambda _: {}


FLEET_LINES: Final[Mapping[type[FleetEvent], FleetLine]] = {
    StoreBack: FleetLine(INFO, lambda _: "store reachable again"),
    CausePaused: FleetLine(
        WARNING,
        lambda event: f"culls for {event.trial.cause} are paused: the last one did not help",
        lambda event: {
            "cause": event.trial.cause,
            "paused_s": round(event.trial.paused_s),
            "failures": event.trial.failures,
        },
    ),
    PauseEnded: FleetLine(
        INFO, lambda event: f"the pause of culls for {event.cause} is over", lambda event: {"cause": event.cause}
    ),
    CauseRecurs: FleetLine(
        WARNING,
        lambda event: f"{event.recurring.cause} recurs: it was culled on several days of a week",
        lambda event: {
            "cause": event.recurring.cause,
            "culls": event.recurring.culls,
            "days": event.recurring.days,
            "out_s": round(event.recurring.out_s),
        },
    ),
    Duplicated: FleetLine(
        WARNING,
        lambda _: "two containers run under this instance name: neither may be culled or retired until one is renamed",
    ),
    DuplicateEnded: FleetLine(INFO, lambda _: "no other container runs under this instance name any more"),
    SettingsDiffer: FleetLine(
        WARNING,
        lambda _: "sidecars of this service run with different settings, the strictest of each number holds",
        lambda event: {"settings": event.settings},
    ),
    ProcessUnknown: FleetLine(WARNING, lambda _: words.UNKNOWN_PROCESS),
    DataLost: FleetLine(
        WARNING,
        lambda _: "Redis lost its record of earlier culls",
        lambda event: {"alive": event.fleet.alive, "suspect": event.fleet.suspect, "down": event.fleet.down},
    ),
    HoldLost: FleetLine(ERROR, lambda event: reasons.lost_hold(event.hold), lambda event: {"until": event.hold.until}),
    HoldBegan: FleetLine(
        WARNING, lambda event: f"held: {reasons.hold(event.hold)}", lambda event: {"until": event.hold.until}
    ),
    HoldEnded: FleetLine(WARNING, lambda _: "no hold any more"),
}
"""``StoreAway`` has a sampled line of its own, which repeats while the store is away."""
