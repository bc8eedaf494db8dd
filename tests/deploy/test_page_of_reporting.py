"""The page of reporting: its apps for Ruby and PHP, and its lines for the shell, as they stand there; its clients."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from deploy.client_programs import CLIENTS, TOP, Posted, counted, run, runtime
from harness.ports import free_port
from harness.waiting import wait_for
from sidecar import client
from sidecar.inputs.report_bodies import read_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from harness.sidecar import Sidecar

PAGE: Final = (TOP / "deploy" / "reporting.md").read_text()

RUBY: Final = """
{first}
require "sinatra/base"
module Redis; class CannotConnectError < StandardError; end; end
class Shop < Sinatra::Base
  get("/ok") {{ "fine" }}
  get("/503") {{ halt 503 }}
  get("/bug") {{ raise KeyError, "no cart" }}
  get("/driver") {{ begin; raise Redis::CannotConnectError; rescue; raise "no cart"; end }}
  get("/caught") do
    raise IndexError
  rescue IndexError => error
    {caught}
    "fine"
  end
end
run Shop
"""
PHP: Final = """<?php
{first}
class RedisException extends Exception {{}}
switch ($_SERVER['REQUEST_URI']) {{
    case '/503': http_response_code(503); break;
    case '/bug': throw new DomainException('no cart');
    case '/driver': throw new RuntimeException('no cart', 0, new RedisException());
    case '/fatal': ini_set('memory_limit', '4M'); str_repeat('x', 1 << 26);
    case '/caught': try {{ throw new LengthException(); }} catch (LengthException $exception) {{
        {caught}
    }}
}}
echo 'fine';
"""
APPS: Final = {
    "ruby": ("client.rb", "config.ru", RUBY, "rackup --env production --server webrick --host 127.0.0.1 --port PORT"),
    "php": ("client.php", "index.php", PHP, "php -d display_errors=0 -S 127.0.0.1:PORT index.php"),
}
"""Language -> client, file of the app, the app, and the command that serves it."""

STATUS: Final = {"/ok": 200, "/503": 503, "/bug": 500, "/driver": 500, "/caught": 200}
FATAL: Final = {"php": {"/fatal": 500}}
"""What a language cannot catch."""

REPORTED: Final[dict[str, dict[str, int]]] = {
    "ruby": {"http_503": 1, "KeyError": 1, "redis": 1, "IndexError": 1, "requests": 5, "failed": 3},
    "php": {"http_503": 1, "DomainException": 1, "redis": 1, "LengthException": 1, "fatal_error": 1}
    | {"requests": 6, "failed": 5},
}
"""Language -> what the page's app reports. In PHP a request with a reported exception has failed."""


def _example(language: str) -> tuple[str, str]:
    """The lines of the page: those that stand first, and that for an exception that the app's own code catches."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    *first, caught = block.splitlines()
    assert "your own code catches" in caught
    return "\n".join(first), caught


@contextmanager
def _served(language: str, directory: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """The address of the app."""
    file, name, app, command = APPS[language]
    first, caught = _example(language)
    shutil.copy(CLIENTS / file, directory)
    (directory / name).write_text(app.format(first=first, caught=caught))
    port = free_port()
    program, *words = command.replace("PORT", str(port)).split()
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [runtime(program), *words], cwd=directory, env={**os.environ, **environ}, stdout=log, stderr=log
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _status(url: str) -> int:
    try:
        with urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0  # not yet


@pytest.mark.site
@pytest.mark.parametrize("language", APPS)
def test_example_of_the_page_reports_answers_and_exceptions(language: str, arbiter: Sidecar, tmp_path: Path) -> None:
    environ = {"ARBITER_LOCAL_LISTEN": str(arbiter.settings["local_listen"]), "ARBITER_SOCKET": ""}
    before = counted(arbiter)
    with _served(language, tmp_path, environ) as address:
        wait_for(lambda: _status(f"{address}/ok") == 200, timeout_s=60, what="the app serves")
        for path, status in (STATUS | FATAL.get(language, {})).items():
            assert path == "/ok" or _status(address + path) == status, path
        expected = Counter(REPORTED[language])
        wait_for(lambda: counted(arbiter) - before == expected, timeout_s=60, what=f"{expected} has come")


def test_page_has_every_client_and_every_helper_of_python() -> None:
    assert {path.name for path in CLIENTS.iterdir()} - set(re.findall(r"\(clients/([^)]+)\)", PAGE)) == set()
    helpers = {name for name in client._MODULES if name.lower().startswith("arbiter")} - {"ArbiterHandler"}
    assert {name for name in helpers if name not in PAGE} == set()


# -- the shell --------------------------------------------------------------------------------------------------------


def _one_liner(start: str) -> str:
    (line,) = set(re.findall(rf"`({start}[^`]*)`", PAGE))
    return str(line).replace("\\|", "|")


@pytest.mark.parametrize(
    ("arguments", "packet"),
    [
        ([], "errors:1|c|#kind:cron"),
        (["nightly", "3"], "errors:3|c|#kind:nightly"),
        (["a,b|c d", "many"], "errors:1|c|#kind:a_b_c_d"),
        (["k" * 80], f"errors:1|c|#kind:{'k' * 64}"),
        (None, "errors:1|c|#kind:cron"),
    ],
    ids=["nothing", "kind and count", "odd", "long", "one line of bash"],
)
def test_shell_reports_errors_over_udp(arguments: list[str] | None, packet: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(60)
        port = listener.getsockname()[1]
        words = (
            ["report.sh", *arguments]
            if arguments is not None
            else ["-c", _one_liner("printf").replace("8125", str(port))]
        )
        assert run([runtime("bash"), *words], {"ARBITER_STATSD_LISTEN": f"127.0.0.1:{port}"}) == ""
        assert listener.recv(1000).decode().strip() == packet


def test_shell_and_one_line_of_curl_report_errors_over_http(posted: Posted) -> None:
    runtime("curl")
    port, seen = posted
    assert run([runtime("bash"), "report.sh", "nightly", "3"], {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}"}) == ""
    run([runtime("sh"), "-c", _one_liner("curl").replace("9180", str(port))], {})
    (path, body), last = seen
    assert path == "/errors"
    assert [(ping.errors, ping.kind) for ping in read_errors(body)] == [(3, "nightly")]
    assert last == ("/errors", b"")
