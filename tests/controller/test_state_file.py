"""What the early answer to a health check reads of the state file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.controller import state_file


@pytest.mark.parametrize(
    ("content", "has_latch"),
    [(None, False), ({"latch": None}, False), ({"latch": {"claim_id": "web/a/1"}}, True)],
    ids=["no file", "no latch", "latch"],
)
def test_latch_is_found_only_in_a_file_that_has_one(
    tmp_path: Path, content: dict[str, object] | None, *, has_latch: bool
) -> None:
    path = state_file.path_of(str(tmp_path), "web/a")
    if content is not None:
        path.write_text(json.dumps(content))
    assert state_file.has_latch(path) is has_latch
