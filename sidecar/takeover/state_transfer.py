"""What a standby carries on from the main before it: state, latch and window, as values that JSON knows.

Instants are told as ages, since another process may count from another beginning. What is broken or of another
version is refused as a whole: a standby then knows what the journal knows, as any sidecar that starts. So it is when
the numbers of a life would mean something else: another app, another mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sidecar.core.life.container import Container, Order
from sidecar.core.life.measurements import Measurements
from sidecar.core.life.weight import Weight
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
    from sidecar.controller.controller import Controller

FORMAT: Final = 1

INSTANTS: Final[Mapping[type, tuple[str, ...]]] = {
    Container: ("since", "born", "due", "lease_ends", "respite_until"),
    Order: ("due",),
}
"""What is on the clock of the process; all else is a number wherever it is read."""

_ENUMS: Final = {"state": State, "back": State, "judgement": Judgement}
_KINDS: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (Container, Order, Verdict, Reason, Granted, Denied, Unknown, Hold, Latch, RandomIdentity)
}
_HOME: Final = frozenset({State.STARTING, State.UP, State.SUSPECT, State.RETIRING, State.DRAINING, State.DOWN})


class RefusedError(Exception):
    """What was carried cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What was carried, on the clock of who reads it. ``names``: of the life by who gave them; ``ended``: of others.

    ``over``: latches that no longer hold, whatever the disk says, each by the word for it (``word_of``).
    """

    container: Container
    measurements: Measurements
    weight: Weight
    weighed_s: int
    names: dict[str, str]
    ended: list[str]
    over: list[str]

    def give(self, controller: Controller) -> None:
        """Let a controller that was made with what was carried know the rest of it."""
        controller.names.alive = self.names or controller.names.alive
        controller.names.ended.extend(self.ended)
        controller.weighed_s = self.weighed_s


def word_of(latch: Latch) -> str:
    """What tells this latch from any other."""
    return latch.claim_id or latch.lease


def freeze(controller: Controller, now: float, policy: Policy, over: Sequence[str] = ()) -> dict[str, Any] | None:
    """All that the controller knows at ``now``; None when it is no state to go on in. ``over`` as in ``Carried``."""
    if controller.container.state not in _HOME:
        return None
    return {
        "format": FORMAT,
        "enforce": policy.enforce,
        "container": _frozen(controller.container, now),
        "measurements": controller.measurements.freeze(now),
        "weight": {"percent": controller.weight.percent, "moving": controller.weight.moving},
        "weighed_age_s": now - controller.weighed_s,
        "names": dict(controller.names.alive),
        "ended": list(controller.names.ended),
        "over": list(over),
    }


def thaw(
    frozen: Mapping[str, Any], now: float, *, app: str, policy: Policy, measurements: Measurements, weight: Weight
) -> Carried:
    """What ``freeze`` gave when it was ``now`` on the clock of the reader; ``RefusedError`` when it cannot be used.

    ``measurements`` and ``weight`` are fresh ones by the reader's own settings; a refused witness is good for nothing.
    """
    try:
        return _thawed(frozen, now, app=app, policy=policy, measurements=measurements, weight=weight)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"what was carried is broken: {type(error).__name__}: {error}") from error


def _thawed(
    frozen: Mapping[str, Any], now: float, *, app: str, policy: Policy, measurements: Measurements, weight: Weight
) -> Carried:
    if frozen["format"] != FORMAT:
        raise RefusedError(f"what was carried has format {frozen['format']!r}, not {FORMAT}")
    container = _container(frozen["container"], now)
    if container.app != app:
        raise RefusedError(f"what was carried is of {container.app}, not of {app}")
    if frozen["enforce"] != policy.enforce:
        raise RefusedError("what was carried is of another mode")
    measurements.thaw(frozen["measurements"], now)
    if weight.floor < weight.percent:
        weight = weight.thaw(**frozen["weight"])
    names = {str(source): str(name) for source, name in frozen["names"].items()}
    weighed_s = round(now - frozen["weighed_age_s"])
    ended, over = ([*map(str, frozen[name])] for name in ("ended", "over"))
    return Carried(container, measurements, weight, weighed_s, names, ended, over)


def _container(frozen: Mapping[str, Any], now: float) -> Container:
    """The standing, with what was asked asked again: the answers went to a process that is gone."""
    container = _warm(frozen, now)
    if not isinstance(container, Container) or container.state not in _HOME:
        raise RefusedError("what was carried is no standing to go on with")
    _take_texts(container.app, container.incarnation, container.app_start or "")
    if not (container.asking or container.leasing):
        return container
    return replace(container, asking=False, leasing=False, due=now)


def merged(disk: Container, carried: Carried) -> Carried:
    """Where to go on: as carried, but a latch on disk wins over none and over another, unless it is known to be over.

    The main tells before it writes: killed in between, it leaves the latch of a life that has ended.
    """
    told = carried.container.latch
    if disk.latch is None or word_of(disk.latch) in carried.over:
        return carried
    if told is not None and word_of(told) == word_of(disk.latch):
        return carried
    return replace(carried, container=disk, names={})


def _frozen(value: Any, now: float) -> Any:
    """Values of our own words as objects that name their kind, with ages for instants."""
    names = _names(value)
    if names is None:
        return [_frozen(each, now) for each in value] if isinstance(value, tuple) else value
    instants = INSTANTS.get(type(value), ())
    told = {name: getattr(value, name) for name in names}
    aged = {name: now - told[name] for name in instants if told[name] is not None}
    return {"is": type(value).__name__, **{name: _frozen(each, now) for name, each in told.items()}, **aged}


def _names(value: Any) -> list[str] | None:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return list(value._fields) if isinstance(value, tuple) and hasattr(value, "_fields") else None


def _warm(frozen: Any, now: float) -> Any:
    if isinstance(frozen, list):
        return tuple(_warm(each, now) for each in frozen)
    if not isinstance(frozen, dict):
        return frozen
    kind = _KINDS[frozen["is"]]
    told = {name: _warm(each, now) for name, each in frozen.items() if name != "is"}
    for name in told.keys() & _ENUMS.keys():
        told[name] = _ENUMS[name](told[name])
    for name in INSTANTS.get(kind, ()):
        if told.get(name) is not None:
            told[name] = now - float(told[name])
    return kind(**told)


def _take_texts(*values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"takes a text, not {value!r}")
