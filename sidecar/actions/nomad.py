"""Actions over Nomad's task API: the app's task is restarted, or the whole allocation is stopped and replaced.

The API listens at the unix socket ``api.sock`` in the secrets directory of each task, and takes the task's identity as
a token (Nomad's documentation: "Task API", "Workload Identity"). The identity needs a policy with ``alloc-lifecycle``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.actions.actuator import Action, ActionError, RefusedError, UnreadError
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MOST_SHOWN: Final = 200
"""Number of characters of an error of Nomad that are shown."""

TOKEN_LIMIT: Final = 64 * 1024
"""Maximum number of characters of the token. Nomad's have about 1,000."""

_VARIABLES: Final = ("NOMAD_SECRETS_DIR", "NOMAD_ALLOC_ID")
_SOCKET: Final = "api.sock"
_TOKEN: Final = "nomad_token"  # noqa: S105 - the name of its file

_OK: Final = 200
_REFUSALS: Final = {401, 403, 404, 429}
_UNREAD: Final = "Server error authenticating request"
"""Nomad's answer while no server leads, before it looks at what is asked (command/agent/http.go)."""


def nomad_action(action: str, task: str, environ: Mapping[str, str]) -> Action:
    """The action of this name. Without its variables it fails when it is needed, not at the start.

    A sidecar that does not start would be restarted for ever, and the app with it.
    """
    if sentence := _unset(environ):
        return partial(_fail, sentence)
    secrets, allocation = (environ[name] for name in _VARIABLES)
    api = TaskApi(f"{secrets}/{_SOCKET}", f"{secrets}/{_TOKEN}", allocation)
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


class TaskApi(NamedTuple):
    """Where the API is and what it is asked for. ``token_file`` is read for each request: Nomad renews the token."""

    socket: str
    token_file: str
    allocation: str

    async def restart_task(self, task: str) -> str:
        """Restart one task of this allocation in place; ActionError if Nomad does not."""
        await self._request(f"/v1/client/allocation/{self.allocation}/restart", {"TaskName": task})
        return f"Nomad restarts the task {task}"

    async def stop_allocation(self) -> str:
        """Stop this allocation, which Nomad then replaces; ActionError if Nomad does not.

        The drain is over, so Nomad need not wait for the app's ``shutdown_delay``. The token ends with the allocation:
        there is no second request.
        """
        await self._request(f"/v1/allocation/{self.allocation}/stop?no_shutdown_delay=true", None)
        return "Nomad stops the allocation and replaces it"

    async def _request(self, path: str, body: dict[str, Any] | None) -> None:
        """Send this request once. UnreadError or RefusedError if it was surely not carried out."""
        # Once in the life of a container.
        from aiohttp import ClientConnectorError, ClientError, ClientSession, UnixConnector  # noqa: PLC0415

        try:
            token = await in_thread(_token, self.token_file)
        except (OSError, ValueError) as error:
            raise UnreadError(_cannot_be_asked(error)) from None
        try:
            async with (
                ClientSession(connector=UnixConnector(self.socket)) as session,
                session.post(
                    f"http://nomad{path}", json=body, headers={"X-Nomad-Token": token}, allow_redirects=False
                ) as response,
            ):
                if response.status != _OK:
                    raise _refusal(response.status, await _shown(response, token))
        except ClientConnectorError as error:
            raise UnreadError(_cannot_be_asked(error)) from None
        except (OSError, ValueError, ClientError) as error:
            raise ActionError(_cannot_be_asked(error)) from None


def _refusal(status: int, shown: str) -> ActionError:
    sentence = f"Nomad answered {status}: {shown}"
    if shown == _UNREAD:
        return UnreadError(sentence)
    return RefusedError(sentence) if status in _REFUSALS else ActionError(sentence)


def _cannot_be_asked(error: Exception) -> str:
    return f"Nomad's task API cannot be asked: {type(error).__name__}: {error}"


def _token(path: str) -> str:
    """The token in the file. Raises OSError or ValueError."""
    with Path(path).open() as file:
        text = file.read(TOKEN_LIMIT + 1)
    if len(text) > TOKEN_LIMIT:
        raise ValueError(f"the token has more than {TOKEN_LIMIT} characters")
    return text.strip()


async def _shown(response: ClientResponse, token: str) -> str:
    """The beginning of an error, without the token and on one line."""
    text = (await response.content.read(MOST_SHOWN * 4)).decode(errors="replace")
    return " ".join(text.replace(token, "...").split())[:MOST_SHOWN] if token else "no token"
