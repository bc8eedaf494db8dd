"""The gates of pace: the spacing between two grants, and the tokens of the window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sidecar.core.fleet import data_loss
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.majority import split
from sidecar.core.fleet.refusal import GateRefusal
from sidecar.core.fleet.terms import OFF
from sidecar.core.fleet.tokens import RULES, Quota, Usage
from sidecar.core.fleet.view import ServerView


class Bounds(NamedTuple):
    """The bounds of one server: ``capacity`` tokens a window, and with refunds ``most`` grants; 0: no bound."""

    capacity: int
    most: int


def spacing(draft: Draft) -> GateRefusal | None:
    """Refuse a grant too soon after the last one; rows of culls show the grants of servers that are away."""
    if not draft.limits.spacing_us:
        return None
    culls = (cull.at_us for cull in draft.culls.values() if not cull.is_lease)
    times = _times(draft, (*culls, *(at for server in draft.view.servers for at in server.grants.values())))
    wait_us = times[-1] + draft.limits.spacing_us - draft.now_us if times else 0
    return GateRefusal("spacing", wait_us) if wait_us > 0 else None


def refusal(draft: Draft) -> GateRefusal | None:
    """Refuse a grant while no usable server has a token left, or all together have none."""
    waits = [_wait(draft, draft.view.servers[at]) for at in data_loss.usable(draft)]
    if waits and all(wait.wait_us for wait in waits):
        return min(waits, key=lambda wait: wait.wait_us)
    return _refused_together(draft)


def _refused_together(draft: Draft) -> GateRefusal | None:
    """Refuse a grant over the capacity of all servers. After it shrank, a server may have granted over its share."""
    rules = draft.limits
    if len(draft.view.servers) == 1 or rules.strategy != "log":
        return None
    times = [at for server in draft.view.servers for at in _unrefunded(draft, server)]
    wait_us = RULES["log"](_times(draft, times), draft.now_us, Quota(rules.capacity, rules.window_us)).wait_us
    return GateRefusal("window", wait_us) if wait_us else None


def server_of(draft: Draft, claim_id: str) -> int | None:
    """The server that granted this claim within the window, by its place in the view; None: no server."""
    oldest_us = draft.now_us - draft.limits.window_us
    for at, server in enumerate(draft.view.servers):
        if server.grants.get(claim_id, oldest_us - 1) >= oldest_us:
            return at
    return None


def first_free(draft: Draft) -> int:
    """The first server in the view that has a token. Raises StopIteration where ``refusal`` would refuse."""
    return next(at for at in data_loss.usable(draft) if not _wait(draft, draft.view.servers[at]).wait_us)


def used(draft: Draft) -> int:
    """Tokens in use at the servers that answered."""
    return sum(_usage(draft, server).used for server in draft.view.servers)


def bounds(draft: Draft, server: ServerView) -> Bounds:
    """The bounds that the store itself enforces for a grant, as in ``store.changes``."""
    rules = draft.limits
    if rules.strategy == "fixed":
        return Bounds(0, 0)
    share = _share(draft, server, rules.capacity)
    if rules.strategy == "previous":
        return Bounds(max(1, 2 * share - 1), 0)
    return Bounds(share, share if rules.refund_max == OFF else _share(draft, server, rules.refund_max))


def _wait(draft: Draft, server: ServerView) -> GateRefusal:
    """Why, and for how long, this server has no token; 0 microseconds: it has one."""
    rules = draft.limits
    if not _share(draft, server, rules.capacity):
        return GateRefusal("window", rules.window_us)
    if rules.strategy == "fixed":
        return GateRefusal("window", 0)  # the article's counter decides, and the view does not have it
    wait_us = _usage(draft, server).wait_us
    if wait_us or rules.refund_max == OFF:
        return GateRefusal("window", wait_us)
    share = _share(draft, server, rules.refund_max)
    if not share:
        return GateRefusal("refund_max", rules.window_us)
    every = RULES["log"](_times(draft, server.grants.values()), draft.now_us, Quota(share, rules.window_us))
    return GateRefusal("refund_max", every.wait_us)


def _usage(draft: Draft, server: ServerView) -> Usage:
    rules = draft.limits
    times = _times(draft, _unrefunded(draft, server))
    quota = Quota(max(1, _share(draft, server, rules.capacity)), rules.window_us)
    return RULES[rules.strategy](times, draft.now_us, quota)


def _unrefunded(draft: Draft, server: ServerView) -> list[int]:
    """When each token in use was granted; with refunds the tokens of culls that helped are not in use."""
    refunded = server.refunded if draft.limits.refund_max != OFF else frozenset[str]()
    return [at for claim, at in server.grants.items() if claim not in refunded]


def _times(draft: Draft, grants: Iterable[int]) -> list[int]:
    """Grants in ascending order; after a clock has stepped back, grants of the future count as of now."""
    return sorted(min(at, draft.now_us) for at in grants)


def _share(draft: Draft, server: ServerView, total: int) -> int:
    return split(total, server.number, draft.view.configured)
