"""A stand-in for an ECS service: it runs the containers of one task as processes, and another task when that one ends.

It does what ECS does with ``essential`` and ``restartPolicy``. Sources: the ECS
developer guide ("Container restart policy", "Task lifecycle") and the API reference of ContainerRestartPolicy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from deploy.kubelet import Kubelet, Spec
from harness.child import Child

SPEED_OF_ATTEMPTS = 60
"""The period that a container has to run before it is restarted is that much shorter."""


class EcsService(Kubelet):
    """As ``Kubelet``, whose readiness probe is the check of the load balancer. ``tasks`` counts the tasks.

    A container is restarted alone if it ended with a code that its policy does not ignore, after it has run for
    ``restartAttemptPeriod``. Otherwise the end of an essential container ends the task. ``begins`` is called before the
    containers of another task start. No task is replaced for the check: ECS does that too, at a time of its own.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        processes: Mapping[str, Child],
        ports: Mapping[int, int],
        begins: Callable[[], None],
    ) -> None:
        super().__init__(specs, processes, ports)
        self.tasks = 1
        self.is_too_soon = False
        """Whether every container ends before its ``restartAttemptPeriod`` is over."""
        self._begins = begins
        self._began: dict[str, float] = {}

    def _launch(self, name: str) -> None:
        super()._launch(name)
        self._began[name] = time.monotonic()

    def _after(self, name: str, code: int) -> None:
        if self._is_restarted(name, code):
            self.events.append(f"{name} ended")
            self.restarts[name] += 1
            self._launch(name)
        elif self._specs[name]["essential"]:
            self.events.append(f"{name} ended: task ends")
            self._replace()

    def _is_restarted(self, name: str, code: int) -> bool:
        policy = self._specs[name].get("restartPolicy", {"enabled": False})
        if not policy["enabled"] or code in policy["ignoredExitCodes"]:
            return False
        least_s = math.inf if self.is_too_soon else policy["restartAttemptPeriod"] / SPEED_OF_ATTEMPTS
        return time.monotonic() >= self._began[name] + least_s

    def _replace(self) -> None:
        for process in self._processes.values():
            process.stop()
        self.tasks += 1
        self.is_ready = False
        self._begins()
        for name in self._specs:
            self._launch(name)
