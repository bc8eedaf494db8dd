"""One ledger over several servers: written at one, read from all, each entry once whatever the clocks say."""

from __future__ import annotations

from harness.ledgers import CULLED, MANY, Bucket, read
from harness.spreads import spread_over, three
from harness.unreliable import UnreliableBudget
from sidecar.budget import Budget
from sidecar.core.words import Unknown


def spread(*servers: Budget) -> tuple[Budget, list[UnreliableBudget]]:
    doors = [UnreliableBudget(server) for server in servers]
    return spread_over(doors), doors


async def test_entries_go_to_the_first_server_that_answers_and_are_read_from_all() -> None:
    bucket = Bucket()
    budget, (a, b) = spread(bucket.memory(), bucket.memory())
    await budget.note([MANY[0]])
    bucket.passes(1)
    a.error = "connection"
    await budget.note([MANY[1]])
    assert await read(budget) == [MANY[1]]
    bucket.passes(1)
    a.error = None
    await budget.note([MANY[2]])
    assert await read(budget) == MANY[:3]
    assert await read(b, most=9) == [MANY[1]]


async def test_entry_that_two_servers_have_is_read_once_whatever_the_page() -> None:
    bucket = Bucket()
    budget, (a, b) = spread(bucket.memory(), bucket.memory())
    for door in (a, b):
        await door.note(MANY[:3])
    for most in (1, 2, 3, 9):
        seen, after = [], ""
        for _ in range(6):
            page = await budget.entries(0, after, most)
            assert not isinstance(page, Unknown)
            seen += [entry._replace(id="") for entry in page]
            after = page[-1].id if page else after
        assert seen == MANY[:3], most


async def test_reader_misses_nothing_of_a_server_whose_clock_is_behind() -> None:
    ahead, behind = Bucket(), Bucket()
    ahead.passes(3600)
    budget, (a, b) = spread(ahead.memory(), behind.memory())
    await a.note([MANY[0]])
    page = await budget.entries(0, "", 10)
    assert not isinstance(page, Unknown)
    await b.note([MANY[1]])
    assert await read(budget, after=page[-1].id) == [MANY[1]]


async def test_no_server_is_unknown() -> None:
    budget = spread_over(three(Unknown("timeout"), Unknown("auth"), RuntimeError("broken")))
    assert await budget.note([CULLED]) == Unknown("timeout")
    assert await budget.entries(0, "", 10) == Unknown("timeout")
    assert await budget.first("word", 60) == Unknown("timeout")
