"""Merges the ledgers of several servers, page by page. An id has the position in every ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge

from sidecar.core.types import Entry


def places(after: str, names: Iterable[str]) -> dict[str, str]:
    """The position in each ledger at the id ``after``; the beginning if the id has other servers."""
    servers = list(names)
    parts = after.split(",")
    return dict(zip(servers, parts if len(parts) == len(servers) else [""] * len(servers), strict=True))


def merged_page(pages: Mapping[str, Sequence[Entry]], after: Mapping[str, str], most: int) -> list[Entry]:
    """The first ``most`` entries by the time of their ids, in the order of each page; duplicates once.

    The id of an entry has the last id of each server so far: the page after it misses nothing, even if clocks differ or
    a server is away.
    """
    read, made = dict(after), dict[Entry, str]()
    for name, entry in merge(*(_named(name, page) for name, page in pages.items()), key=_time):
        bare = entry._replace(id="")
        if len(made) == most and bare not in made:
            break
        read[name] = entry.id
        made.setdefault(bare, "")
        made[next(reversed(made))] = ",".join(read.values())
    return [entry._replace(id=place) for entry, place in made.items()]


def _named(name: str, page: Sequence[Entry]) -> Iterator[tuple[str, Entry]]:
    return ((name, entry) for entry in page)


def _time(named: tuple[str, Entry]) -> int:
    return int(named[1].id.partition("-")[0])
