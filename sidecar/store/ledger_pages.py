"""The ledgers of several servers as one: a page of each merged, and an id that tells how far each was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge

from sidecar.core.types import Entry


def places(after: str, names: Iterable[str]) -> dict[str, str]:
    """How far each server was read when that was the last id; from the beginning if it is none of these servers."""
    servers = list(names)
    parts = after.split(",")
    return dict(zip(servers, parts if len(parts) == len(servers) else [""] * len(servers), strict=True))


def merged_page(pages: Mapping[str, Sequence[Entry]], after: Mapping[str, str], most: int) -> list[Entry]:
    """The first of all pages by the time of their ids, the order of each kept; what two servers have comes once.

    The id of each entry is the last one of each server up to there: who reads on misses nothing, whatever their clocks
    say and whoever is away.
    """
    read, made = dict(after), dict[Entry, str]()
    for name, entry in merge(*(_named(name, page) for name, page in pages.items()), key=_time):
        told = entry._replace(id="")
        if len(made) == most and told not in made:
            break
        read[name] = entry.id
        made.setdefault(told, "")
        made[next(reversed(made))] = ",".join(read.values())
    return [entry._replace(id=place) for entry, place in made.items()]


def _named(name: str, page: Sequence[Entry]) -> Iterator[tuple[str, Entry]]:
    return ((name, entry) for entry in page)


def _time(named: tuple[str, Entry]) -> int:
    return int(named[1].id.partition("-")[0])
