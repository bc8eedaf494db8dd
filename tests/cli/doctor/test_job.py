"""A job in JSON, as Nomad writes it: what it leaves out, where it comes from, and files that are no job.

The rest of it is read by the tests of the findings, and by that of the jobs that we ship.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest

from sidecar.cli.doctor import job
from sidecar.cli.doctor.job import Group, JobError, Restart, Task

NOTHING = (
    '{"TaskGroups": [{"Name": "web", "Tasks": [{"Name": "app", "Env": null, "Services": null}], "Networks": null}]}'
)
DEFAULTS = Group(
    name="web",
    tasks=(Task("app", {}, Restart(), False, 5.0, 0.0, "", ("",), (), 300, False),),  # noqa: FBT003 - Nomad's
    checks=(),
    network_mode="",
    ports={},
    tags=(),
    has_service=False,
    replaced_within_s=math.inf,
)


def test_what_a_job_leaves_out_is_the_default_of_nomad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(NOTHING))
    assert job.read("-") == [DEFAULTS]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "[" * 100_000, '{"Job": []}', 'job "app" {\n}', "\ufffd"),
        '{"Job": {"TaskGroups": [{"Tasks": 5, "Name": "x"}]}}',
        '{"Job": {"TaskGroups": [{"Name": "x", "Tasks": [], "RestartPolicy": {"Delay": "soon"}}]}}',
    ],
    ids=lambda text: text[:20],
)
def test_file_without_a_job_is_named_with_what_to_give(tmp_path: Path, text: str) -> None:
    (tmp_path / "job").write_text(text)
    with pytest.raises(JobError, match="job is not a job of Nomad in JSON: give the output of nomad job run"):
        job.read(str(tmp_path / "job"))


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read: no such file"):
        job.read(str(tmp_path / "none"))
