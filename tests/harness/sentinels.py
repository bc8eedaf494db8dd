"""Real Sentinels over a master and its replica, so impatient that a failover takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.redis_server import RedisServer
    from harness.starting import Children, StartRedis

MASTER = "fleet"


class Sentinel(Child):
    """One Sentinel. ``password`` is what it asks of its own clients, ``lines`` are more of its configuration.

    With TLS it is another ``master_port`` that it watches and names.
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
        self.port = 0

    def cli(self, *command: str) -> Any:
        """The answer to one command, as redis-py decodes it, within 5 s."""
        with redis.Redis(
            host="127.0.0.1", port=self.port, password=self.password, decode_responses=True, socket_timeout=5
        ) as client:
            return client.execute_command(*command)

    def master_port(self) -> int:
        """Where it sees the master."""
        return int(self.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def knows(self, *, replicas: int, sentinels: int) -> bool:
        """Whether it has heard of so many replicas and so many other Sentinels: it learns of them little by little."""
        state = self.cli("SENTINEL", "MASTER", MASTER)
        known = int(state["num-slaves"]), int(state["num-other-sentinels"])
        return known == (replicas, sentinels)

    def _choose_place(self) -> None:
        self.port = free_port()
        # The Sentinel writes down in here what it learns: a file of its own, made anew for each place.
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            *self._lines,
            f"sentinel monitor {MASTER} 127.0.0.1 {self._master_port} {self._quorum}",
            # Less than this a server may well be silent on a busy machine.
            f"sentinel down-after-milliseconds {MASTER} 1000",
            f"sentinel failover-timeout {MASTER} 3000",
        ]
        if self._master_password:
            lines.append(f"sentinel auth-pass {MASTER} {self._master_password}")
        if self.password:
            lines.append(f"requirepass {self.password}")
        self._config.write_text("\n".join([*lines, ""]))

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


class Watched:
    """A master, its replica and the Sentinels over them; returned once everybody knows everybody."""

    def __init__(
        self, start_redis: StartRedis, children: Children, *, sentinels: int = 1, password: str | None = None
    ) -> None:
        self.master = start_redis("master", "--repl-diskless-sync-delay", "0")
        self.replica = start_redis("replica", "--replicaof", "127.0.0.1", str(self.master.port))
        wait_for(self._replicates, timeout_s=20, what="the replica has the master's data")
        directory, quorum = start_redis.directory, sentinels // 2 + 1
        self.sentinels = [
            children.adopt(Sentinel(directory, f"sentinel-{n}", self.master, quorum=quorum, password=password)).start()
            for n in range(sentinels)
        ]
        wait_for(self._know_each_other, timeout_s=20, what="every Sentinel knows the replica and the others")

    @property
    def url(self) -> str:
        return self.url_of(*(sentinel.port for sentinel in self.sentinels))

    def url_of(self, *ports: int, query: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"redis+sentinel://{hosts}/{MASTER}{query}"

    def notice_late(self) -> None:
        """From now on a master may be silent for longer than a busy machine keeps it: there shall be no failover."""
        for sentinel in self.sentinels:
            sentinel.cli("SENTINEL", "SET", MASTER, "down-after-milliseconds", "15000")

    def _know_each_other(self) -> bool:
        others = len(self.sentinels) - 1
        return all(sentinel.knows(replicas=1, sentinels=others) for sentinel in self.sentinels)

    def _replicates(self) -> bool:
        return bool(self.replica.cli("INFO", "replication")["master_link_status"] == "up")
