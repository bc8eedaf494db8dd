"""The import of aiohttp without its client, each time in a process that has imported nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, os, sys
from sidecar.app import lean_import
before = dict(os.environ)
lean_import.defer_client()
import sidecar.net.web
early = "aiohttp.client" in sys.modules
lean_import.import_client()
import aiohttp, aiohttp.web
from aiohttp import connector
print(json.dumps({
    "early": early,
    "late": "aiohttp.client" in sys.modules and aiohttp.web.Application.__name__ in aiohttp.web.__all__,
    "version": aiohttp.__version__ != "",
    "same": dict(os.environ) == before,
    "meanwhile": {name: os.environ.get(name) for name in lean_import.MEANWHILE},
    "authorities": connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"],
    "cpp": "libstdc++" in open("/proc/self/maps").read(),
}))
"""
DAEMON = """
import sys
from sidecar.app import lean_import
lean_import.defer_client()
import sidecar.app.daemon, sidecar.store.redis_client
print([name for name in ("aiohttp.client", "aiohttp.web", "argparse", "pydantic") if name in sys.modules])
"""
LATER = """
from sidecar.app import lean_import
lean_import.defer_client()
from aiohttp import ClientSession, hdrs
import aiohttp
assert ClientSession is aiohttp.client.ClientSession
try:
    aiohttp.nothing
except AttributeError:
    print("client")
"""
FAILING = """
import os, sys
from sidecar.app import lean_import
lean_import.defer_client()
sys.modules["aiohttp.client"] = None
before = dict(os.environ)
try:
    lean_import.import_client()
except ImportError:
    sys.exit(0 if dict(os.environ) == before else 3)
"""
MEANWHILE = ("SSL_CERT_FILE", "SSL_CERT_DIR", "FROZENLIST_NO_EXTENSIONS")


def _run(code: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in MEANWHILE}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | environ,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"SSL_CERT_FILE": "/etc/company/ca.pem"},
        {"SSL_CERT_DIR": "/etc/company/certs"},
        {"SSL_CERT_FILE": "", "SSL_CERT_DIR": "/a:/b"},
        {"FROZENLIST_NO_EXTENSIONS": ""},
    ],
    ids=["none", "file", "directory", "both", "frozenlist"],
)
def test_client_comes_when_needed_without_authorities_or_cpp_and_the_environment_is_as_before(
    given: dict[str, str],
) -> None:
    done = _run(PROBE, given)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "early": False,
        "late": True,
        "version": True,
        "same": True,
        "meanwhile": {name: given.get(name) for name in MEANWHILE},
        "authorities": 0,
        "cpp": False,
    }


def test_environment_is_as_before_when_the_import_fails() -> None:
    assert _run(FAILING, {"SSL_CERT_FILE": "/etc/company/ca.pem"}).returncode == 0


def test_daemon_does_without_what_its_parts_could_bring_along() -> None:
    assert _run(DAEMON, {}).stdout == "[]\n"


def test_first_name_of_the_package_brings_the_client() -> None:
    assert _run(LATER, {}).stdout == "client\n"
