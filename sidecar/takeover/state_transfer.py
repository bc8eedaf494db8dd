"""The state that a standby takes over from its main: container, latch, window and weight, as JSON values.

An instant is sent as an age, because the clocks of two processes differ. The standby refuses a state that is broken, of
another version, of another app or of another mode, and starts from the state file, as after any restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sidecar.controller.incarnation_ids import IncarnationIds
from sidecar.core.life.container import Container, CullOrder
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import Weight
from sidecar.core.types import (
    Denied,
    Granted,
    Hold,
    Judgement,
    Latch,
    Policy,
    RandomIdentity,
    Reason,
    State,
    Unknown,
    Verdict,
)

if TYPE_CHECKING:
    from sidecar.controller.container_controller import Controller

FORMAT: Final = 1

INSTANTS: Final[Mapping[type, tuple[str, ...]]] = {
    Container: ("since", "born", "due", "lease_ends", "respite_until"),
    CullOrder: ("due",),
}
"""Fields on the clock of the process. All other numbers mean the same in every process."""

_ENUMS: Final = {"state": State, "back": State, "judgement": Judgement}
_TYPES: Final[Mapping[str, type]] = {
    cls.__name__: cls
    for cls in (Container, CullOrder, Verdict, Reason, Granted, Denied, Unknown, Hold, Latch, RandomIdentity)
}
_TRANSFERABLE: Final = frozenset(State) - {State.STOPPING}


class RefusedError(Exception):
    """The state cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class TransferredState:
    """The state of the previous main, on the reader's clock.

    ``weighed_s``: the second in which the weight was last changed. ``ids``: those of this incarnation and of earlier
    ones. ``ended_latches``: the ``latch_id`` of each latch that has ended, even if the disk still has it.
    """

    container: Container
    measurements: Measurements
    weight: Weight
    weighed_s: int
    ids: IncarnationIds
    ended_latches: list[str]


def latch_id(latch: Latch) -> str:
    """Return the id of a latch: its claim, or its lease."""
    return latch.claim_id or latch.lease


def dump(
    controller: Controller, now: float, policy: Policy, ended_latches: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the state of ``controller`` at ``now`` on its clock; None for a sidecar that stops."""
    if controller.container.state not in _TRANSFERABLE:
        return None
    return {
        "format": FORMAT,
        "enforce": policy.enforce,
        "container": _dumped(controller.container, now),
        "measurements": controller.measurements.freeze(now),
        "weight": {"percent": controller.weight.percent, "moving": controller.weight.moving},
        "weighed_age_s": now - controller.weighed_s,
        "ids": dict(controller.ids.current),
        "ended_ids": list(controller.ids.ended),
        "ended_latches": list(ended_latches),
    }


def load(
    dumped: Mapping[str, Any], now: float, *, app: str, policy: Policy, measurements: Measurements, weight: Weight
) -> TransferredState:
    """Read the result of ``dump``, received at ``now`` on the reader's clock. Raises ``RefusedError``.

    ``measurements`` and ``weight`` are new ones, made from the reader's settings. Do not use ``measurements`` after a
    refusal.
    """
    try:
        return _loaded(dumped, now, app=app, policy=policy, measurements=measurements, weight=weight)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"the state is broken: {type(error).__name__}: {error}") from error


def _loaded(
    dumped: Mapping[str, Any], now: float, *, app: str, policy: Policy, measurements: Measurements, weight: Weight
) -> TransferredState:
    if dumped["format"] != FORMAT:
        raise RefusedError(f"the state has format {dumped['format']!r}, not {FORMAT}")
    container = _container(dumped["container"], now)
    if container.app != app:
        raise RefusedError(f"the state is of {container.app}, not of {app}")
    if dumped["enforce"] != policy.enforce:
        raise RefusedError("the state is of another mode")
    measurements.thaw(dumped["measurements"], now)
    if weight.floor < weight.percent:
        weight = weight.thaw(**dumped["weight"])
    current = {str(source): str(name) for source, name in dumped["ids"].items()}
    weighed_s = round(now - dumped["weighed_age_s"])
    ended, ended_latches = ([*map(str, dumped[name])] for name in ("ended_ids", "ended_latches"))
    ids = IncarnationIds(container.app_start, current=current, ended=ended)
    return TransferredState(container, measurements, weight, weighed_s, ids, ended_latches)


def _container(dumped: Mapping[str, Any], now: float) -> Container:
    """Return the container. It repeats a claim or lease request in flight: the main that asked has ended."""
    container = _value(dumped, now)
    if not isinstance(container, Container) or container.state not in _TRANSFERABLE:
        raise RefusedError("the state holds no container that could go on")
    for text in (container.app, container.incarnation, container.app_start or ""):
        if not isinstance(text, str):
            raise TypeError(f"takes a text, not {text!r}")
    if not (container.asking or container.leasing):
        return container
    return replace(container, asking=False, leasing=False, due=now)


def merge(disk: Container, disk_ids: IncarnationIds, transferred: TransferredState) -> TransferredState:
    """Return the transferred state, but with the container on disk if that has another latch, not known to be over.

    A main sends its state before it writes the file. If it is killed in between, the file holds an ended latch.
    """
    latch = transferred.container.latch
    if disk.latch is None or latch_id(disk.latch) in transferred.ended_latches:
        return transferred
    if latch is not None and latch_id(latch) == latch_id(disk.latch):
        return transferred
    ids = IncarnationIds(current=disk_ids.current, ended=transferred.ids.ended)
    return replace(transferred, container=disk, ids=ids)


def _dumped(value: Any, now: float) -> Any:
    """Write dataclasses and named tuples as objects with the name of their type, and instants as ages."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        names = list(value._fields)
    else:
        return [_dumped(each, now) for each in value] if isinstance(value, tuple) else value
    instants = INSTANTS.get(type(value), ())
    values = {name: getattr(value, name) for name in names}
    ages = {name: now - values[name] for name in instants if values[name] is not None}
    return {"is": type(value).__name__, **{name: _dumped(each, now) for name, each in values.items()}, **ages}


def _value(dumped: Any, now: float) -> Any:
    if isinstance(dumped, list):
        return tuple(_value(each, now) for each in dumped)
    if not isinstance(dumped, dict):
        return dumped
    cls = _TYPES[dumped["is"]]
    values = {name: _value(each, now) for name, each in dumped.items() if name != "is"}
    for name in values.keys() & _ENUMS.keys():
        values[name] = _ENUMS[name](values[name])
    for name in INSTANTS.get(cls, ()):
        if values.get(name) is not None:
            values[name] = now - float(values[name])
    return cls(**values)
