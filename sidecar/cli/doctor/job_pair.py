"""What the findings of a job are about: an arbiter in its group, and the checks of that group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sidecar.cli.doctor.job import Block
from sidecar.config import addresses
from sidecar.config.settings import Config

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class Check(NamedTuple):
    """A check, its service, and the name of the task that it restarts; empty: the service is one of the group."""

    block: Block
    service: Block
    task: str

    @property
    def path(self) -> str:
        """What it asks for."""
        return self.block.text("Path")

    @property
    def port(self) -> str:
        """The label or number of the port that it asks."""
        return self.block.text("PortLabel", self.service.text("PortLabel"))

    @property
    def limit(self) -> int:
        """Failures in a row after which Nomad restarts the task; 0: it restarts nothing."""
        return self.block.block("CheckRestart").number("Limit")


class Pair(NamedTuple):
    """An arbiter in its group, with its settings."""

    group: Block
    arbiter: Block
    settings: Config
    ports: Mapping[str, int]
    """Label -> port as the tasks see it."""
    checks: list[Check]
    """The checks of all services of the group."""
    is_public_secured: bool
    """Whether the health answers speak TLS."""

    @property
    def action(self) -> str:
        """What the arbiter does after the drain."""
        return self.settings.action.action

    @property
    def asking(self) -> list[Check]:
        """The checks that ask the arbiter."""
        return [check for check in self.checks if check.path.startswith("/health")]

    def port(self, listener: str) -> int:
        """The port of a listener that others reach, 0 if there is none."""
        address = getattr(self.settings.server, f"{listener}_listen")
        host, port = ("", 0) if address == addresses.OFF else addresses.split(address)
        return 0 if host in _LOOPBACK else port


class Restart(NamedTuple):
    """A restart policy; the defaults are Nomad's for a service."""

    attempts: int = 2
    delay_s: float = 15.0
    mode: str = "fail"
    interval_s: float = 1800.0


def restart_of(*blocks: Block) -> Restart:
    """The policy of a group and of a task in it."""
    found = Restart()
    for policy in (block.block("RestartPolicy") for block in blocks):
        found = Restart(
            policy.number("Attempts", found.attempts),
            policy.seconds("Delay", found.delay_s),
            policy.text("Mode", found.mode),
            policy.seconds("Interval", found.interval_s),
        )
    return found


def services_of(group: Block) -> list[tuple[Block, str]]:
    """The services of the group and of its tasks, each with the name of its task."""
    of_tasks = [(service, task.text("Name")) for task in group.blocks("Tasks") for service in task.blocks("Services")]
    return [*((service, "") for service in group.blocks("Services")), *of_tasks]
