"""The import without certificates and C++, each time in a process that has imported nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, os, sys
before = dict(os.environ)
from sidecar.app import lean_import
early = "aiohttp" in sys.modules
lean_import.import_aiohttp()
late = "aiohttp" in sys.modules
from aiohttp import connector
print(json.dumps({
    "early": early,
    "late": late,
    "same": dict(os.environ) == before,
    "meanwhile": {name: os.environ.get(name) for name in lean_import.MEANWHILE},
    "authorities": connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"],
    "cpp": "libstdc++" in open("/proc/self/maps").read(),
}))
"""
DAEMON = """
import sys
from sidecar.app import lean_import
lean_import.import_aiohttp()
import sidecar.app.daemon, sidecar.store.redis_client
print([name for name in ("aiohttp.web", "argparse", "pydantic") if name in sys.modules])
"""
FAILING = """
import os, sys
sys.modules["aiohttp"] = None
from sidecar.app import lean_import
before = dict(os.environ)
try:
    lean_import.import_aiohttp()
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
def test_aiohttp_is_imported_without_authorities_or_cpp_and_the_environment_is_as_before(given: dict[str, str]) -> None:
    done = _run(PROBE, given)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "early": False,
        "late": True,
        "same": True,
        "meanwhile": {name: given.get(name) for name in MEANWHILE},
        "authorities": 0,
        "cpp": False,
    }


def test_environment_is_as_before_when_the_import_fails() -> None:
    assert _run(FAILING, {"SSL_CERT_FILE": "/etc/company/ca.pem"}).returncode == 0


def test_daemon_does_without_what_its_parts_could_bring_along() -> None:
    assert _run(DAEMON, {}).stdout == "[]\n"
