"""Builds the action that has a container restarted. Imported only if there is one besides the failing check."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter

from sidecar.actions.actuator import Action, ActionError, ActionResult, Actuator
from sidecar.actions.asked_file import AskedFile
from sidecar.actions.command import CommandAction
from sidecar.actions.nomad import TaskApi
from sidecar.controller.journal import path_of
from sidecar.core.types import Entry
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import ActionConfig, IdentityConfig
    from sidecar.telemetry.metrics import Metrics
    from sidecar.telemetry.observers import Observers

_OF_NOMAD: Final = ("NOMAD_SECRETS_DIR", "NOMAD_ALLOC_ID")
_SOCKET: Final = "api.sock"
_TOKEN: Final = "nomad_token"  # noqa: S105 - the name of its file


def actuator(
    config: ActionConfig,
    identity: IdentityConfig,
    metrics: Metrics,
    observers: Observers,
    *,
    leave: Callable[[], None],
    state_directory: str,
) -> Actuator:
    """Build the part that carries out ``ARBITER_ACTION``. ``leave`` ends this process, for the action ``exit``.

    ``state_directory``: where it remembers what it asked; empty: nowhere.
    """
    facts = {"ARBITER_SERVICE": identity.service, "ARBITER_INSTANCE": identity.instance}
    actions = counter(metrics.registry, config.action)

    def observe(result: ActionResult) -> None:
        outcome = "failed" if result.failed else "done"
        actions.labels(result.action, outcome).inc()
        took_s = round(result.took_s, 3)
        fields = {"action": result.action, "detail": result.sentence, "took_s": took_s}
        log = logger.error if result.failed else logger.warning
        log("the action has failed" if result.failed else "the action is done", extra={"fields": fields})
        what, instance = "action_failed" if result.failed else "acted", identity.instance
        observers.acted(Entry(what, result.at, instance, reason=result.action, seconds=took_s, detail=result.sentence))

    act = action(config, leave, environ=os.environ, facts=facts)
    asked = AskedFile(path_of(state_directory, identity.app).with_suffix(".asked")) if state_directory else None
    return Actuator(
        config.action,
        act,
        timeout_s=config.action_timeout,
        wall=time.time,
        on_result=observe,
        asked=asked,
        missing=lambda: missing(config.action, os.environ),
        on_missing=logger.warning,
    )


def counter(registry: CollectorRegistry, action: str) -> Counter:
    """Add the metric of the actions, with both outcomes of ``action`` at 0."""
    help_text = "Actions that had a container restarted, or failed to; only with ARBITER_ACTION."
    actions = Counter("arbiter_actions", help_text, ["action", "outcome"], registry=registry)
    for outcome in ("done", "failed"):
        actions.labels(action, outcome)
    return actions


def action(
    config: ActionConfig, leave: Callable[[], None], *, environ: Mapping[str, str], facts: Mapping[str, str]
) -> Action:
    """The configured action. Without its variables an action of Nomad fails when it is needed, not at the start.

    A sidecar that does not start would be restarted for ever, and the app with it.
    """
    if config.action == "exit":
        return partial(_leave, leave)
    if config.action == "command":
        # The time of the action ends the program first, so that its result says what the program printed.
        return CommandAction(shlex.split(config.action_command), config.action_timeout * 0.9, facts)
    unset = [name for name in _OF_NOMAD if not environ.get(name)]
    if unset:
        return partial(_fail, f"{' and '.join(unset)} not set: this is no allocation of Nomad")
    secrets, allocation = (environ[name] for name in _OF_NOMAD)
    # The other half is for the answer, which comes when the app has ended.
    api = TaskApi(f"{secrets}/{_SOCKET}", f"{secrets}/{_TOKEN}", allocation, config.action_timeout / 2)
    return partial(api.restart_task, config.nomad_task) if config.action == "nomad-restart" else api.stop_allocation


def missing(action: str, environ: Mapping[str, str]) -> list[str]:
    """What ``action`` lacks on this machine, in sentences for a person. Reads the disk."""
    named = f"ARBITER_ACTION {action}"
    if action == "exit" and environ.get("NOMAD_ALLOC_ID"):
        return [f"{named}: Nomad restarts the sidecar alone, and a culled app goes on"]
    if not action.startswith("nomad-"):
        return []
    if unset := [name for name in _OF_NOMAD if not environ.get(name)]:
        return [f"{named}: {' and '.join(unset)} not set: this is no allocation of Nomad"]
    secrets = Path(environ["NOMAD_SECRETS_DIR"])
    wanted = {
        secrets / _SOCKET: "the task API is missing: it needs Nomad 1.5 or newer",
        secrets / _TOKEN: "the token of the task is missing: write identity { file = true } into the sidecar's task",
    }
    return [f"{named}: {sentence} ({path})" for path, sentence in wanted.items() if not os.access(path, os.R_OK)]


async def _leave(leave: Callable[[], None]) -> str:
    leave()
    return "the sidecar leaves"


async def _fail(sentence: str) -> str:
    raise ActionError(sentence)
