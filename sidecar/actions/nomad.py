"""Actions over Nomad's task API: the app's task is restarted, or the whole allocation is stopped and replaced.

The API listens at the unix socket ``api.sock`` in the secrets directory of each task, and takes the task's identity as
a token (Nomad's documentation: "Task API", "Workload Identity"). The identity needs a policy with ``alloc-lifecycle``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.actions.actuator import ActionError
from sidecar.net.threads import in_thread

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MOST_SHOWN: Final = 200
"""Number of characters of an error of Nomad that are shown."""

_OK: Final = 200


class TaskApi(NamedTuple):
    """Where the API is and what it is asked for. ``token_file`` is read for each request: Nomad renews the token."""

    socket: str
    token_file: str
    allocation: str

    async def restart_task(self, task: str) -> str:
        """Restart one task of this allocation in place; ActionError if Nomad refuses."""
        await self._ask(f"/v1/client/allocation/{self.allocation}/restart", {"TaskName": task})
        return f"Nomad restarts the task {task}"

    async def stop_allocation(self) -> str:
        """Stop this allocation, which Nomad then replaces; ActionError if Nomad refuses.

        The token ends with the allocation: there is no second request.
        """
        await self._ask(f"/v1/allocation/{self.allocation}/stop", None)
        return "Nomad stops the allocation and replaces it"

    async def _ask(self, path: str, body: dict[str, Any] | None) -> None:
        from aiohttp import ClientError, ClientSession, UnixConnector  # noqa: PLC0415 - once in the life of a container

        try:
            token = await in_thread(Path(self.token_file).read_text)
            token = token.strip()
            async with (
                ClientSession(connector=UnixConnector(self.socket)) as session,
                session.post(f"http://nomad{path}", json=body, headers={"X-Nomad-Token": token}) as response,
            ):
                if response.status != _OK:
                    raise ActionError(f"Nomad answered {response.status}: {await _shown(response, token)}")
        except (OSError, ValueError, ClientError) as error:
            raise ActionError(f"Nomad's task API cannot be asked: {type(error).__name__}: {error}") from None


async def _shown(response: ClientResponse, token: str) -> str:
    """The beginning of an error, without the token and on one line."""
    text = (await response.content.read(MOST_SHOWN * 4)).decode(errors="replace")
    return " ".join(text.replace(token, "...").split())[:MOST_SHOWN] if token else "no token"
