from __future__ import annotations

from collections import Counter
from typing import Any, get_type_hints

import pytest

from sidecar.config.settings import load
from sidecar.config.settings_model import Settings
from sidecar.config.slices import Config, config_of

MADE_BY_FACTORY = {"instance"}
SLICES = Config()._asdict()


def _fields() -> list[tuple[type, str, object]]:
    return [(type(part), name, value) for part in SLICES.values() for name, value in part._asdict().items()]


def test_every_setting_is_in_exactly_one_slice_and_nothing_else_is() -> None:
    assert Counter(name for _, name, _ in _fields()) == Counter(list(Settings.model_fields))


@pytest.mark.parametrize(("kind", "name", "default"), _fields(), ids=[name for _, name, _ in _fields()])
def test_field_has_the_type_and_the_default_of_its_setting(kind: type, name: str, default: object) -> None:
    setting = Settings.model_fields[name]
    assert get_type_hints(kind)[name] == setting.annotation
    if name not in MADE_BY_FACTORY:
        expected = setting.get_default(
            call_default_factory=True, validated_data={"budget_strategy": "log", "weight": "on", "redis_url": ""}
        )
        assert (default, type(default)) == (expected, type(expected))


def test_configuration_holds_the_values_that_were_validated() -> None:
    given = {"error_limit": "7", "budget": "5%", "redis_url": "redis://host", "drain": "2m", "instance": "x"}
    values: dict[str, Any] = load(given, {}).model_dump()
    config = config_of(values)
    assert {name: value for part in config for name, value in part._asdict().items()} == values
    assert (config.judging.error_limit, config.culling.drain) == (7, 120.0)


@pytest.mark.parametrize(
    ("state_dir", "run_lock", "directory"),
    [("", "", ""), ("/state", "", "/state"), ("", "/lock", "/lock"), ("/state", "/lock", "/state")],
)
def test_state_file_is_in_the_state_directory_or_with_the_run_lock(
    state_dir: str, run_lock: str, directory: str
) -> None:
    config = config_of(load({"state_dir": state_dir, "run_lock": run_lock}, {}).model_dump())
    assert config.state_directory == directory


@pytest.mark.parametrize(
    ("given", "has_sockets"),
    [({}, False), ({"statsd_listen": "127.0.0.1:8125"}, True), ({"statsd_socket": "/run/statsd.sock"}, True)],
    ids=["neither", "UDP", "Unix"],
)
def test_datagrams_are_received_if_there_is_an_address_or_a_path(given: dict[str, str], *, has_sockets: bool) -> None:
    assert config_of(load(given, {}).model_dump()).statsd.has_sockets is has_sockets


def test_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Config().judging.error_limit = 6  # type: ignore[misc]
