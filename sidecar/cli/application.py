"""The one command-line application: the list of commands, how an error is printed, and shell completion."""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from sidecar import __version__
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.parameters import CONTEXT, Command, Invocation, version_option
from sidecar.cli.terminal import COMPLETE, PROGRAM, cause, complain

if TYPE_CHECKING:
    from sidecar.config.settings_model import Settings

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "The sidecar": {
        "run": "daemon_commands",
        "check-config": "daemon_commands",
        "doctor": "daemon_commands",
    },
    "See what happens": {
        "fleet": "fleet_commands",
        "why": "fleet_commands",
        "events": "ledger_commands",
        "report": "ledger_commands",
        "watch": "watch_command",
    },
    "Give orders": {
        "hold": "order_commands",
        "release": "order_commands",
        "cull": "order_commands",
        "revive": "order_commands",
    },
    "Tools": {
        "simulate": "simulate_command",
        "backtest": "backtest_command",
        "exec": "exec_command",
        "message": "ledger_commands",
        "completion": "application",
        "help": "application",
        "version": "application",
    },
}
"""Heading -> command -> its module, loaded only for this command: ``exec`` has to start quickly."""

_MODULES: Final = {name: module for commands in COMMANDS.values() for name, module in commands.items()}
_NAMES: Final = {"help": "help_"}
"""Commands whose function cannot have their name."""

SHELLS: Final = ("bash", "zsh", "fish")


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return [*_MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"sidecar.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, _NAMES.get(cmd_name) or cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _MODULES:
            return super().resolve_command(ctx, args)
        # The message does not repeat the word: it may be a password in the wrong place.
        similar = difflib.get_close_matches(args[0], _MODULES, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"{PROGRAM} --help lists them"
        raise click.UsageError(f"the first word is no command; {hint}")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What could come first: a command, or an option, which is one of ``run``."""
        found = super().shell_complete(ctx, incomplete)
        sidecar = self.get_command(ctx, "run")
        if incomplete.startswith("-") and sidecar is not None:
            found += sidecar.shell_complete(click.Context(sidecar, ctx, "run"), incomplete)
        return [*{item.value: item for item in found}.values()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in COMMANDS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(70)) for name, command in commands if command])
        click.Command.format_options(self, ctx, formatter)


@click.group(
    cls=_Commands,
    context_settings=CONTEXT,
    epilog=f"Without a command it runs the sidecar. Each command explains itself, as with\n\n{PROGRAM} hold --help",
)
@version_option
def root() -> None:
    """Run the sidecar beside one container, or ask it and its fleet."""


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash: eval "$(health-arbiter completion bash)"    in ~/.bashrc
    zsh:  eval "$(health-arbiter completion zsh)"     in ~/.zshrc
    fish: health-arbiter completion fish | source     in ~/.config/fish/config.fish
    """  # noqa: D301 - \b makes click leave the lines as they are
    if known := get_completion_class(shell):
        click.echo(known(root, {}, PROGRAM, COMPLETE).source())
    return 0


@click.command("help", cls=Command)
@click.argument("command", required=False, type=click.Choice([*_MODULES]), metavar="[COMMAND]")
@click.pass_context
def help_(ctx: click.Context, /, *, command: str | None) -> int:
    """Explain the program, or one command."""
    found = root.get_command(ctx, command) if command else None
    above = ctx.find_root()
    click.echo((click.Context(found, above, command) if found else above).get_help())
    return 0


@click.command(cls=Command)
def version() -> int:
    """Print the version."""
    click.echo(f"{PROGRAM} {__version__}")
    return 0


def run(arguments: Sequence[str], environ: Mapping[str, str], serve: Callable[[Settings], int] | None = None) -> int:
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
    """The error as a sentence that begins with its option."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        path = error.ctx.command_path if error.ctx else PROGRAM
        return f"{_name(error.param)}: is missing, see {path} --help"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {error.message}"
    if isinstance(error, click.BadOptionUsage):
        said = error.message.removeprefix(f"Option '{error.option_name}' ")
        return f"{error.option_name}: {said.rstrip('.')}"
    return error.message


def _name(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else str(param.name).upper()
