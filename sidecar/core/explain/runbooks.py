"""Where a person reads on: the heading in ``deploy/runbooks.md`` for each word by which the sidecar says what is wrong.

A link is ``RUNBOOK_URL``, ``#`` and the anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ANCHORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # why a claim was denied
        "hold": "hold",
        "duplicate": "duplicate",
        "data_loss": "memory",
        "newborn": "memory",
        "trial": "trial",
        "paused": "paused",
        "causes": "trial",
        "floor": "floor",
        "last": "floor",
        "spacing": "budget",
        "window": "budget",
        "refund_max": "budget",
        # and why a retirement was
        "culls": "retirement",
        "slots": "retirement",
        # why the answer to it is not known
        "timeout": "redis",
        "connection": "redis",
        "readonly": "redis",
        "oom": "redis",
        "loading": "redis",
        "busy": "redis",
        "crowded": "redis",
        "response": "redis",
        "cluster": "redis",
        "sentinel": "redis",
        "contended": "redis",
        "quorum": "redis",
        "alone": "redis",
        "auth": "access",
        "permission": "access",
        "tls": "access",
        "secret": "access",
        "internal": "internal",
        # what messages are about
        "budget_50": "budget",
        "budget_80": "budget",
        "budget_empty": "budget",
        "paused_shared": "paused",
        "not_honoured": "not-honoured",
        "redis_unknown": "redis",
        "test": "messages",
    }
)
"""The machine's word -> the anchor; a word that is not in here has no runbook."""
