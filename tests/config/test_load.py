"""The values of all settings: where they come from, how they are read, and what is said of a bad one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from sidecar.config.load import SettingsError, load, origins, values
from sidecar.config.settings import Config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


NOMAD = {
    "NOMAD_JOB_NAME": "shop/dispatch-1",
    "NOMAD_GROUP_NAME": "web",
    "NOMAD_NAMESPACE": "prod",
    "NOMAD_ALLOC_ID": "0a1b2c",
    "NOMAD_ALLOC_DIR": "/alloc",
}


def _problems(flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        values(flags or {}, environ or {})
    return caught.value.problems


# -- where they come from -----------------------------------------------------------------------------------------


def test_defaults_are_those_that_the_parts_declare() -> None:
    config = load({}, {"NOMAD_ALLOC_ID": "a"})
    assert config == Config(identity=Config().identity._replace(instance="a"))


def test_instance_is_by_default_the_host_name() -> None:
    assert load({}, {}).identity.instance == os.uname().nodename
    assert origins({}, {})["instance"] == "default"


def test_values_survive_the_way_through_json_with_their_types() -> None:
    valid = values({"preset": "classdojo"}, {})
    assert isinstance(valid["grace"], float)
    assert isinstance(valid["stop_drain"], float)  # a default: as much a float as what was given
    back = json.loads(json.dumps(valid))
    assert back == valid
    assert {name: type(value) for name, value in back.items()} == {name: type(value) for name, value in valid.items()}


@pytest.mark.parametrize(
    ("givers", "value", "origin"),
    [
        (("flag", "env", "file", "preset"), 1.0, "flag"),
        (("env", "file", "preset"), 2.0, "env"),
        (("file", "preset"), 3.0, "file"),
        (("preset",), 0.0, "preset"),
        ((), 10.0, "default"),
    ],
)
def test_the_strongest_giver_wins(tmp_path: Path, givers: tuple[str, ...], value: float, origin: str) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text('drain = "3s"\n' if "file" in givers else "")
    flags = {"config": str(file)} | ({"drain": "1s"} if "flag" in givers else {})
    environ = {"ARBITER_DRAIN": "2s"} if "env" in givers else {}
    environ |= {"ARBITER_PRESET": "classdojo"} if "preset" in givers else {}
    assert values(flags, environ)["drain"] == value
    assert origins(flags, environ)["drain"] == origin


def test_the_preset_may_be_named_in_the_file_and_the_file_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text('preset = "classdojo"\nsettle = 2\nerror_limit = 6\n')
    settings = values({}, {"ARBITER_CONFIG": str(file)})
    assert (settings["min_healthy"], settings["settle"], settings["error_limit"]) == ("0", 2.0, 6)


def test_a_flag_can_take_back_what_the_environment_gave_and_an_empty_variable_gives_nothing() -> None:
    settings = values({"preset": ""}, {"ARBITER_PRESET": "classdojo", "ARBITER_BUDGET": "", "ARBITER_CONFIG": ""})
    assert (settings["preset"], settings["trial"], settings["budget"]) == ("", "on", "10")


def test_nomad_says_who_we_are_and_where_to_write_unless_it_is_given() -> None:
    settings = values({"service": "cart"}, NOMAD)
    assert [settings[name] for name in ("service", "namespace", "instance")] == ["cart", "prod", "0a1b2c"]
    assert (values({}, NOMAD)["service"], settings["state_dir"]) == ("shop-dispatch-1.web", "/alloc/tmp")
    assert origins({}, NOMAD)["service"] == "nomad"
    half = {name: value for name, value in NOMAD.items() if name != "NOMAD_GROUP_NAME"}
    assert values({}, half)["service"] == "app", "a job alone is no group of containers"


def test_classdojo_is_the_article_to_the_letter() -> None:
    flags = {"preset": "classdojo"}
    article = {
        "budget_strategy": "fixed",
        "error_limit": 5,
        "error_window": 60.0,
        "error_ratio": 0.0,
        "check_interval": 10.0,
        "budget": "10",
        "budget_window": 600.0,
        "spacing": 0.0,
        "min_healthy": "0",
        "trial": "off",
        "outlier": "off",
        "refund": "off",
        "after_data_loss": "continue",
        "weight": "off",
        "settle": 0.0,
        "drain": 0.0,
        "grace": 0.0,
    }
    assert {name: values(flags, {})[name] for name in article} == article
    assert {name for name, origin in origins(flags, {}).items() if origin == "preset"} == article.keys()


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({}, "mode", "shadow"),
        ({"alone": "true"}, "mode", "enforce"),
        ({"redis_url": "redis://a"}, "mode", "enforce"),
        ({"budget_strategy": "previous"}, "refund", "off"),
        ({"budget_strategy": "fixed"}, "refund", "off"),
    ],
)
def test_what_cannot_be_had_is_off_unless_it_is_asked_for(given: dict[str, str], name: str, value: str) -> None:
    assert values(given, {})[name] == value


@pytest.mark.parametrize(
    ("state_dir", "run_lock", "directory"),
    [("", "", ""), ("/state", "", "/state"), ("", "/lock", "/lock"), ("/state", "/lock", "/state")],
)
def test_state_file_is_in_the_state_directory_or_with_the_run_lock(
    state_dir: str, run_lock: str, directory: str
) -> None:
    assert load({"state_dir": state_dir, "run_lock": run_lock}, {}).state_directory == directory


# -- a bad value --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("mode", "off", "must be 'enforce' or 'shadow'"),
        ("preset", "etsy", "must be '' or 'classdojo'"),
        ("service", "", "must be letters, digits"),
        ("service", "a/b", "must be letters, digits"),
        ("namespace", "n" * 129, "must be at most 128 characters"),
        ("enforce_percent", "101", "must be at most 100"),
        ("enforce_percent", "-1", "must be at least 0"),
        ("error_limit", "0", "must be at least 1"),
        ("error_limit", "five", "must be a whole number"),
        ("error_limit", "5.5", "must be a whole number"),
        ("error_window", "0", "must be at least 1s"),
        ("error_window", "1.5s", "must be whole seconds"),
        ("error_window", "61m", "must be at most 60m"),
        ("error_window", "5000", "must be at most 60m; a bare number is in seconds"),
        ("kind_limits", "redis:0", "has 'redis:0': write kind:limit with a limit of at least 1"),
        ("error_ratio", "1.01", "must be at most 1"),
        ("error_ratio", "-0.1", "must be at least 0"),
        ("error_ratio", "nan", "must be finite"),
        ("error_ratio", "50%", "must be a number"),
        ("heartbeat_timeout", "soon", "is not a duration"),
        ("grace", "25h", "must be at most 24h"),
        ("grace", "", "is not a duration"),
        ("check_interval", "99ms", "must be at least 100ms"),
        ("budget", "1001", "must be at least 1 or above 0%, and at most 1000"),
        ("budget", "0%", "must be at least 1 or above 0%, and at most 1000"),
        ("budget", "ten", "must be a whole number, or a percentage such as 5% or 12.5%"),
        ("budget_strategy", "leaky", "must be 'log', 'previous' or 'fixed'"),
        ("spacing", "-1", "must not be negative"),
        ("min_healthy", "100.5%", "must be at most 100%"),
        ("beat_interval", "6m", "must be at most 5m"),
        ("beat_interval", "99ms", "must be at least 100ms"),
        ("budget_window", "999ms", "must be at least 1s"),
        ("busy_load", "-1", "must be at least 0"),
        ("redis_timeout", "9ms", "must be at least 10ms"),
        *(("statsd_prefix", prefix, "must be at most 64 of A-Z a-z 0-9 _ . -") for prefix in ("a:b", "a b", "p" * 65)),
        ("node", "n" * 65, "must be at most 64 printable ASCII"),
        ("app_version", "1 2", "must be at most 64 printable ASCII"),
        ("redis_timeout", "11s", "must be at most 10s"),
        ("drain", "2500000", "must be at most 24h; a bare number is in seconds"),
        ("drain", "1 day", "is not a duration"),
        ("lifetime", "721h", "must be at most 720h"),
        ("retire_slots", "0", "must be at least 1 or above 0%"),
        ("state_dir", "/a\0b", "must not have control characters"),
        ("local_listen", "0.0.0.0:9180", "must be localhost"),
        ("socket", "run/arbiter.sock", "must be an absolute path"),
        ("public_listen", "off", "is not an address"),
        ("scrape_errors", "up{", "at the end: expected a label"),
        ("tls_listeners", "page, local", "has 'local', which is none of page, public"),
        ("tls_listeners", " , ", "names no listener: the certificate would be of no use"),
        ("public_allow", "10.0.0.0/8, 10.1", "has '10.1', which is no IP address and no network"),
        ("agent_listen", "9182", "is not an address"),
        *(("app_port", port, "") for port in ("0", "70000", "app", "-1", "1.2.3.4.5:80")),
        ("weight", "yes", "must be 'on' or 'off'"),
        ("alone", "perhaps", "must be true or false"),
    ],
)
def test_bad_value_is_told_with_its_setting_and_giver(name: str, value: str, complaint: str) -> None:
    (problem,) = _problems({name: value})
    assert problem.startswith(f"ARBITER_{name.upper()}: {value!r} from flag {complaint}")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("error_limit = true", "ARBITER_ERROR_LIMIT: True from file must be a number"),
        ("error_limit = 5.5", "ARBITER_ERROR_LIMIT: 5.5 from file must be a whole number"),
        ("service = 5", "ARBITER_SERVICE: 5 from file must be text"),
        ("kind_limits = ['cache']", "ARBITER_KIND_LIMITS: ['cache'] from file must be text"),
        ("budget = true", "ARBITER_BUDGET: True from file must be a whole number, or a percentage"),
        ("trial = true", "ARBITER_TRIAL: True from file must be 'on' or 'off'"),
        ("drain = nan", "ARBITER_DRAIN: nan from file must be finite"),
        ("drain = 90000", "ARBITER_DRAIN: 90000 from file must be at most 24h; a bare number is in seconds"),
        ("[drain]\nlong = true", "ARBITER_DRAIN: {'long': True} from file is not a duration"),
    ],
)
def test_a_file_may_not_give_another_type(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text(line)
    assert _problems({"config": str(file)})[0].startswith(complaint)


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("service", " cart\n", "cart"),
        ("drain", " 2s ", 2.0),
        ("kind_limits", " redis:03 , db:mysql:off,", "redis:3,db:mysql:off"),
        ("error_ratio", "1", 1.0),
        ("grace", "10m", 600.0),
        ("budget", "05", "5"),
        ("min_healthy", " 12.0 % ", "12%"),
        ("public_allow", " 10.0.0.5, ::ffff:10.1.0.0/112 ,fd00:0::/8 ", "10.0.0.5,10.1.0.0/16,fd00::/8"),
    ],
)
def test_value_is_taken_in_its_normal_form(name: str, given: str, taken: object) -> None:
    assert values({name: given}, {})[name] == taken


def test_all_bad_values_are_told_at_once() -> None:
    problems = _problems({"budget": "0", "redis_ulr": "hunter2"}, {"ARBITER_MODE": "x", "ARBITER_DRIAN": "1s"})
    assert problems[0] == "ARBITER_DRIAN: unknown setting; did you mean ARBITER_DRAIN?"
    assert [line.partition(":")[0] for line in problems[1:]] == ["ARBITER_MODE", "ARBITER_BUDGET", "ARBITER_REDIS_ULR"]
    assert problems[-1] == "ARBITER_REDIS_ULR: the value from flag is for a setting that does not exist"
