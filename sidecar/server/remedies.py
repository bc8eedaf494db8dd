"""What would end the present state of the container, in sentences for an on-call engineer.

Each sentence names one event, how soon it comes, and the command that helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sidecar.core.claims import Answer, Denied, Unknown
from sidecar.core.explain import reasons
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Hold, State
from sidecar.server.banner import clock

DAY_S: Final = 86400

REPLACED: Final = "the container is replaced, or health-arbiter revive"


class Outlook(NamedTuple):
    """What ``remedies`` needs beside the snapshot."""

    unix: float  # Unix time in seconds
    leaving: tuple[int, int]  # errors that leave the window until it is below its limit, seconds until then
    answer_age_s: float  # of the last answer to a claim, or for a lease
    hold: Hold | None  # the one in force


def remedies(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """What would end the state of the container: at least one sentence."""
    container = snapshot.container
    due, ends = _in(container.due, snapshot.now), list(_ends_of_reasons(snapshot, outlook))
    match container.state:
        case State.STARTING:
            yield f"its grace is over, and it is judged, {due}"
        case State.UP:
            yield from ends or ["nothing has to change: it is in service"]
        case State.SUSPECT:
            yield from ends
            yield _next_of_suspect(snapshot, outlook, due)
        case State.RETIRING:
            answer = container.lease_answer
            yield f"it asks for a lease {due}" if answer is None else _after(answer, outlook, due)
            yield "or the app is replaced before that"
        case State.DRAINING:
            yield f"it is down {due}, or earlier when no request is in flight; then: {REPLACED}"
        case State.DOWN:
            yield REPLACED
            if container.lease_ends is not None:
                free = _in(container.lease_ends, snapshot.now)
                yield f"or it is not replaced before its lease ends {free}: then it is up again"
        case State.STOPPING:
            yield "the sidecar is started again"
            if container.latch is not None:
                yield REPLACED


def _next_of_suspect(snapshot: Snapshot, outlook: Outlook, due: str) -> str:
    """What has to happen before a suspect is granted a token."""
    container = snapshot.container
    if container.would_down:
        return "nothing else: in shadow mode it stays in service"
    if container.asking:
        return "the answer to its claim is on the way" + (", an operator ordered the cull" if container.order else "")
    if not container.is_announced and container.order is None:
        answers = reasons.failure_remedy(snapshot.beat_error, "Redis answers a beat")
        return f"{answers}, so that the fleet knows that it is suspect; then it claims a token"
    if container.answer is None:
        return f"it claims a token {due}, unless its errors have left the window by then"
    return _after(container.answer, outlook, due)


def _after(answer: Answer, outlook: Outlook, due: str) -> str:
    """What has to happen after this answer before the next request is granted."""
    again = f"the sidecar asks again {due}"
    if isinstance(answer, Unknown):
        return f"{reasons.failure_remedy(answer.error, 'Redis gives a clear answer')}; {again}"
    if not isinstance(answer, Denied):
        return again
    if answer.reason == "hold" and outlook.hold is not None:
        hold = outlook.hold
        return f"the hold by {hold.author} ends {_at(hold.until, outlook.unix)}, or health-arbiter release ends it"
    left_s = answer.retry_after_s - outlook.answer_age_s
    return reasons.remedy(answer, f"in {reasons.whole_seconds(left_s)}" if left_s > 0 else "now")


def _ends_of_reasons(snapshot: Snapshot, outlook: Outlook) -> Iterator[str]:
    """What ends each reason of the verdict, if the app reports no more errors."""
    evidence, verdict = snapshot.evidence, snapshot.container.verdict
    for reason in verdict.reasons if verdict else ():
        match reason.rule:
            case "heartbeat":
                yield "the app sends a heartbeat"
            case "ratio":
                yield f"less than {100 * reason.limit:.3g} % of the requests fail"
            case "errors" if not outlook.leaving[0]:
                yield "the next check sees that the errors have left the window"
            case "errors":
                count, left_s = outlook.leaving
                leave = f"leave the window in {reasons.whole_seconds(left_s)}, if no more come"
                yield f"{count} of {evidence.errors} errors {leave}"
            case _:
                wait = reasons.whole_seconds(evidence.window_s - (evidence.newest_age_s or 0))
                yield f"the counted errors leave the window within {wait}, if no more come"


def _in(due: float | None, now: float) -> str:
    """The time until ``due`` on the controller's clock, in words; None: at the next check."""
    if due is None:
        return "at the next check"
    return f"in {reasons.whole_seconds(due - now)}" if due > now else "now"


def _at(until: float, unix: float) -> str:
    """The time of day in UTC of a future instant; if it is more than a day ahead, also the time until then."""
    ahead = "" if until - unix < DAY_S else f"in {reasons.whole_seconds(until - unix)}, "
    return f"{ahead}at {clock(until)}"
