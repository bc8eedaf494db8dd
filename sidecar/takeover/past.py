"""What a standby is told of the past, beside the state: the last decisions, samples, the last cull, the page's hour.

And what is still to be told: entries that the ledger has not taken, and occasions whose end nobody else would tell.
None of it is needed to go on, so it is told in its own time and read once the doors are open; what is broken or of
another version is refused as a whole, and only the past is lost. Instants are told as ages. Texts and counts are
bounded where they are written, and again where they are read: the other side may be another version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.core.explain import history, hour_counts, samples
from sidecar.core.explain.history import Decision
from sidecar.core.explain.samples import ErrorSample, Kept
from sidecar.core.types import DETAIL_LIMIT, Entry, Level
from sidecar.takeover.state_transfer import RefusedError

if TYPE_CHECKING:
    from sidecar.controller.controller import Controller
    from sidecar.controller.error_histogram import Minutes
    from sidecar.controller.ledger import Ledger
    from sidecar.core.explain.history import History
    from sidecar.notify.messenger import Messenger

FORMAT: Final = 1

WORD_LIMIT: Final = 256
"""Characters of a name: a kind, a fingerprint, a reason of ours."""

SENTENCE_LIMIT: Final = 1_024
MESSAGE_LIMIT: Final = samples.MESSAGE_LIMIT + 1
CAPTURE_LIMIT: Final = 20_000
MOST_ERRORS: Final = 1 << 53
MOST_ENTRIES: Final = 200
ENTRIES_LIMIT: Final = 64 << 10
"""Characters of the details of all of them; one is never cut, for the ledger would take it for another."""

OWN: Final = ("not_honoured", "redis")
"""Topics of which each sidecar tells by itself."""

LONGEST_S: Final = 10 * 366 * 24 * 3600.0

Keyed = tuple[str | bytes, ErrorSample]


class _Read(NamedTuple):
    """What was told, on the clocks of who reads it."""

    decisions: list[Decision]
    answered_at: float | None
    life: str
    samples: list[Keyed]
    kept: Kept | None
    minutes: list[int]
    ever: int
    began: float
    entries: list[Entry]
    own: dict[str, float]


class Past:
    """The past of the container that ``controller`` watches, in the parts that keep it."""

    def __init__(
        self,
        controller: Controller,
        history: History,
        minutes: Minutes,
        ledger: Ledger,
        messenger: Messenger | None = None,
    ) -> None:
        self._controller = controller
        self._history = history
        self._minutes = minutes
        self._ledger = ledger
        self._messenger = messenger

    def mark(self) -> tuple[object, ...]:
        """Another value whenever there may be something else to tell, but for the passing of time."""
        inquest = self._controller.inquest
        noted = self._history.changes, inquest.samples.changes, inquest.kept, self._minutes.ever()
        return self._controller.container.life, noted, self._unsent(), self._own()

    def freeze(self, now: float, wall: float) -> dict[str, Any]:
        """All of it at ``now`` on the clock of the controller and Unix second ``wall``, in values that JSON knows."""
        answered_at, inquest = self._history.answered_at, self._controller.inquest
        return {
            "format": FORMAT,
            "decisions": [_decision(each, wall) for each in reversed(self._history.newest())],
            "answered_age_s": None if answered_at is None else wall - answered_at,
            "life": self._controller.container.life,
            "samples": [_keyed(key, sample, now) for key, sample in inquest.samples.keyed()],
            "kept": None if inquest.kept is None else _kept(inquest.kept, now, wall),
            "minutes": self._minutes.counts(),
            "ever": self._minutes.ever(),
            "minute_age_s": now - self._minutes.began(),
            "entries": self._unsent(),
            "own_ages_s": {topic: now - since for topic, since in self._own().items()},
        }

    def thaw(self, told: bytes, now: float, wall: float) -> None:
        """Go on with what ``freeze`` gave to a message that was heard at ``now`` and ``wall`` on our own clocks.

        Samples are of one life, and are left where the controller is in another. ``RefusedError`` when it cannot
        be used; then nothing here has changed.
        """
        try:
            read = _read(json.loads(told)["past"], now, wall)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(f"the past that was carried is broken: {type(error).__name__}: {error}") from error
        inquest = self._controller.inquest
        self._history.restore(read.decisions, read.answered_at)
        if read.life == self._controller.container.life:
            inquest.samples.restore(read.samples)
        inquest.kept = read.kept
        self._minutes.restore(read.minutes, read.ever, read.began)
        self._ledger.add(*read.entries)
        if self._messenger is not None:
            self._messenger.go_on(read.own)

    def _unsent(self) -> list[Entry]:
        newest, room = [], ENTRIES_LIMIT
        for entry in reversed(self._ledger.unsent(MOST_ENTRIES)):
            room -= len(entry.detail)
            if room < 0:
                break
            newest.append(entry)
        return newest[::-1]

    def _own(self) -> dict[str, float]:
        return self._messenger.own if self._messenger is not None else {}


# -- writing ------------------------------------------------------------------------------------------------------


def _decision(decision: Decision, wall: float) -> list[Any]:
    at, what, reason, sentence, times = decision
    return [wall - at, what, reason[:WORD_LIMIT], sentence[:SENTENCE_LIMIT], times]


def _keyed(key: str | bytes, sample: ErrorSample, now: float) -> list[Any]:
    """A key that was made of a message is told apart from one that the app gave."""
    own, made = (None, key.decode()) if isinstance(key, bytes) else (key, None)
    return [own, made, *_sample(sample, now)]


def _sample(sample: ErrorSample, now: float) -> list[Any]:
    fingerprint, kind, level, errors, first, last, message = sample
    return [fingerprint, kind, level, errors, now - first, now - last, message]


def _kept(kept: Kept, now: float, wall: float) -> dict[str, Any]:
    return {
        "claim_id": kept.claim_id,
        "age_s": wall - kept.at,
        "samples": [_sample(each, now) for each in kept.samples],
        "capture": None if kept.capture is None else kept.capture[:CAPTURE_LIMIT],
    }


# -- reading ------------------------------------------------------------------------------------------------------


def _read(frozen: Any, now: float, wall: float) -> _Read:
    if frozen["format"] != FORMAT:
        raise RefusedError(f"the past that was carried has format {frozen['format']!r}, not {FORMAT}")
    answered_age_s, kept = frozen["answered_age_s"], frozen["kept"]
    minutes = [_errors(each) for each in _list(frozen["minutes"], hour_counts.MINUTES)]
    return _Read(
        [_read_decision(each, wall) for each in _list(frozen["decisions"], history.MOST)],
        None if answered_age_s is None else wall - _age(answered_age_s),
        _word(frozen["life"]),
        [_read_keyed(each, now) for each in _list(frozen["samples"], samples.MOST)],
        None if kept is None else _read_kept(kept, now, wall),
        minutes or [0],
        _errors(frozen["ever"]),
        now - _age(frozen["minute_age_s"]),
        [_read_entry(each) for each in _list(frozen["entries"], MOST_ENTRIES)],
        {topic: now - _age(frozen["own_ages_s"][topic]) for topic in OWN if topic in frozen["own_ages_s"]},
    )


def _read_decision(told: Iterable[Any], wall: float) -> Decision:
    age_s, what, reason, sentence, times = told
    return Decision(wall - _age(age_s), _word(what), _word(reason), _text(sentence, SENTENCE_LIMIT), _errors(times))


def _read_entry(told: Iterable[Any]) -> Entry:
    """As it was written, for the ledger knows by every field whether it has it already."""
    what, at, instance, kind, reason, author, seconds, detail, once, name = told
    return Entry(
        _word(what),
        _seconds(at),
        _text(instance, SENTENCE_LIMIT),
        _text(kind, SENTENCE_LIMIT),
        _text(reason, SENTENCE_LIMIT),
        _text(author, SENTENCE_LIMIT),
        None if seconds is None else _seconds(seconds),
        _text(detail, DETAIL_LIMIT),
        _text(once, SENTENCE_LIMIT),
        _word(name),
    )


def _read_keyed(told: Iterable[Any], now: float) -> Keyed:
    own, made, *sample = told
    key = _word(own) if made is None else _word(made).encode()
    return key, _read_sample(sample, now)


def _read_sample(told: Iterable[Any], now: float) -> ErrorSample:
    fingerprint, kind, level, errors, first, last, message = told
    return ErrorSample(
        _word(fingerprint),
        _word(kind),
        Level(level),
        _errors(errors),
        now - _age(first),
        now - _age(last),
        _text(message, MESSAGE_LIMIT),
    )


def _read_kept(told: Any, now: float, wall: float) -> Kept:
    capture = told["capture"]
    return Kept(
        _text(told["claim_id"], SENTENCE_LIMIT),
        wall - _age(told["age_s"]),
        tuple(_read_sample(each, now) for each in _list(told["samples"], samples.MOST, newest_last=False)),
        None if capture is None else _text(capture, CAPTURE_LIMIT),
    )


def _list(value: Any, most: int, *, newest_last: bool = True) -> list[Any]:
    """The newest of more than we keep."""
    if not isinstance(value, list):
        raise TypeError(f"takes a list, not {type(value).__name__}")
    return value[-most:] if newest_last else value[:most]


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"takes a text, not {type(value).__name__}")
    return value[:limit]


def _word(value: Any) -> str:
    return _text(value, WORD_LIMIT)


def _errors(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_ERRORS:
        raise ValueError(f"takes a whole number from 0 to {MOST_ERRORS}")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= MOST_ERRORS:  # nor NaN
        raise ValueError("takes seconds")
    return float(value)


def _age(value: Any) -> float:
    """Seconds; a wall clock that was set back makes none younger than now."""
    age_s = _seconds(value)
    if abs(age_s) > LONGEST_S:
        raise ValueError("takes seconds of some years at the most")
    return max(0.0, age_s)
