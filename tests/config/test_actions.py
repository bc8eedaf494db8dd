"""Settings of actions, of the port of the app, and of the local listener that cannot work are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.config.load import SettingsError, load

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"action": "command"}, "ARBITER_ACTION_COMMAND: missing"),
        (
            {"action": "command", "action_command": "no-such-program now"},
            "no-such-program is no program that can be run",
        ),
        ({"action": "command", "action_command": "'open"}, "ARBITER_ACTION_COMMAND: cannot be read"),
        ({"action": "nomad-restart"}, "ARBITER_NOMAD_TASK: missing"),
        ({"action": "exit", "run_lock": "/tmp"}, "ARBITER_ACTION: exit does not go with ARBITER_RUN_LOCK"),
        ({"action": "reboot"}, "ARBITER_ACTION"),
        *(({"app_port": port}, "ARBITER_APP_PORT") for port in ("0", "70000", "app", "-1", "1.2.3.4.5:80")),
        ({"local_listen": "0.0.0.0:9180"}, "ARBITER_LOCAL_LISTEN"),
    ],
)
def test_setting_that_cannot_work_is_refused_by_name(flags: Mapping[str, str], problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(flags, {})
    assert any(problem in told for told in refused.value.problems), refused.value.problems
