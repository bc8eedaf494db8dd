"""``message``: whether messages about the service arrive."""

from __future__ import annotations

import asyncio

import click

from sidecar.app import build_optional
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.parameters import json_option, tell
from sidecar.cli.settings_options import SettingsCommand, config


@click.command(cls=SettingsCommand)
@json_option
@click.pass_context
def message(ctx: click.Context, /, *, as_json: bool) -> int:
    """Send a test message to the webhook.

    It prints the answer. The exit code is 1 when the webhook did not take it, 2 when the settings name none.
    """
    effective = config(ctx)
    if not effective.notify.has_webhook:
        raise click.UsageError("no webhook is set: ARBITER_WEBHOOK_URL or ARBITER_WEBHOOK_URL_FILE")
    outcome, is_sent = asyncio.run(build_optional.send_test_message(effective))
    tell({"outcome": outcome, "sent": is_sent}, outcome, as_json=as_json)
    return 0 if is_sent else EXIT_FAILED
