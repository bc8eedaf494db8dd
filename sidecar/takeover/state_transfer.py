"""What a standby carries on from the main before it: state, latch and window, as values that JSON knows.

Instants are told as ages, since another process may count from another beginning. What is broken or of another
version is refused as a whole: a standby then knows what the journal knows, as any sidecar that starts. So it is when
the numbers of a life would mean something else: another app, another mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sidecar.core.life.container_state import Order, Standing
from sidecar.core.life.measurements import Witness
from sidecar.core.life.weight import Weight
from sidecar.core.types import Denied, Granted, Hold, Judgement, Latch, Lot, Policy, Reason, State, Unknown, Verdict

if TYPE_CHECKING:
    from sidecar.controller.controller import Hall

FORMAT: Final = 1

INSTANTS: Final[Mapping[type, tuple[str, ...]]] = {
    Standing: ("since", "born", "due", "lease_ends", "respite_until"),
    Order: ("due",),
}
"""What is on the clock of the process; all else is a number wherever it is read."""

_ENUMS: Final = {"state": State, "back": State, "judgement": Judgement}
_KINDS: Final[Mapping[str, type]] = {
    kind.__name__: kind for kind in (Standing, Order, Verdict, Reason, Granted, Denied, Unknown, Hold, Latch, Lot)
}
_HOME: Final = frozenset({State.STARTING, State.UP, State.SUSPECT, State.RETIRING, State.DRAINING, State.DOWN})


class RefusedError(Exception):
    """What was carried cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What was carried, on the clock of who reads it. ``names``: of the life by who gave them; ``ended``: of others.

    ``over``: latches that no longer hold, whatever the disk says, each by the word for it (``word_of``).
    """

    standing: Standing
    witness: Witness
    weight: Weight
    weighed_s: int
    names: dict[str, str]
    ended: list[str]
    over: list[str]

    def give(self, hall: Hall) -> None:
        """Let a hall that was made with what was carried know the rest of it."""
        hall.names.alive = self.names or hall.names.alive
        hall.names.ended.extend(self.ended)
        hall.weighed_s = self.weighed_s


def word_of(latch: Latch) -> str:
    """What tells this latch from any other."""
    return latch.claim_id or latch.lease


def freeze(hall: Hall, now: float, policy: Policy, over: Sequence[str] = ()) -> dict[str, Any] | None:
    """All that the hall knows at ``now``; None when it is no state to go on in. ``over`` as in ``Carried``."""
    if hall.standing.state not in _HOME:
        return None
    return {
        "format": FORMAT,
        "enforce": policy.enforce,
        "standing": _frozen(hall.standing, now),
        "witness": hall.witness.freeze(now),
        "weight": {"percent": hall.weight.percent, "moving": hall.weight.moving},
        "weighed_age_s": now - hall.weighed_s,
        "names": dict(hall.names.alive),
        "ended": list(hall.names.ended),
        "over": list(over),
    }


def thaw(
    frozen: Mapping[str, Any], now: float, *, app: str, policy: Policy, witness: Witness, weight: Weight
) -> Carried:
    """What ``freeze`` gave when it was ``now`` on the clock of the reader; ``RefusedError`` when it cannot be used.

    ``witness`` and ``weight`` are fresh ones by the reader's own settings; a refused witness is good for nothing.
    """
    try:
        return _thawed(frozen, now, app=app, policy=policy, witness=witness, weight=weight)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"what was carried is broken: {type(error).__name__}: {error}") from error


def _thawed(
    frozen: Mapping[str, Any], now: float, *, app: str, policy: Policy, witness: Witness, weight: Weight
) -> Carried:
    if frozen["format"] != FORMAT:
        raise RefusedError(f"what was carried has format {frozen['format']!r}, not {FORMAT}")
    standing = _standing(frozen["standing"], now)
    if standing.app != app:
        raise RefusedError(f"what was carried is of {standing.app}, not of {app}")
    if frozen["enforce"] != policy.enforce:
        raise RefusedError("what was carried is of another mode")
    witness.thaw(frozen["witness"], now)
    if weight.floor < weight.percent:
        weight = weight.thaw(**frozen["weight"])
    names = {str(source): str(name) for source, name in frozen["names"].items()}
    weighed_s = round(now - frozen["weighed_age_s"])
    ended, over = ([*map(str, frozen[name])] for name in ("ended", "over"))
    return Carried(standing, witness, weight, weighed_s, names, ended, over)


def _standing(frozen: Mapping[str, Any], now: float) -> Standing:
    """The standing, with what was asked asked again: the answers went to a process that is gone."""
    standing = _warm(frozen, now)
    if not isinstance(standing, Standing) or standing.state not in _HOME:
        raise RefusedError("what was carried is no standing to go on with")
    _take_texts(standing.app, standing.incarnation, standing.app_start or "")
    if not (standing.asking or standing.leasing):
        return standing
    return replace(standing, asking=False, leasing=False, due=now)


def merged(disk: Standing, carried: Carried) -> Carried:
    """Where to go on: as carried, but a latch on disk wins over none and over another, unless it is known to be over.

    The main tells before it writes: killed in between, it leaves the latch of a life that has ended.
    """
    told = carried.standing.latch
    if disk.latch is None or word_of(disk.latch) in carried.over:
        return carried
    if told is not None and word_of(told) == word_of(disk.latch):
        return carried
    return replace(carried, standing=disk, names={})


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
