"""Values that a shell can complete: the containers of the fleet."""

from __future__ import annotations

from typing import Any, Final

import click

LIMIT_S: Final = 2.0
"""Time that a person waits for a completion, in seconds."""


def instances(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The names of containers that begin so; none if no sidecar answers."""
    from sidecar.cli.local_api import ask  # noqa: PLC0415 - only when a shell asks
    from sidecar.cli.settings_options import config  # noqa: PLC0415 - as above

    try:
        with ctx.scope(cleanup=False):
            seen: dict[str, Any] = ask(config(ctx), "GET", "/fleet", timeout_s=LIMIT_S).value
    except click.ClickException:
        return []
    names = {member["instance"] for member in (*seen.get("members", ()), *seen.get("departed", ()))}
    return sorted(name for name in {*names, seen.get("instance", "")} if name and name.startswith(incomplete))
