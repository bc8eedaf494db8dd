"""All commands under one name, how what goes wrong is told, and the completion of a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from sidecar.cli import daemon_commands, fleet_commands, hold_commands, ledger_commands, local_api, override_commands
from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE
from sidecar.cli.parameters import Command
from sidecar.cli.terminal import complain, say
from sidecar.config.settings import SettingsError

PROGRAM: Final = "health-arbiter"
COMPLETE: Final = "_HEALTH_ARBITER_COMPLETE"
"""The variable by which a shell asks what could come next."""

SHELLS: Final = ("bash", "zsh", "fish")
_COMPLETION_CODES: Final = "Exit codes: 0 printed; 2 a shell that is not known."


@click.command(cls=Command, codes=_COMPLETION_CODES)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> int:
    """Print what makes a shell complete commands and flags.

    \b
    bash: eval "$(health-arbiter completion bash)"    in ~/.bashrc
    zsh:  eval "$(health-arbiter completion zsh)"     in ~/.zshrc
    fish: health-arbiter completion fish | source     in ~/.config/fish/config.fish
    """  # noqa: D301 - \b is how click is told to leave lines as they are
    known = get_completion_class(shell)
    if known is None:
        raise click.UsageError(f"SHELL: takes one of {', '.join(SHELLS)}")
    say(known(root, {}, PROGRAM, COMPLETE).source())
    return 0


root: Final = click.Group(
    PROGRAM,
    commands=[
        daemon_commands.run,
        daemon_commands.check_config,
        daemon_commands.doctor,
        daemon_commands.execute,
        hold_commands.hold,
        hold_commands.release,
        override_commands.cull,
        override_commands.revive,
        fleet_commands.fleet,
        fleet_commands.why,
        ledger_commands.events,
        ledger_commands.report,
        ledger_commands.message,
        completion,
    ],
)


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command and return its exit code; what goes wrong is one line each on standard error.

    It answers a shell that asks for completions instead, if ``COMPLETE`` says so.
    """
    try:
        code: Any = root.main(list(arguments), PROGRAM, COMPLETE, standalone_mode=False, obj=environ)
    except click.ClickException as error:
        complain(_said(error))
        return EXIT_USAGE
    except click.Abort:
        complain("left as it was")
        return EXIT_FAILED
    except SettingsError as error:
        for problem in error.problems:
            complain(problem)
        return EXIT_USAGE
    except local_api.NoSidecarError as error:
        complain(str(error))
        return EXIT_NO_SIDECAR
    return int(code or 0)


def _said(error: click.ClickException) -> str:
    """The sentence, beginning with the flag that it is about."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        path = error.ctx.command_path if error.ctx else PROGRAM
        return f"{_flag(error.param)}: is missing, see {path} --help"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_flag(error.param)}: {error.message}"
    if isinstance(error, click.BadOptionUsage):
        said = error.message.removeprefix(f"Option '{error.option_name}' ")
        return f"{error.option_name}: {said.rstrip('.')}"
    return error.message


def _flag(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else str(param.name).upper()
