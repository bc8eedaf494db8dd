"""The one command-line application: the list of commands, how an error is printed, and shell completion."""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from sidecar.cli.options import CONTEXT, Invocation, version_option
from sidecar.cli.terminal import COMPLETE, EXIT_FAILED, EXIT_USAGE, PROGRAM, cause, complain

COMMANDS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "The sidecar": {
        "run": ("settings_commands", "Run the sidecar beside one container."),
        "check-config": ("settings_commands", "Print the effective settings and their origins."),
        "doctor": ("doctor.command", "Find problems in Redis, in the sidecar here and around it."),
    },
    "See what happens": {
        "fleet": ("fleet_command", "Show the fleet, the containers that need attention first."),
        "why": ("why_commands", "Explain the state of the container here, or of another."),
        "events": ("events_command", "Print what happened to the service, from its ledger."),
        "report": ("report_command", "Sum up what happened to the service."),
        "watch": ("why_commands", "Show the app's errors as they come, until Ctrl-C."),
    },
    "Give orders": {
        "hold": ("order_commands", "Freeze culls, of the whole service or of one container."),
        "release": ("order_commands", "End a hold."),
        "cull": ("order_commands", "Drain the container here and have it replaced."),
        "revive": ("order_commands", "Take the culled container here back into service."),
    },
    "Tools": {
        "backtest": ("backtest_command", "Count the errors of your own past, and say which limit to set."),
        "exec": ("application", "Run a command under a lock, with a planned end and standbys."),
        "message": ("settings_commands", "Send a test message to the webhook."),
    },
}
"""Heading -> command -> its module, which is imported when the command runs, and its sentence in the list."""

_MODULES: Final = {name: module for commands in COMMANDS.values() for name, (module, _) in commands.items()}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return [*_MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"sidecar.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _MODULES or ctx.resilient_parsing:  # as for a completion
            return super().resolve_command(ctx, args)
        # The message does not repeat the word: it may be a password in the wrong place.
        similar = difflib.get_close_matches(args[0], _MODULES, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"{PROGRAM} --help lists them"
        raise click.UsageError(f"the first word is no command; {hint}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, sentence) for name, (_, sentence) in commands.items()])
        click.Command.format_options(self, ctx, formatter)


exec = click.Command("exec")  # noqa: A001 - ``cli.main`` runs it without click; here it is known to completion


@click.group(
    cls=_Commands,
    context_settings=CONTEXT,
    invoke_without_command=True,
    epilog=f"Each command explains itself, as with\n\n{PROGRAM} hold --help",
)
@version_option
@click.pass_context
def root(ctx: click.Context, /) -> None:
    """Run the sidecar beside one container, or ask it and its fleet."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(EXIT_USAGE)  # a unit or an image that forgot `run` does not look as if it had ended well


def run(
    arguments: Sequence[str], environ: Mapping[str, str], serve: Callable[[dict[str, Any]], int] | None = None
) -> int:
    """Run a command and return its exit code; every problem is one line on standard error.

    ``run`` calls ``serve`` with its settings. A shell that asks for completions (``COMPLETE``) gets them instead.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    try:
        code = root.main(
            list(arguments),
            PROGRAM,
            COMPLETE,
            standalone_mode=False,
            obj=Invocation(environ, serve),
            color=False if environ.get("NO_COLOR") else None,
        )
    except click.Abort:
        complain("nothing was changed")
        return EXIT_FAILED
    except click.ClickException as error:
        for line in _sentence(error).splitlines():
            complain(line)
        return error.exit_code
    except OSError as error:  # such as a full disk behind the output; commands handle most others
        complain(f"failed: {cause(error)}")
        return EXIT_FAILED
    return int(code or 0)


def _sentence(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):  # in front of the command; its text may be a password in the wrong place
        return f"options come behind a command, as in {PROGRAM} run --error-limit 5"
    return error.format_message()
