"""The settings by which a command finds its sidecar are those that the sidecar itself has."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sidecar.cli.local_api import Asking, asking
from sidecar.cli.options import Invocation
from sidecar.config.load import load
from sidecar.config.settings import Config

ENVIRON = {
    "ARBITER_LOCAL_LISTEN": "127.0.0.1:9",
    "ARBITER_SOCKET": "/run/a.sock",
    "ARBITER_REDIS_TIMEOUT": "500ms",
    "ARBITER_CHECK_INTERVAL": "7",
    "ARBITER_TLS_CLIENT_CA": "",
}
TOML = """
local_listen = "localhost:8"
redis_timeout = 3
tls_cert = "/tls.crt"
tls_key = "/tls.key"
tls_client_ca = "/ca.pem"
"""


def asked(flags: dict[str, str], environ: dict[str, str]) -> Asking:
    ctx = click.Context(click.Command("fleet"), obj=Invocation(environ))
    ctx.meta.update(flags)
    return asking(ctx)


@pytest.mark.parametrize(
    ("flags", "environ"),
    [({}, {}), ({}, ENVIRON), ({"local_listen": "off", "socket": "/b.sock"}, ENVIRON)],
    ids=["defaults", "environment", "options win"],
)
def test_they_are_those_of_the_sidecar(flags: dict[str, str], environ: dict[str, str]) -> None:
    assert asked(flags, environ) == Asking.of(load(flags, environ))


def test_they_come_from_the_file_too_and_no_file_that_it_names_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    command = asked({}, {"ARBITER_CONFIG": str(tmp_path / "a.toml"), "ARBITER_TLS_KEY": "/b.key"})
    assert (command.local_listen, command.redis_timeout_s) == ("localhost:8", 3.0)
    assert command.own == ("/tls.crt", "/b.key")


def test_address_may_be_that_of_the_page_behind_a_proxy() -> None:
    url = "https://proxy.example/arbiter/page"
    assert asked({"url": url}, {"ARBITER_URL": "http://other"}).remote == (url, "proxy.example", 443, True, "/arbiter")


def test_mistake_in_another_setting_does_not_stop_an_engineer() -> None:
    assert asked({}, {"ARBITER_BUGDET": "1", "ARBITER_DRAIN": "soon"}) == Asking.of(Config())


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"ARBITER_REDIS_TIMEOUT": "soon"}, "ARBITER_REDIS_TIMEOUT: 'soon' from env is not a duration"),
        ({"ARBITER_SOCKET": "a.sock"}, "ARBITER_SOCKET: 'a.sock' from env must be an absolute path"),
        ({"ARBITER_CONFIG": "/none.toml"}, "ARBITER_CONFIG: cannot read /none.toml: No such file"),
    ],
    ids=["time", "path", "file"],
)
def test_setting_that_cannot_be_used_is_named(environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        asked({}, environ)
    assert raised.value.message.startswith(complaint)
