"""Every "no" says why: one human sentence for each verdict and each answer."""

from __future__ import annotations

from math import ceil
from typing import Final

from sidecar.core.words import Answer, Denied, Granted, Unknown, Verdict

UNKNOWN: Final = {
    "timeout": "Redis did not answer in time",
    "connection": "Redis cannot be reached",
    "auth": "Redis refused our credentials",
    "permission": "the Redis user may not run what the claim needs",
    "readonly": "this Redis is a read-only replica",
    "oom": "Redis is out of memory",
    "loading": "Redis is still loading its data",
    "busy": "Redis is busy with a script",
    "response": "Redis answered with an error",
    "internal": "the claim failed inside the sidecar",
}

DENIED: Final = {
    "window": "all {capacity} tokens of the window are in use, the next comes back in {wait_s} s",
}


def verdict(value: Verdict | None) -> str:
    """Why the evidence speaks against the app; empty when it does not."""
    return "; ".join(reason.sentence for reason in value.reasons) if value else ""


def answer(value: Answer) -> str:
    """What came of the claim."""
    if isinstance(value, Granted):
        again = " (already ours)" if value.replayed else ""
        return f"token granted{again}, {value.used} of {value.capacity} in use"
    if isinstance(value, Denied):
        if value.reason not in DENIED:
            return value.reason
        return DENIED[value.reason].format(capacity=value.capacity, wait_s=max(1, ceil(value.retry_after_s)))
    return f"{UNKNOWN.get(value.error, value.error)}: without a clear answer there is no token"


def reason_word(value: Answer) -> str:
    """The machine's word for the answer: the same in the log, the metric and the JSON."""
    if isinstance(value, Denied):
        return value.reason
    if isinstance(value, Unknown):
        return value.error
    return "replayed" if value.replayed else "granted"


def outcome(value: Answer) -> str:
    """Which of the three answers it is: ``granted``, ``denied`` or ``unknown``."""
    return type(value).__name__.lower()
