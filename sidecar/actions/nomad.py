"""Actions over Nomad's task API: the app's task is restarted, or the whole allocation is stopped and replaced.

The API listens at the unix socket ``api.sock`` in the secrets directory of each task, and takes the task's identity as
a token (Nomad's documentation: "Task API", "Workload Identity"). The identity needs a policy with ``alloc-lifecycle``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.actions.actuator import Action, ActionError
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MOST_SHOWN: Final = 200
"""Number of characters of an error of Nomad that are shown."""

TOKEN_LIMIT: Final = 64 * 1024
"""Maximum number of characters of the token. Nomad's have about 1,000."""

RETRY_S: Final = 0.5

_VARIABLES: Final = ("NOMAD_SECRETS_DIR", "NOMAD_ALLOC_ID")
_SOCKET: Final = "api.sock"
_TOKEN: Final = "nomad_token"  # noqa: S105 - the name of its file

_OK: Final = 200
_UNREAD: Final = "Server error authenticating request"
"""Nomad's answer while no server leads, before it looks at what is asked (command/agent/http.go)."""


def nomad_action(action: str, task: str, environ: Mapping[str, str], *, patience_s: float) -> Action:
    """The action of this name. Without its variables it fails when it is needed, not at the start.

    A sidecar that does not start would be restarted for ever, and the app with it.
    """
    if sentence := _unset(environ):
        return partial(_fail, sentence)
    secrets, allocation = (environ[name] for name in _VARIABLES)
    api = TaskApi(f"{secrets}/{_SOCKET}", f"{secrets}/{_TOKEN}", allocation, patience_s)
    return partial(api.restart_task, task) if action == "nomad-restart" else api.stop_allocation


def missing(action: str, environ: Mapping[str, str]) -> list[str]:
    """What ``action`` lacks on this machine, in sentences for a person. Reads the disk."""
    named = f"ARBITER_ACTION {action}"
    if action == "exit" and environ.get("NOMAD_ALLOC_ID"):
        return [f"{named}: Nomad restarts the sidecar alone, and a culled app goes on"]
    if not action.startswith("nomad-"):
        return []
    if sentence := _unset(environ):
        return [f"{named}: {sentence}"]
    secrets = Path(environ["NOMAD_SECRETS_DIR"])
    wanted = {
        secrets / _SOCKET: "the task API is missing: it needs Nomad 1.5 or newer",
        secrets / _TOKEN: "the token of the task is missing: write identity { file = true } into the sidecar's task",
    }
    return [f"{named}: {sentence} ({path})" for path, sentence in wanted.items() if not os.access(path, os.R_OK)]


def _unset(environ: Mapping[str, str]) -> str:
    names = " and ".join(name for name in _VARIABLES if not environ.get(name))
    return f"{names} not set: this is no allocation of Nomad" if names else ""


async def _fail(sentence: str) -> str:
    raise ActionError(sentence)


class _UnreadError(ActionError):
    """Nomad has not looked at the request."""


class TaskApi(NamedTuple):
    """Where the API is and what it is asked for. ``token_file`` is read for each request: Nomad renews the token.

    ``patience_s``: time in which it asks again while Nomad does not look at the request: its agent restarts, or no
    server leads.
    """

    socket: str
    token_file: str
    allocation: str
    patience_s: float

    async def restart_task(self, task: str) -> str:
        """Restart one task of this allocation in place; ActionError if Nomad refuses."""
        await self._ask(f"/v1/client/allocation/{self.allocation}/restart", {"TaskName": task})
        return f"Nomad restarts the task {task}"

    async def stop_allocation(self) -> str:
        """Stop this allocation, which Nomad then replaces; ActionError if Nomad refuses.

        The drain is over, so Nomad need not wait for the app's ``shutdown_delay``. The token ends with the allocation:
        there is no second request.
        """
        await self._ask(f"/v1/allocation/{self.allocation}/stop?no_shutdown_delay=true", None)
        return "Nomad stops the allocation and replaces it"

    async def _ask(self, path: str, body: dict[str, Any] | None) -> None:
        """Have Nomad look at this request once."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.patience_s
        while True:
            try:
                return await self._request(path, body)
            except _UnreadError:
                if loop.time() + RETRY_S > ends_at:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _request(self, path: str, body: dict[str, Any] | None) -> None:
        # Once in the life of a container.
        from aiohttp import ClientConnectorError, ClientError, ClientSession, UnixConnector  # noqa: PLC0415

        try:
            token = await in_thread(_token, self.token_file)
            async with (
                ClientSession(connector=UnixConnector(self.socket)) as session,
                session.post(
                    f"http://nomad{path}", json=body, headers={"X-Nomad-Token": token}, allow_redirects=False
                ) as response,
            ):
                if response.status != _OK:
                    shown = await _shown(response, token)
                    raise _error(f"Nomad answered {response.status}: {shown}", is_unread=shown == _UNREAD)
        except (OSError, ValueError, ClientError) as error:
            sentence = f"Nomad's task API cannot be asked: {type(error).__name__}: {error}"
            raise _error(sentence, is_unread=isinstance(error, ClientConnectorError)) from None


def _token(path: str) -> str:
    """The token in the file. Raises OSError or ValueError."""
    with Path(path).open() as file:
        text = file.read(TOKEN_LIMIT + 1)
    if len(text) > TOKEN_LIMIT:
        raise ValueError(f"the token has more than {TOKEN_LIMIT} characters")
    return text.strip()


def _error(sentence: str, *, is_unread: bool) -> ActionError:
    return (_UnreadError if is_unread else ActionError)(sentence)


async def _shown(response: ClientResponse, token: str) -> str:
    """The beginning of an error, without the token and on one line."""
    text = (await response.content.read(MOST_SHOWN * 4)).decode(errors="replace")
    return " ".join(text.replace(token, "...").split())[:MOST_SHOWN] if token else "no token"
