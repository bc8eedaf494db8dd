"""Real Sentinels of a master and its replica, with timeouts so short that a failover takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from harness.children import Children, StartRedis
    from harness.redis_server import RedisServer

MASTER = "fleet"


class Sentinel(Child):
    """One Sentinel. Its clients need ``password``; ``lines`` are further directives.

    With TLS it monitors and announces another ``master_port``.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        master: RedisServer,
        *,
        quorum: int = 1,
        password: str | None = None,
        master_port: int | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        super().__init__(name, directory)
        self._program = require("redis-server")
        self._master_port = master_port or master.port
        self._lines = lines
        self._master_password = master.password
        self._quorum = quorum
        self.password = password
        self.port = free_port()
        self._config.write_text("\n".join([*self._directives(), ""]))

    def cli(self, *command: str) -> Any:
        """The answer to one command, as redis-py decodes it, within 5 s."""
        with redis.Redis(
            host="127.0.0.1", port=self.port, password=self.password, decode_responses=True, socket_timeout=5
        ) as client:
            return client.execute_command(*command)

    def master_port(self) -> int:
        """The port of the master, as this Sentinel announces it."""
        return int(self.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def knows(self, *, replicas: int, sentinels: int) -> bool:
        """Whether it has discovered this many replicas and other Sentinels."""
        state = self.cli("SENTINEL", "MASTER", MASTER)
        known = int(state["num-slaves"]), int(state["num-other-sentinels"])
        return known == (replicas, sentinels)

    def _directives(self) -> Iterator[str]:
        """The configuration; the Sentinel appends to the file what it learns."""
        yield f"port {self.port}"
        yield "bind 127.0.0.1"
        yield f"dir {self.directory}"
        yield from self._lines
        yield f"sentinel monitor {MASTER} 127.0.0.1 {self._master_port} {self._quorum}"
        # With less, a healthy server on a busy machine counts as down.
        yield f"sentinel down-after-milliseconds {MASTER} 1000"
        yield f"sentinel failover-timeout {MASTER} 3000"
        if self._master_password:
            yield f"sentinel auth-pass {MASTER} {self._master_password}"
        if self.password:
            yield f"requirepass {self.password}"

    @property
    def _config(self) -> Path:
        return self.directory / f"{self.name}.conf"

    def _command(self) -> list[str]:
        return [self._program, str(self._config), "--sentinel"]

    def _is_ready(self) -> bool:
        try:
            return bool(self.cli("PING"))
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionError(str(error)) from None


def masters_reply(port: int, name: str = MASTER) -> bytes:
    """A Sentinel's answer to ``SENTINEL MASTERS`` that names the server at this port of 127.0.0.1."""
    words = ("name", name, "ip", "127.0.0.1", "port", str(port), "flags", "master", "num-other-sentinels", "0")
    texts = (f"${len(word)}\r\n{word}\r\n" for word in words)
    return f"*1\r\n*{len(words)}\r\n{''.join(texts)}".encode()


class SentinelSetup:
    """A master, its replica and their Sentinels, once all of them know each other."""

    def __init__(
        self, start_redis: StartRedis, children: Children, *, sentinels: int = 1, password: str | None = None
    ) -> None:
        self.master = start_redis("master", "--repl-diskless-sync-delay", "0")
        self.replica = start_redis("replica", "--replicaof", "127.0.0.1", str(self.master.port))
        wait_for(self._replicates, timeout_s=60, what="the replica has the master's data")
        directory, quorum = start_redis.directory, sentinels // 2 + 1
        self.sentinels = [
            children.adopt(Sentinel(directory, f"sentinel-{n}", self.master, quorum=quorum, password=password)).start()
            for n in range(sentinels)
        ]
        wait_for(self._know_each_other, timeout_s=60, what="every Sentinel knows the replica and the others")

    @property
    def url(self) -> str:
        return self.url_of(*(sentinel.port for sentinel in self.sentinels))

    def url_of(self, *ports: int, query: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"redis+sentinel://{hosts}/{MASTER}{query}"

    def notice_late(self) -> None:
        """Let the master be silent for longer than a busy machine stops it, so that no failover happens."""
        for sentinel in self.sentinels:
            sentinel.cli("SENTINEL", "SET", MASTER, "down-after-milliseconds", "15000")

    def _know_each_other(self) -> bool:
        others = len(self.sentinels) - 1
        return all(sentinel.knows(replicas=1, sentinels=others) for sentinel in self.sentinels)

    def _replicates(self) -> bool:
        return bool(self.replica.cli("INFO", "replication")["master_link_status"] == "up")
