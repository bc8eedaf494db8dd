"""An action that runs a command of the operator, such as ``systemctl restart app``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sidecar.actions import program
from sidecar.actions.actuator import ActionError


class CommandAction:
    """Runs ``words`` without a shell, with ``env``, and kills it after ``timeout_s`` seconds."""

    def __init__(self, words: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> None:
        self._words = words
        self._timeout_s = timeout_s
        self._env = env

    async def __call__(self) -> str:
        """Run it; ActionError if it cannot be run, ends with an exit code other than 0, or takes longer."""
        try:
            ended = await program.run("the command", self._words, self._timeout_s, self._env)
        except (OSError, ValueError) as error:
            raise ActionError(f"the command could not be run: {error}") from None
        if ended.code or ended.is_late:
            raise ActionError(ended.text)
        return ended.text
