"""A job in JSON, as Nomad writes it: where it comes from, and files that are no job. The findings read the rest."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.doctor import job, job_findings
from sidecar.cli.doctor.job import JobError

GROUP: dict[str, Any] = {"Name": "web", "Tasks": [{"Name": "arbiter", "Env": None, "Services": None}], "Networks": None}


def test_what_a_job_leaves_out_is_the_default_of_nomad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"TaskGroups": [GROUP]})))
    said = [each.sentence for each in job_findings.of_job(job.read("-"))]
    for default in ("restart mode fail of arbiter", "kill_timeout 5 s of arbiter", "reschedule is slow or limited"):
        assert [sentence for sentence in said if default in sentence]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "[" * 100_000, '{"Job": []}', 'job "app" {\n}', "\ufffd"),
        json.dumps({"TaskGroups": [{**GROUP, "Tasks": 5}]}),
        json.dumps({"TaskGroups": [{**GROUP, "Tasks": ["a"]}]}),
        json.dumps({"TaskGroups": [{**GROUP, "RestartPolicy": {"Delay": "soon"}}]}),
    ],
    ids=lambda text: text[-20:],
)
def test_file_without_a_job_is_a_sentence_with_what_to_give(tmp_path: Path, text: str) -> None:
    (tmp_path / "job").write_text(text)
    with pytest.raises(JobError, match="--job: is not a job of Nomad in JSON: give the output of nomad job run"):
        list(job_findings.of_job(job.read(str(tmp_path / "job"))))


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read: no such file"):
        job.read(str(tmp_path / "none"))
