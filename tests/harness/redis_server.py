"""A real redis-server on loopback, without persistence, whose wall clock a test may set (libfaketime)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.binaries import require
from harness.child import Child
from harness.ports import free_port

_PER_SECOND_US = 1_000_000


class FakeClock:
    """The clock of a process started with ``env()``. libfaketime reads the time from a file at each call."""

    def __init__(self, directory: Path, name: str, now_s: float = 1_700_000_000.0) -> None:
        self._library = require("faketime")
        self._file = directory / f"{name}.time"
        self.set(now_s)

    @property
    def now_s(self) -> float:
        """Unix time in seconds, as last set."""
        return self._now_us / _PER_SECOND_US

    def set(self, now_s: float) -> None:
        """Set the clock to this Unix time in seconds, exact to the microsecond."""
        self._now_us = round(now_s * _PER_SECOND_US)
        seconds, micros = divmod(self._now_us, _PER_SECOND_US)
        # Half a microsecond more, because libfaketime truncates.
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{seconds}.{micros:06d}500\n")
        draft.replace(self._file)

    def env(self) -> dict[str, str]:
        """The environment of the tests with what libfaketime needs."""
        return os.environ | {
            # libc comes second so that its malloc replaces jemalloc's. jemalloc asks for the time while
            # libfaketime starts, which ends in an endless recursion.
            "LD_PRELOAD": f"{self._library}:libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_FMT": "%s",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }

    def forget(self, pid: int) -> None:
        """Remove the shared memory of libfaketime, which a killed process leaves."""
        for left in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            Path("/dev/shm", left).unlink(missing_ok=True)


_START_S: Final = 1_700_000_000.0
"""The Unix time at which a clock that tests set begins."""
_EMPTYING: Final = (  # old clients first: one of them could still write
    *("CLIENT KILL TYPE normal SKIPME yes", "CLIENT KILL TYPE pubsub", "CLIENT UNPAUSE"),
    *("FLUSHALL", "SCRIPT FLUSH", "CONFIG RESETSTAT", "ACL LOG RESET"),
)


class RedisServer(Child):
    """One server, on a port and a unix socket that stay the same over all its starts, unless it is renewed.

    ``faketime`` stops the clock of the server. The directory's path must be short enough for a unix socket (107 bytes).
    """

    def __init__(
        self,
        directory: Path,
        name: str = "redis",
        *,
        password: str | None = None,
        faketime: bool = False,
    ) -> None:
        super().__init__(name, directory)
        self._program = require("redis-server")
        self._clock = FakeClock(directory, name, _START_S) if faketime else None
        self._arguments: tuple[str, ...] = ()
        self._settings: tuple[dict[str, str], object] = {}, None
        self.password = password
        self.port = free_port()
        self.unix_socket = directory / f"{name}.sock"

    @property
    def url(self) -> str:
        credentials = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    def start(self, *args: str) -> Self:
        """Start with these further arguments of redis-server, and return once it answers."""
        self._arguments = args
        return super().start()

    def restart(self) -> None:
        """Kill the server and start it again with the same arguments: without data, at the same address."""
        self.kill()
        self.start(*self._arguments)

    def renew(self) -> None:
        """Make a shared server new for the next test: without data, clients, scripts, users and changed settings.

        It is started again, at another port, if the test before has killed it, or has left it busy, a replica or with
        a password that this object does not know.
        """
        if self._clock is not None:
            self.set_time(_START_S)
        if self.alive:
            self.resume()
        try:
            is_new = self.alive and self._emptied() == self._settings
        except redis.RedisError:
            is_new = False
        self.password = None
        if not is_new:
            self.kill()
            self.port, self._settings = free_port(), ({}, None)
            self.start()
            self._settings = self._emptied()

    def _emptied(self) -> tuple[dict[str, str], object]:
        """Remove what the test before has left; the settings and the role."""
        with self._connected() as client:
            for command in _EMPTYING:
                client.execute_command(*command.split())
            for user in set(client.acl_users()) - {"default"}:
                client.acl_deluser(user)
            for name, value in client.config_get().items():
                if (before := self._settings[0].get(name, value)) != value:
                    client.config_set(name, before)
            return client.config_get(), (client.acl_list(), client.info("replication")["role"])

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        super().kill()
        if self._clock is not None and self._process is not None:
            self._clock.forget(self.pid)

    def cli(self, *command: str | float | bytes) -> Any:
        """The answer to one command, as redis-py decodes it, within 5 s and without a retry."""
        with self._connected() as client:
            return client.execute_command(*command)

    def set_password(self, password: str) -> None:
        """Require another password of new clients from now on."""
        self.cli("CONFIG", "SET", "requirepass", password)
        self.password = password

    def set_time(self, unix_s: float) -> None:
        """Set the clock that TIME, scripts, expiry and blocking commands use; it does not move until the next call."""
        self._fake_clock().set(unix_s)

    def advance(self, seconds: float) -> None:
        """Move that clock by a step; backwards when negative."""
        self.set_time(self._fake_clock().now_s + seconds)

    def _connected(self) -> redis.Redis:
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self.password,
            decode_responses=True,
            socket_timeout=5,
            retry=Retry(NoBackoff(), 0),
        )

    def _fake_clock(self) -> FakeClock:
        if self._clock is None:
            raise AssertionError("the clock of this server is real: RedisServer(..., faketime=True)")
        return self._clock

    def _env(self) -> dict[str, str] | None:
        return self._clock.env() if self._clock else None

    def _command(self) -> list[str]:
        options: dict[str, object] = {
            "port": self.port,
            "bind": "127.0.0.1",
            "unixsocket": self.unix_socket,
            "dir": self.directory,
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
        }
        if self.password:
            options["requirepass"] = self.password
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return [self._program, *words, *self._arguments]

    def _is_ready(self) -> bool:
        try:
            return bool(self.cli("PING"))
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise ConnectionError(str(error)) from None
