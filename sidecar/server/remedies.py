"""What would end the present state of the container, in sentences for an on-call engineer.

Each sentence names one event, how soon it comes, and the command that helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sidecar.core.claims import Answer, Denied, Unknown
from sidecar.core.explain import reasons
from sidecar.core.life.container import Snapshot
from sidecar.core.types import Evidence, Hold, Reason, State
from sidecar.server.banner import clock

DAY_S: Final = 86400

REPLACED: Final = "the container is replaced, or health-arbiter revive"


class Outlook(NamedTuple):
    """What ``remedies`` needs beside the snapshot.

    ``leaving``: number of errors that leave the window until it is below its limit, and the seconds until then.
    ``answer_age_s``: age of the last answer to a claim. ``hold``: the hold in force. ``unix``: Unix time in seconds.
    """

    unix: float
    leaving: tuple[int, int] = (0, 0)
    answer_age_s: float = 0.0
    hold: Hold | None = None


def remedies(seen: Snapshot, outlook: Outlook) -> tuple[str, ...]:
    """What would end the state of ``seen``: at least one sentence."""
    return tuple(_STATES[seen.container.state](seen, outlook))


def _starting(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield f"its grace is over, and it is judged, {_in(seen.container.due, seen.now)}"


def _up(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    if seen.container.verdict and not seen.container.verdict.is_fine:
        yield from _evidence(seen, outlook)
    else:
        yield "nothing has to change: it is in service"


def _suspect(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    container = seen.container
    yield from _evidence(seen, outlook)
    if container.would_down:
        yield "nothing else: in shadow mode it stays in service"
    elif container.asking:
        yield "the answer to its claim is on the way" + (", an operator ordered the cull" if container.order else "")
    elif not container.is_announced and container.order is None:
        answers = reasons.failure_remedy(seen.beat_error, "Redis answers a beat")
        yield f"{answers}, so that the fleet knows that it is suspect; then it claims a token"
    elif container.answer is None:
        yield f"it claims a token {_in(container.due, seen.now)}, unless its errors have left the window by then"
    else:
        yield _asked(container.answer, seen, outlook)


def _asked(answer: Answer, seen: Snapshot, outlook: Outlook) -> str:
    """What has to happen before the next request is granted."""
    again = f"the sidecar asks again {_in(seen.container.due, seen.now)}"
    if isinstance(answer, Unknown):
        return f"{reasons.failure_remedy(answer.error, 'Redis gives a clear answer')}; {again}"
    if not isinstance(answer, Denied):
        return again
    if answer.reason == "hold" and outlook.hold is not None:
        return hold(outlook.hold, outlook.unix)
    left_s = answer.retry_after_s - outlook.answer_age_s
    return reasons.remedy(answer, f"in {reasons.whole_seconds(left_s)}" if left_s > 0 else "now")


def hold(value: Hold, unix: float) -> str:
    """When a hold ends, and which command ends it earlier."""
    return f"the hold by {value.author} ends {at(value.until, unix)}, or health-arbiter release ends it"


def _evidence(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    """What ends each reason of the verdict, if the app reports no more errors."""
    for reason in seen.container.verdict.reasons if seen.container.verdict else ():
        yield _end_of(reason, seen.evidence, outlook)


def _end_of(reason: Reason, evidence: Evidence, outlook: Outlook) -> str:
    if reason.rule in _RULES:
        return _RULES[reason.rule]
    if reason.rule == "ratio":
        return f"less than {100 * reason.limit:.3g} % of the requests fail"
    if reason.rule != "errors":
        wait = reasons.whole_seconds(evidence.window_s - (evidence.newest_age_s or 0))
        return f"the counted errors leave the window within {wait}, if no more come"
    count, left_s = outlook.leaving
    if not count:
        return "the next check sees that the errors have left the window"
    return f"{count} of {evidence.errors} errors leave the window in {reasons.whole_seconds(left_s)}, if no more come"


_RULES: Final = {
    "heartbeat": "the app sends a heartbeat",
}


def _retiring(seen: Snapshot, outlook: Outlook) -> Iterator[str]:
    answer = seen.container.lease_answer
    if answer is None:
        yield f"it asks for a lease {_in(seen.container.due, seen.now)}"
    else:
        yield _asked(answer, seen, outlook)
    yield "or the app is replaced before that"


def _draining(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield f"it is down {_in(seen.container.due, seen.now)}, or earlier when no request is in flight; then: {REPLACED}"


def _down(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield REPLACED
    ends = seen.container.lease_ends
    if ends is not None:
        yield f"or it is not replaced before its lease ends {_in(ends, seen.now)}: then it is up again"


def _stopping(seen: Snapshot, _outlook: Outlook) -> Iterator[str]:
    yield "the sidecar is started again"
    if seen.container.latch is not None:
        yield REPLACED


_STATES: Final = {
    State.STARTING: _starting,
    State.UP: _up,
    State.SUSPECT: _suspect,
    State.RETIRING: _retiring,
    State.DRAINING: _draining,
    State.DOWN: _down,
    State.STOPPING: _stopping,
}


def _in(due: float | None, now: float) -> str:
    """The time until ``due`` on the controller's clock, in words; None: at the next check."""
    if due is None:
        return "at the next check"
    return f"in {reasons.whole_seconds(due - now)}" if due > now else "now"


def at(until: float, unix: float) -> str:
    """The time of day in UTC of a future instant; if it is more than a day ahead, also the time until then."""
    return (
        f"at {clock(until)}" if until - unix < DAY_S else f"in {reasons.whole_seconds(until - unix)}, at {clock(until)}"
    )
