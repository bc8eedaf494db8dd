from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.reports import LEVELS, errors
from sidecar.core.app_reports import ErrorLevel
from sidecar.inputs.report_bodies import read_errors

TEXTS = st.none() | st.text(max_size=100)


@pytest.mark.parametrize(
    ("kind", "fingerprint", "app_start", "fatal", "tags"),
    [
        (None, None, None, False, {}),
        ("", "", "", False, {}),
        (
            *("redis", "KeyError@cart:<module>:12", "7+1", True),
            {"kind": "redis", "fingerprint": "KeyError@cart:<module>:12", "app_start": "7+1", "fatal": True},
        ),
        ("a,b|c #d\n\u00e9", "a b,c\n", None, False, {"kind": "a_b_c__d__", "fingerprint": "a_b,c_"}),
        ("k" * 80, "f" * 80, "s" * 80, False, {"kind": "k" * 64, "fingerprint": "f" * 64, "app_start": "s" * 64}),
    ],
    ids=["least", "empty is absent", "all", "odd", "long"],
)
def test_fields_are_those_that_the_listener_takes(
    kind: str | None, fingerprint: str | None, app_start: str | None, tags: dict[str, object], *, fatal: bool
) -> None:
    series = errors("recovered", kind, fingerprint, app_start, fatal=fatal)
    assert (series.path, series.field, dict(series.tags)) == ("/errors", "count", {"level": "recovered", **tags})


@given(kind=TEXTS, fingerprint=TEXTS, app_start=TEXTS)
def test_listener_reads_every_error(kind: str | None, fingerprint: str | None, app_start: str | None) -> None:
    series = errors("server_error", kind, fingerprint, app_start)
    assert read_errors(json.dumps({series.field: 3, **dict(series.tags)}).encode())[0].errors == 3


@pytest.mark.parametrize("level", ["error", "", "SERVER_ERROR"])
def test_unknown_level_is_refused(level: str) -> None:
    with pytest.raises(ValueError, match="level: takes one of"):
        errors(level, None, None, None)
    assert {level.value for level in ErrorLevel} == LEVELS


def test_folded_series_keeps_the_decisive_tags_and_folds_no_further() -> None:
    folded = errors("server_error", "redis", "f", "7", fatal=True).folded
    assert folded is not None
    assert dict(folded.tags) == {"level": "server_error", "kind": "other", "fatal": True, "app_start": "7"}
    assert folded.folded is None
