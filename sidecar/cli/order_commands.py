"""The orders of an operator: ``hold`` and ``release`` of culls, ``cull`` and ``revive`` of one container."""

from __future__ import annotations

import sys
import time
from typing import Any, Final
from urllib.parse import urlencode

import click

from sidecar.cli.fleet_command import hold_line
from sidecar.cli.local_api import OK, Listener, Reply, ask, listener, refused, where
from sidecar.cli.options import Command, author_option, json_option, person, tell
from sidecar.cli.terminal import EXIT_FAILED, complain, plain
from sidecar.core.claims import ALONE

_INSTANCE: Final = click.option(
    "--instance",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[ID]",
    help="One container, without ID this one, instead of the whole service.",
)
_REASON: Final = click.option("--reason", default=None, help="Why, in one line; it is kept in the ledger.")

_DONE: Final = frozenset({"granted", "would_cull", "revived", "already"})
"""Outcomes of an order that is carried out."""


# -- hold and release -------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.option("--for", "duration", required=True, metavar="1h", help="How long: 1s to 168h.")
@click.option("--reason", required=True, help="Why, in one line; it is shown with every refusal.")
@author_option
@_INSTANCE
@json_option
@where
@click.pass_context
def hold(ctx: click.Context, /, *, author: str | None, as_json: bool, **order: Any) -> int:
    """Freeze culls, of the whole service or of one container.

    Health answers stay as they are. The author is whom others ask.
    """
    instance = order["instance"]
    scope = _scope(instance)
    asked = {"for": order["duration"], "reason": order["reason"], "author": author or person(), **scope}
    sidecar = listener(ctx)
    reply = ask(sidecar, "POST", "/hold", asked)
    if reply.status != OK:
        return refused(reply, f"whether {_in_words(instance)} is held is not known")
    answer, hold = reply.value, reply.value["hold"]
    is_known = answer["stored"] or answer["error"] == ALONE
    tell(answer, f"{'held' if is_known else 'held here'}: {hold_line(hold, time.time())}", as_json=as_json)
    if instance and _is_unknown(instance, sidecar):
        complain(f"the fleet does not know this container: {instance}")
    if is_known:
        return 0
    elsewhere = "" if hold["instance"] else "; the rest of the service may not be, so ask again or hold each of them"
    complain(f"{answer['sentence']}: this container alone is held, until its sidecar ends{elsewhere}")
    return EXIT_FAILED


def _is_unknown(instance: str, sidecar: Listener) -> bool:
    """Whether the sidecar knows the whole fleet, and this container is not part of it."""
    reply = ask(sidecar, "GET", "/fleet")
    if reply.status != OK:
        return False
    names, fleet = [member["instance"] for member in reply.value["members"]], reply.value["fleet"] or {}
    size = sum(fleet.get(name, 0) for name in ("alive", "draining", "down"))
    return instance not in names and size <= len(names)  # a long list is cut


@click.command(cls=Command)
@author_option
@_INSTANCE
@json_option
@where
@click.pass_context
def release(ctx: click.Context, /, *, author: str | None, instance: str | None, as_json: bool) -> int:
    """End a hold.

    For the service it also ends every pause: culls for a cause that were paused because the last one did not help are
    tried again at once, one at first.
    """
    query = urlencode({**_scope(instance), "author": author or person()})
    reply = ask(listener(ctx), "DELETE", f"/hold?{query}")
    answer = reply.value
    if reply.status != OK:
        return refused(reply, f"whether {_in_words(instance)} is still held is not known")
    is_known = answer.get("error", ALONE) == ALONE
    done = f"{_in_words(answer['instance'] or None)} {'is released' if answer['released'] else 'was not held'}"
    # A release of the service also ends pauses of culls.
    then = "; a suspect asks again at its next check" if answer["released"] or not answer["instance"] else ""
    tell(answer, f"{done}{then if is_known else ' here'}", as_json=as_json)
    if is_known:
        return 0
    complain(f"{answer['sentence']}: a hold in the shared store may go on")
    return EXIT_FAILED


def _scope(instance: str | None) -> dict[str, str]:
    if instance is None:
        return {"scope": "service"}
    return {"scope": "instance", **({"instance": instance} if instance else {})}


def _in_words(instance: str | None) -> str:
    """The scope in words; ``""`` is the container of the sidecar, whose name only the sidecar knows."""
    if instance is None:
        return "the service"
    return f"instance {instance}" if instance else "this instance"


# -- cull and revive --------------------------------------------------------------------------------------------


@click.command(cls=Command)
@_REASON
@author_option
@click.option("--yes", is_flag=True, help="Do not ask first.")
@json_option
@where
@click.pass_context
def cull(ctx: click.Context, /, *, reason: str | None, author: str | None, yes: bool, as_json: bool) -> int:
    """Drain the container here and have it replaced.

    It takes a token like any other cull, and the fleet may refuse it: for a hold, lost data, too few containers in
    service, the spacing or the budget. Only the limit on culls for one cause does not apply. The exit code is 1 when
    the answer is no, and the answer says why.
    """
    sidecar = listener(ctx)
    if not yes and not _is_confirmed(ask(sidecar, "GET", "/why").value):
        return EXIT_FAILED
    return _ordered(ask(sidecar, "POST", "/cull", _order(reason, author)), as_json=as_json)


@click.command(cls=Command)
@_REASON
@author_option
@json_option
@where
@click.pass_context
def revive(ctx: click.Context, /, *, reason: str | None, author: str | None, as_json: bool) -> int:
    """Take the culled container here back into service.

    It begins with an empty window. Its token stays spent. The exit code is 1 when it was not down.
    """
    return _ordered(ask(listener(ctx), "POST", "/revive", _order(reason, author)), as_json=as_json)


def _is_confirmed(why: dict[str, Any]) -> bool:
    """Ask the operator to confirm the cull. Raises UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError("cull asks first, and nobody is there to answer: give --yes")
    name = plain(f"{why['service']}/{why['instance']}")
    click.echo(f"{name} is {plain(why['state'])}: {plain(why['sentence'])}")
    return click.confirm(f"Cull {name} now?", default=False)


def _order(reason: str | None, author: str | None) -> dict[str, str]:
    return {"author": author or person(), **({} if reason is None else {"reason": reason})}


def _ordered(reply: Reply, *, as_json: bool) -> int:
    answer = reply.value
    if "outcome" not in answer:
        return refused(reply, "nothing was ordered")
    text = f"{answer['outcome'].replace('_', ' ')}: instance {answer['instance']}: {answer['sentence']}"
    tell(answer, plain(text), as_json=as_json)
    if answer["outcome"] == "pending":
        complain("health-arbiter why shows the result")
    return 0 if answer["outcome"] in _DONE else EXIT_FAILED
