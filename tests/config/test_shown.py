"""What a person reads of the settings: true, complete, and never a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.config.load import SettingsError, load, origins, values
from sidecar.config.settings import setting_names
from sidecar.config.shown import ADVANCED, FIRST, effective, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOMAD = {"NOMAD_NAMESPACE": "prod", "NOMAD_ALLOC_ID": "0a1b2c", "NOMAD_ALLOC_DIR": "/alloc"}
SECRET = "hunter2"  # not one: the string to look for


def _problems(flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags or {}, environ or {})
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize("giver", ["flag", "env", "file", "list in file"])
def test_no_problem_repeats_a_redis_url(tmp_path: Path, giver: str) -> None:
    url = f"redis://:{SECRET}@host:port/0"
    file = tmp_path / "arbiter.toml"
    file.write_text(f"redis_url = {[url] if giver == 'list in file' else url!r}\nbudget = 0\n")
    flags = {"redis_url": url} if giver == "flag" else {"config": str(file)} if "file" in giver else {}
    text = _problems(flags, {"ARBITER_REDIS_URL": url} if giver == "env" else {})
    assert "ARBITER_REDIS_URL: the value from" in text
    assert SECRET not in text


@pytest.mark.parametrize("name", ["tls_listeners", "public_allow", "kind_limits"])
def test_no_problem_of_a_list_repeats_a_url_in_it(name: str) -> None:
    problem = _problems({name: f"redis://:{SECRET}@h"})
    assert problem.startswith(f"ARBITER_{name.upper()}: the value from flag has a URL")
    assert SECRET not in problem


def test_effective_settings_are_one_line_each_with_value_and_origin() -> None:
    flags = {"redis_url": f"redis://user:{SECRET}@host/0?password={SECRET}", "preset": "classdojo"}
    environ = NOMAD | {"ARBITER_BUDGET_WINDOW": "300", "ARBITER_REDIS_TIMEOUT": "0.5"}
    text = effective(values(flags, environ), origins(flags, environ))
    lines = text.splitlines()
    order = [line.partition("=")[0].removeprefix("ARBITER_").lower() for line in lines]
    assert sorted(order) == sorted(setting_names())
    assert (*order[:10], *order[-len(ADVANCED) :]) == (*FIRST, *ADVANCED)
    assert SECRET not in text
    for line in (
        "ARBITER_REDIS_URL=redis://user:***@host/0?password=***  # from flag",
        "ARBITER_BUDGET_WINDOW=5m  # from env",
        "ARBITER_REDIS_TIMEOUT=500ms  # from env",
        "ARBITER_ERROR_WINDOW=60s  # from preset",
        "ARBITER_INSTANCE=0a1b2c  # from nomad",
        "ARBITER_STOP_DRAIN=5s  # from default",
        "ARBITER_SOCKET=  # from default",
    ):
        assert line in lines


def test_only_changed_settings_are_those_that_differ_from_their_defaults() -> None:
    environ = {"ARBITER_BUDGET": "9", "ARBITER_DRAIN": "10s"}
    text = effective(values({}, environ), origins({}, environ), is_changed_only=True)
    assert text == "ARBITER_BUDGET=9  # from env: at most 9 culls in any window, or 27 with refunds"


@pytest.mark.parametrize("flags", [{"preset": "classdojo"}, {"budget_strategy": "previous", "weight": "off"}])
def test_effective_settings_without_secrets_can_be_loaded_again(flags: dict[str, str]) -> None:
    settings = values({**flags, "grace": "1.5s", "min_healthy": "12.5%"}, NOMAD)
    lines = effective(settings, dict.fromkeys(setting_names(), "test")).splitlines()
    environ = dict(line.partition("  #")[0].split("=", 1) for line in lines)
    assert values({}, environ) == settings


def test_the_table_has_a_default_that_can_be_given_and_one_sentence_for_every_setting() -> None:
    rows = table()
    assert [name for name, _, _ in rows] == [f"ARBITER_{name.upper()}" for name in setting_names()]
    for name, default, description in rows:
        assert description.endswith("."), name
        assert description.count(". ") == 0, name
        assert "|" not in default + description, name
    environ = {name: default for name, default, _ in rows if name != "ARBITER_INSTANCE"}
    assert values({}, environ) == values({}, {})
