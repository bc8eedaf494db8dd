"""Several servers as one store: the share of each in the tokens, and how many have to agree.

A decision needs a majority of the votes. Two majorities share a server, so no decision overlooks another. Each server
has one vote; if their number is even the first has two, so that two servers have a majority as well.
"""

from __future__ import annotations

from collections.abc import Iterable


def split(total: int, index: int, servers: int) -> int:
    """Share of server ``index`` in ``total``: 10 over 3 are 4, 3 and 3."""
    return total // servers + (index < total % servers)


def is_majority(indices: Iterable[int], servers: int) -> bool:
    """Whether these of ``servers`` servers, by index, have more than half of the votes."""
    bonus = 1 if servers % 2 == 0 else 0
    votes = sum(1 + (bonus if index == 0 else 0) for index in set(indices))
    return 2 * votes > servers + bonus
