"""``python -m bench.idle_pings URL IDLE_S ROUNDS``: exchanges with Redis by a process that was idle before.

Three PINGs by redis-py, one after the other: as many exchanges as a suspect needs, to announce itself, to read the
fleet and to commit the cull. After seconds of idleness each takes several times as long as in a busy process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from redis.asyncio import Redis

EXCHANGES = 3


async def main(url: str, idle_s: float, rounds: int) -> list[float]:
    """The milliseconds of each round."""
    client, taken = Redis.from_url(url), []
    await client.ping()
    for _ in range(rounds):
        await asyncio.sleep(idle_s)
        begun = time.perf_counter()
        for _ in range(EXCHANGES):
            await client.ping()
        taken.append((time.perf_counter() - begun) * 1000)
    await client.aclose()
    return taken


if __name__ == "__main__":
    address, idle, number = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(main(address, float(idle), int(number)))))
