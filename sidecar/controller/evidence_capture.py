"""The evidence of a cull: the newest error samples of the life that ends, and what the operator's hook printed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from sidecar.core.explain.samples import MESSAGE_LIMIT, CullEvidence, ErrorSample
from sidecar.core.types import Claim

CullHook = Callable[[Claim, str], Awaitable[str]]
"""``(claim, reason) -> output``: inspects the container before a cull, within a bounded time."""


def evidence_text(evidence: CullEvidence, offset_s: float) -> str:
    """The evidence in lines, redacted: samples, then the hook's output. ``offset_s``: Unix time minus their clock."""
    lines = [_line(sample, offset_s) for sample in evidence.samples]
    return "\n".join([*lines, *([evidence.capture] if evidence.capture else [])])


def _line(sample: ErrorSample, offset_s: float) -> str:
    from sidecar.client.redaction import redacted  # noqa: PLC0415 - most containers are never culled

    seen = f"{_utc(sample.first + offset_s)} to {_utc(sample.last + offset_s)}"
    message = redacted(sample.message, MESSAGE_LIMIT)
    return f"{sample.errors} x {sample.kind} ({sample.fingerprint}, {seen}): {message}"


def _utc(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))
