"""Builds the evidence hook and the action of a cull; imported only if one of them is configured."""

from __future__ import annotations

import os
import random
import shlex
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter

from sidecar.actions.actuator import TIMEOUT_S, Action, ActionResult, Actuator, AskedFile
from sidecar.actions.nomad import missing, nomad_action
from sidecar.actions.program import CommandAction, Hook
from sidecar.controller.journal import path_of
from sidecar.core.types import Entry
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import ActionConfig, Config
    from sidecar.telemetry import Observers
HOOK_TIMEOUT_S: Final = 30.0
"""Maximum time of the hook: enough for a dump of the threads, or of a heap."""


def hook(config: Config, observers: Observers) -> Hook | None:
    """Build the part that captures evidence before a cull, if there is a program for it."""
    if not config.culling.cull_hook:
        return None
    path = str(Path(config.culling.cull_hook).absolute())  # it runs in another directory
    timeout_s = min(HOOK_TIMEOUT_S, config.judging.error_window / 2)  # or the errors are forgotten before the cull
    return Hook(path, timeout_s, config.identity.service, partial(observers.failed, "hook"))


def actuator(
    config: Config, registry: CollectorRegistry, observers: Observers, leave: Callable[[], None]
) -> Actuator | None:
    """Build the part that carries out ``ARBITER_ACTION``; None if it is the failing check, which needs none.

    ``leave`` ends this process, for the action ``exit``.
    """
    name, own = config.action.action, config.identity
    if name == "check":
        return None
    actions = counter(registry, name)

    def observe(result: ActionResult) -> None:
        outcome = "failed" if result.failed else "done"
        actions.labels(result.action, outcome).inc()
        took_s = round(result.took_s, 3)
        fields = {"action": result.action, "detail": result.sentence, "took_s": took_s}
        log = logger.error if result.failed else logger.warning
        log("the action has failed" if result.failed else "the action is done", extra={"fields": fields})
        what = "action_failed" if result.failed else "acted"
        entry = Entry(what, result.at, own.instance, reason=result.action, seconds=took_s, detail=result.sentence)
        observers.acted(entry)

    facts = {"ARBITER_SERVICE": own.service, "ARBITER_INSTANCE": own.instance}
    act = action(config.action, leave, environ=os.environ, facts=facts)
    directory = config.state_directory
    built = Actuator(
        name,
        act,
        wall=time.time,
        on_result=observe,
        asked=AskedFile(path_of(directory, own.app).with_suffix(".asked")) if directory else None,
        jitter=random.random,
        missing=lambda: missing(name, os.environ),
        on_missing=logger.warning,
    )
    observers.steps.append(built.notice)
    return built


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
    """The action of the settings. A command gets ``facts`` in its environment."""
    if config.action == "exit":
        return partial(_leave, leave)
    if config.action == "command":
        # The time of the action ends the program first, so that its result says what the program printed.
        return CommandAction(shlex.split(config.action_command), TIMEOUT_S * 0.9, facts)
    return nomad_action(config.action, config.nomad_task, environ)


async def _leave(leave: Callable[[], None]) -> str:
    leave()
    return "the sidecar leaves"
