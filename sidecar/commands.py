"""The commands of an engineer: ``hold``, ``release`` and ``fleet``, asked of the sidecar on this machine.

They take its way to the bucket, so that they need no secret on the command line and work with every kind of Redis.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import urlencode

from sidecar import asking, fleet_table
from sidecar.settings import Settings, load
from sidecar.terminal import complain, say

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SIDECAR: Final = os.EX_UNAVAILABLE

_OK: Final = 200
_REFUSED: Final = range(400, 500)
_WHERE: Final = ("config", "local_listen", "socket")
_CODES: Final = f"""\
The exit code is 0; {EXIT_FAILED} when the shared bucket could not be told or asked; {EXIT_USAGE} for a command that
cannot be understood; {EXIT_NO_SIDECAR} when no sidecar answers on this machine. Its address comes from the same
settings as its own, ARBITER_SOCKET and ARBITER_LOCAL_LISTEN."""
_HOLD: Final = "Nobody of the service, or not this instance, is culled for that time; health answers stay as they are."
_RELEASE: Final = (
    "End a hold. For the service it also clears what was learned of culls that do not help: a closed brake, and kinds "
    "that had become useless."
)
_FLEET: Final = "Show the fleet as the shared bucket knows it."


class UsageError(Exception):
    """The command line cannot be read."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``hold``, ``release`` or ``fleet``, and return the exit code. Raises UsageError and SettingsError."""
    name, *rest = arguments
    prepare, command = _COMMANDS[name]
    given, stray = prepare(f"health-arbiter {name}").parse_known_args(rest)
    if stray:
        flag = stray[0].partition("=")[0] if stray[0].startswith("--") else "a word that is no flag"
        raise UsageError(f"{flag}: {name} does not take it, see health-arbiter {name} --help")
    flags = {key: value for key in _WHERE if (value := getattr(given, key)) is not None}
    try:
        return command(given, load(flags, environ))
    except asking.NoSidecarError as error:
        complain(str(error))
        return EXIT_NO_SIDECAR


# -- hold -------------------------------------------------------------------------------------------------------


def _hold_parser(program: str) -> argparse.ArgumentParser:
    parser = _parser(program, _HOLD)
    parser.add_argument("--for", dest="duration", metavar="1h", required=True, help="how long: 1s to 168h")
    parser.add_argument("--reason", required=True, help="why, in one line; it is shown with every refusal")
    parser.add_argument("--author", default=None, help="who; by default the login name")
    _add_scope(parser)
    return parser


def _hold(given: argparse.Namespace, settings: Settings) -> int:
    order = {"for": given.duration, "reason": given.reason, "author": given.author or _login(), **_scope(given)}
    reply = asking.ask(settings, "POST", "/hold", order)
    if reply.status != _OK:
        return _refused(reply, f"whether {_whom(given.instance)} is held is not known")
    held = reply.value["hold"]
    is_known = reply.value["stored"] or reply.value["error"] == asking.ALONE
    say(f"{'held' if is_known else 'held here'}: {fleet_table.hold_line(held, time.time())}")
    if given.instance and _is_unheard_of(given.instance, settings):
        complain(f"no such container has been heard of: {given.instance}")
    if is_known:
        return 0
    elsewhere = "" if held["instance"] else "; the rest of the service may not be, so ask again or hold each of them"
    complain(f"{reply.value['sentence']}: this container alone is held, until its sidecar ends{elsewhere}")
    return EXIT_FAILED


def _is_unheard_of(instance: str, settings: Settings) -> bool:
    """Whether the whole fleet is known, and this one is not of it."""
    try:
        seen = asking.ask(settings, "GET", "/fleet").value
    except asking.NoSidecarError:
        return False
    known = [member["instance"] for member in seen.get("members", ())]
    return bool(known) and instance not in known and seen["fleet"]["alive"] + seen["fleet"]["down"] <= len(known)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"user {os.getuid()}"  # a container knows few of its users by name


# -- release ----------------------------------------------------------------------------------------------------


def _release_parser(program: str) -> argparse.ArgumentParser:
    parser = _parser(program, _RELEASE)
    _add_scope(parser)
    return parser


def _release(given: argparse.Namespace, settings: Settings) -> int:
    reply = asking.ask(settings, "DELETE", f"/hold?{urlencode(_scope(given))}")
    if reply.status != _OK:
        return _refused(reply, f"whether {_whom(given.instance)} is still held is not known")
    whom = _whom(reply.value["instance"] or None)
    is_known = reply.value.get("error", asking.ALONE) == asking.ALONE
    here = "" if is_known else " here"
    say(f"{whom} is released{here}" if reply.value["released"] else f"{whom} was not held{here}")
    if is_known:
        return 0
    complain(f"{reply.value['sentence']}: a hold in the shared bucket may go on")
    return EXIT_FAILED


# -- fleet ------------------------------------------------------------------------------------------------------


def _fleet_parser(program: str) -> argparse.ArgumentParser:
    parser = _parser(program, _FLEET)
    parser.add_argument("--json", action="store_true", help="as JSON, with everything that is known")
    return parser


def _fleet(given: argparse.Namespace, settings: Settings) -> int:
    reply = asking.ask(settings, "GET", "/fleet")
    if "fleet" not in reply.value:
        return _refused(reply, "nothing is known of the fleet")
    if given.json:
        say(json.dumps(reply.value, indent=2))
    else:
        say("\n".join(fleet_table.lines(reply.value, time.time())))
    if reply.status == _OK:
        return 0
    complain(f"{reply.value['sentence']}: that is what this sidecar heard last")
    return EXIT_FAILED


# -- all of them ------------------------------------------------------------------------------------------------


def _parser(program: str, description: str) -> argparse.ArgumentParser:
    parser = _Parser(
        program,
        description=description,
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name in _WHERE:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, dest=name, metavar="VALUE", help=f"as ARBITER_{name.upper()}")
    return parser


def _add_scope(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--service", action="store_true", help="the whole service, which is the default")
    scope.add_argument("--instance", nargs="?", const="", metavar="ID", help="one container, by default this one")


def _scope(given: argparse.Namespace) -> dict[str, str]:
    if given.instance is None:
        return {"scope": "service"}
    return {"scope": "instance", **({"instance": given.instance} if given.instance else {})}


def _whom(instance: str | None) -> str:
    """In words, ``""`` being the container of the sidecar: only that knows its name."""
    if instance is None:
        return "the service"
    return f"instance {instance}" if instance else "this instance"


def _refused(reply: asking.Reply, otherwise: str) -> int:
    """The door would not have it, or has no answer of the bucket."""
    if reply.status in _REFUSED:
        complain(str(reply.value.get("error")))
        return EXIT_USAGE
    complain(f"{reply.value.get('sentence', reply.value.get('error'))}: {otherwise}")
    return EXIT_FAILED


_Command = tuple[Callable[[str], argparse.ArgumentParser], Callable[[argparse.Namespace, Any], int]]
_COMMANDS: Final[dict[str, _Command]] = {
    "hold": (_hold_parser, _hold),
    "release": (_release_parser, _release),
    "fleet": (_fleet_parser, _fleet),
}
