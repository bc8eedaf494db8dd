"""Sentences for people: about answers, verdicts, holds and waits. The words of refusals are in ``words``."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from sidecar.core.claims import Answer, Denied, Granted, Unknown
from sidecar.core.explain.words import FAILURES, MESSAGE_RUNBOOKS, OTHER_PROCESS, REFUSALS, Explanation
from sidecar.core.types import Hold, Verdict

_OTHER_REFUSAL: Final = "the reason of the refusal is over; the sidecar asks again {wait}"
_UNDER_A_MINUTE: Final = 59.95

ORDERED: Final = "a person ordered the cull"
"""The public listener shows only this of an order; its author and reason are for the local listener and the log."""


def verdict(value: Verdict | None) -> str:
    """Why the verdict is excessive; empty if it is not."""
    return "; ".join(reason.sentence for reason in value.reasons) if value else ""


def rule(value: Verdict | None) -> str:
    """The name of the first detector that fired; empty if none did."""
    return value.reasons[0].rule if value and value.reasons else ""


def answer(value: Answer, what: str = "token") -> str:
    """The answer to a claim as a sentence, or with ``what="lease"`` that to a request to retire."""
    if isinstance(value, Granted):
        again = " (already ours)" if value.replayed else ""
        return f"{what} granted{again}, {value.used} of {value.capacity} in use"
    if isinstance(value, Denied):
        return _denied(value)
    return f"{failure(value.error)}: without a clear answer there is no {what}"


def failure(error: str) -> str:
    """The sentence for an error; the error itself if this version does not know it."""
    return FAILURES[error].sentence if error in FAILURES else error


def unreachable(value: Unknown) -> str:
    """The sentence for an error, with the address and what Redis or the network said."""
    return f"{failure(value.error)}{f' ({value.said})' if value.said else ''}"


def remedy(value: Denied, wait: str) -> str:
    """What has to happen before the store grants what it refused; ``wait`` is ``in 3m 10s`` or ``now``."""
    row = _row(value)
    return (row.remedy if row else _OTHER_REFUSAL).replace("{wait}", wait)


def failure_remedy(error: str, default: str) -> str:
    """What has to happen before there is a clear answer; ``default`` for an error that this version does not know."""
    return FAILURES[error].remedy if error in FAILURES else default


def runbook(word: str) -> str:
    """The heading in ``deploy/runbooks.md`` for any word of these tables; empty for any other word."""
    row = REFUSALS.get(word) or FAILURES.get(word)
    return row.runbook if row else MESSAGE_RUNBOOKS.get(word, "")


def _denied(value: Denied) -> str:
    sentence, row = value.reason, _row(value)
    if row is not None:
        numbers = {name: getattr(value, name) for name in ("used", "capacity", "alive", "suspect")}
        sentence = row.sentence.format(wait=whole_seconds(value.retry_after_s), **numbers)
    if value.hold is not None:
        sentence = f"{hold(value.hold)}, {sentence}"
    shared = f"; {most(value.suspect, value.alive)} have {value.cause}" if value.cause else ""
    return f"{sentence}{shared}"


def _row(value: Denied) -> Explanation | None:
    """The row of a refusal; None for a word of another version."""
    return OTHER_PROCESS if value.is_other_process else REFUSALS.get(value.reason)


def hold(value: Hold) -> str:
    """The author of a hold, what it freezes, and its reason."""
    scope = f"instance {value.instance}" if value.instance else "the service"
    return f"{value.author} holds {scope}{f': {value.reason}' if value.reason else ''}"


def lost_hold(lost: Hold) -> str:
    """What a person has to know of a hold that Redis has lost."""
    return f"Redis has lost a hold before its end ({hold(lost)}): set it again if it is still needed"


def retired(age_s: float, lifetime_s: float) -> str:
    """Why a container was retired."""
    return f"retired at age {span(age_s)}, its lifetime is {span(lifetime_s)}"


def span(seconds: float) -> str:
    """A duration for a person, in its two largest units: ``6h 2m``, ``90s`` as ``1m 30s``, ``0.5s``."""
    if seconds < _UNDER_A_MINUTE:
        return f"{round(seconds, 1):g}s"
    parts, left = [], round(seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        parts.append(f"{count}{unit}" if count else "")
    first = next(at for at, part in enumerate(parts) if part)
    return " ".join(filter(None, parts[first : first + 2]))


def most(suspect: int, alive: int) -> str:
    """Whose cause the fleet names: ``All 11 containers``, or most of the suspects."""
    return f"all {alive} containers" if suspect >= alive > 1 else f"most of {suspect} suspects of {alive} containers"


def names(every: Sequence[str], most: int) -> str:
    """The first ``most`` names, and how many more: ``a, b and 3 more``."""
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def whole_seconds(seconds: float) -> str:
    """A waiting time for a person: as ``span``, rounded up to whole seconds, at least one."""
    return span(max(1, ceil(seconds)))


def reason_word(value: Answer) -> str:
    """The word of the answer: the same in the log, in metrics and in JSON."""
    if isinstance(value, Denied):
        return value.reason
    if isinstance(value, Unknown):
        return value.error
    return "replayed" if value.replayed else "granted"


def outcome(value: Answer) -> str:
    """Which of the three answers it is: ``granted``, ``denied`` or ``unknown``."""
    return type(value).__name__.lower()
