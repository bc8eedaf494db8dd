"""``cull`` and ``revive``: what a person may order of the container beside this sidecar."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from sidecar.cli import local_api
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.parameters import Command, author_option, json_option, login, refused, settings, show, where
from sidecar.cli.terminal import complain, plain, say

CULLED: Final = frozenset({"granted", "would_cull"})
"""What the sidecar answers when a token was granted."""

reason_option: Final = click.option("--reason", default=None, help="Why, in one line; it is kept in the ledger.")


@click.command(cls=Command)
@reason_option
@author_option
@click.option("--yes", is_flag=True, help="Do not ask first.")
@json_option
@where
@click.pass_context
def cull(ctx: click.Context, /, *, reason: str | None, author: str | None, yes: bool, as_json: bool) -> int:
    """Cull the container beside this sidecar: drain it, and have it replaced.

    It takes a token like any other cull, and the gates of the fleet apply: hold, memory, floor, spacing, budget; the
    trial does not. The exit code is 1 when the answer is no, which is told with its reason.
    """
    effective = settings(ctx)
    if not yes and not _is_meant(local_api.ask(effective, "GET", "/why").value):
        return EXIT_FAILED
    return _ordered(local_api.ask(effective, "POST", "/cull", _order(reason, author)), as_json=as_json)


@click.command(cls=Command)
@reason_option
@author_option
@json_option
@where
@click.pass_context
def revive(ctx: click.Context, /, *, reason: str | None, author: str | None, as_json: bool) -> int:
    """Have the culled container beside this sidecar up again, with an empty window.

    Its token stays spent. The exit code is 1 when it was not down.
    """
    return _ordered(local_api.ask(settings(ctx), "POST", "/revive", _order(reason, author)), as_json=as_json)


def _is_meant(why: dict[str, Any]) -> bool:
    """Whether a person says yes; without one to ask, the order has to say so itself."""
    if not sys.stdin.isatty():
        raise click.UsageError("cull asks first, and nobody is there to answer: give --yes")
    who = plain(f"{why['service']}/{why['instance']}")
    say(f"{who} is {plain(why['state'])}: {plain(why['sentence'])}")
    return click.confirm(f"Cull {who} now?", default=False)


def _order(reason: str | None, author: str | None) -> dict[str, str]:
    return {"author": author or login(), **({} if reason is None else {"reason": reason})}


def _ordered(reply: local_api.Reply, *, as_json: bool) -> int:
    told = reply.value
    if "outcome" not in told:
        return refused(reply, "nothing was ordered")
    done = told["outcome"] in CULLED | {"revived", "already"}
    if as_json:
        show(told)
    else:
        say(plain(f"{told['outcome'].replace('_', ' ')}: instance {told['instance']}: {told['sentence']}"))
    if told["outcome"] == "pending":
        complain("look at health-arbiter why for what comes of it")
    return 0 if done else EXIT_FAILED
