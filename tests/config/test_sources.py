from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from sidecar.config import sources
from sidecar.config.load import load
from sidecar.config.settings import setting_names
from sidecar.config.sources import FORMER

if TYPE_CHECKING:
    from pathlib import Path

NAMES = setting_names()


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("ARBITER_EROR_LIMIT", "ARBITER_ERROR_LIMIT"),
        ("ARBITER_REDIS_ULR", "ARBITER_REDIS_URL"),
        ("ARBITER_error_limit", "ARBITER_ERROR_LIMIT"),
        ("arbiter_error_limit", "ARBITER_ERROR_LIMIT"),
        ("ARBITER_CONFIG_FILE", "ARBITER_CONFIG"),
        ("ARBITER_XYZZY", ""),
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest_known_one(name: str, suggested: str) -> None:
    given = sources.read(NAMES, {}, {name: "hunter2", "ARBITERX": "1", "BUDGET": "3", "PATH": "/bin"})
    hint = f"; did you mean {suggested}?" if suggested else ""
    assert given.problems == [f"{name}: unknown setting{hint}"]
    assert given.merged().keys() == {"instance"}


@pytest.mark.parametrize("name", FORMER)
def test_setting_of_a_former_version_is_refused_with_its_new_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text(f"{name} = 0")
    old, in_file = f"ARBITER_{name.upper()}", "there is no such setting since 0.3: " + FORMER[name]
    sentence = re.sub(r"{(.*)}", lambda other: f"ARBITER_{other[1].upper()}", in_file)
    given = sources.read(NAMES, {"config": str(file)}, {old: "hunter2", old.lower(): ""})
    assert given.problems == [
        f"{old}: {sentence}",
        f"{old.lower()}: {sentence}",
        f"ARBITER_CONFIG: {file}: {name}: {re.sub('[{}]', '', in_file)}",
    ]
    assert {**given.merged(), "instance": ""} == {"config": str(file), "instance": ""}


def test_no_setting_has_a_former_name() -> None:
    assert {*FORMER}.isdisjoint(NAMES)
    assert {*re.findall(r"{(.*?)}", " ".join(FORMER.values()))} <= {*NAMES}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"eror_limit = 5", "unknown key eror_limit; did you mean error_limit?", id="misspelt"),
        pytest.param(b"ERROR_LIMIT = 5", "unknown key ERROR_LIMIT; did you mean error_limit?", id="upper case"),
        pytest.param(b"xyzzy = 5", "unknown key xyzzy", id="resembles nothing"),
        pytest.param(b"config = 'other.toml'", "unknown key config", id="a file cannot name another"),
        pytest.param(b"[redis]\nurl = 'redis://:hunter2@h'", "unknown key redis", id="table"),
        pytest.param(b"redis_url = 'redis://:hunter2@h\nx = 1", "is not TOML", id="unclosed string"),
        pytest.param(b"redis_url redis://:hunter2@h", "is not TOML", id="no equals sign"),
        pytest.param(b"redis_url = redis://:hunter2@h", "is not TOML", id="no quotes"),
        pytest.param(b"service = '\xff'", "is not UTF-8 text", id="not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_by_name(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_bytes(content)
    problems = sources.read(NAMES, {"config": str(file)}, {}).problems
    assert len(problems) == 1
    assert problems[0].startswith(f"ARBITER_CONFIG: {file}")
    assert problem in problems[0]
    assert "hunter2" not in problems[0]


def test_a_file_that_cannot_be_read_is_told_with_the_systems_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert sources.read(NAMES, {"config": str(missing)}, {}).problems == [
        f"ARBITER_CONFIG: cannot read {missing}: No such file or directory"
    ]
    assert sources.read(NAMES, {}, {"ARBITER_CONFIG": str(tmp_path)}).problems == [
        f"ARBITER_CONFIG: cannot read {tmp_path}: Is a directory"
    ]


def test_the_known_keys_of_a_file_with_an_unknown_one_still_count(tmp_path: Path) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text("bugdet = 1\nsettle = 2\n")
    assert sources.read(NAMES, {"config": str(file)}, {}).layers["file"] == {"settle": 2}


def test_what_the_app_reads_for_itself_is_no_unknown_setting() -> None:
    assert load({}, {"ARBITER_APP_START": "boot-7"}) == load({}, {})
