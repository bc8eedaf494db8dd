"""``hold`` and ``release``: what a person forbids, and allows again."""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import urlencode

import click

from sidecar.cli import fleet_table, local_api
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.parameters import OK, Command, author_option, json_option, login, refused, settings, show, where
from sidecar.cli.terminal import complain, say
from sidecar.config.settings import Settings

INSTANCE: Final = click.option(
    "--instance", is_flag=False, flag_value="", default=None, metavar="[ID]", help="One container, by default this one."
)
SERVICE: Final = click.option("--service", is_flag=True, help="The whole service, which is the default.")


@click.command(cls=Command)
@click.option("--for", "duration", required=True, metavar="1h", help="How long: 1s to 168h.")
@click.option("--reason", required=True, help="Why, in one line; it is shown with every refusal.")
@author_option
@SERVICE
@INSTANCE
@json_option
@where
@click.pass_context
def hold(ctx: click.Context, /, *, author: str | None, as_json: bool, **order: Any) -> int:
    """Freeze culls: nobody of the service, or not this instance, is culled for that time.

    Health answers stay as they are.
    """
    scope = _scope(order["service"], order["instance"])
    asked = {"for": order["duration"], "reason": order["reason"], "author": author or login(), **scope}
    effective = settings(ctx)
    reply = local_api.ask(effective, "POST", "/hold", asked)
    if reply.status != OK:
        return refused(reply, f"whether {_whom(order['instance'])} is held is not known")
    return _held(reply.value, order["instance"], effective, as_json=as_json)


def _held(told: dict[str, Any], instance: str | None, effective: Settings, *, as_json: bool) -> int:
    held = told["hold"]
    is_known = told["stored"] or told["error"] == local_api.ALONE
    if as_json:
        show(told)
    else:
        say(f"{'held' if is_known else 'held here'}: {fleet_table.hold_line(held, time.time())}")
    if instance and _is_unheard_of(instance, effective):
        complain(f"no such container has been heard of: {instance}")
    if is_known:
        return 0
    elsewhere = "" if held["instance"] else "; the rest of the service may not be, so ask again or hold each of them"
    complain(f"{told['sentence']}: this container alone is held, until its sidecar ends{elsewhere}")
    return EXIT_FAILED


def _is_unheard_of(instance: str, effective: Settings) -> bool:
    """Whether the whole fleet is known, and this one is not of it."""
    try:
        seen = local_api.ask(effective, "GET", "/fleet").value
    except local_api.NoSidecarError:
        return False
    known = [member["instance"] for member in seen.get("members", ())]
    return bool(known) and instance not in known and seen["fleet"]["alive"] + seen["fleet"]["down"] <= len(known)


@click.command(cls=Command)
@author_option
@SERVICE
@INSTANCE
@json_option
@where
@click.pass_context
def release(ctx: click.Context, /, *, author: str | None, service: bool, instance: str | None, as_json: bool) -> int:
    """End a hold.

    For the service it also ends every pause: culls for a cause that were paused because the last one did not help are
    tried again at once, one at first.
    """
    query = urlencode({**_scope(service, instance), "author": author or login()})
    effective = settings(ctx)
    reply = local_api.ask(effective, "DELETE", f"/hold?{query}")
    if reply.status != OK:
        return refused(reply, f"whether {_whom(instance)} is still held is not known")
    whom = _whom(reply.value["instance"] or None)
    is_known = reply.value.get("error", local_api.ALONE) == local_api.ALONE
    if as_json:
        show(reply.value)
    else:
        done = "is released" if reply.value["released"] else "was not held"
        say(f"{whom} {done}{_next(reply.value, effective) if is_known else ' here'}")
    if is_known:
        return 0
    complain(f"{reply.value['sentence']}: a hold in the shared bucket may go on")
    return EXIT_FAILED


def _next(told: dict[str, Any], effective: Settings) -> str:
    """What comes of it, and not at once. A service that nobody held may have had causes whose culls were paused."""
    if told["instance"] and not told["released"]:
        return ""
    within_s = effective.check_interval * (1 + effective.check_jitter)
    return f"; a suspect asks again within {fleet_table.span(within_s)}"


def _scope(service: bool, instance: str | None) -> dict[str, str]:  # noqa: FBT001 - a flag of the command line
    if instance is None:
        return {"scope": "service"}
    if service:
        raise click.UsageError("--service: not allowed with --instance")
    return {"scope": "instance", **({"instance": instance} if instance else {})}


def _whom(instance: str | None) -> str:
    """In words, ``""`` being the container of the sidecar: only that knows its name."""
    if instance is None:
        return "the service"
    return f"instance {instance}" if instance else "this instance"
