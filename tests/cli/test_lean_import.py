"""The import of aiohttp, each time in a process that has imported nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, os, sys
from sidecar.cli import main as cli
if sys.argv[1:]:
    sys.modules["aiohttp"] = None
before = dict(os.environ)
try:
    cli.import_aiohttp()
except ImportError:
    print(json.dumps({"same": dict(os.environ) == before}))
    sys.exit()
from aiohttp import connector
print(json.dumps({
    "same": dict(os.environ) == before,
    "authorities": connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"],
    "cpp": "libstdc++" in open("/proc/self/maps").read(),
}))
"""
MEANWHILE = ("SSL_CERT_FILE", "SSL_CERT_DIR", "FROZENLIST_NO_EXTENSIONS")
GIVEN = [
    {},
    {"SSL_CERT_FILE": "/etc/company/ca.pem"},
    {"SSL_CERT_FILE": "", "SSL_CERT_DIR": "/a:/b", "FROZENLIST_NO_EXTENSIONS": ""},
]


def _probe(given: dict[str, str], *arguments: str) -> object:
    inherited = {name: value for name, value in os.environ.items() if name not in MEANWHILE}
    command = [sys.executable, "-c", PROBE, *arguments]
    return json.loads(
        subprocess.run(command, env=inherited | given, capture_output=True, timeout=90, check=True).stdout
    )


@pytest.mark.parametrize("given", GIVEN, ids=["none", "file", "all"])
def test_aiohttp_comes_without_authorities_and_cpp_and_the_environment_is_as_before(given: dict[str, str]) -> None:
    assert _probe(given) == {"same": True, "authorities": 0, "cpp": False}


def test_environment_is_as_before_when_the_import_fails() -> None:
    assert _probe(GIVEN[1], "fails") == {"same": True}
