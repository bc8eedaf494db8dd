"""What an app pays for the import, each time in a process that has imported nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar import client

ROOT = Path(__file__).parents[2]
COSTLY = {"asyncio", "http", "json", "logging", "multiprocessing", "ssl", "subprocess", "urllib"}


def _loaded(code: str) -> set[str]:
    """Names of the modules that this program loads, without those of a bare interpreter."""
    probe = f"import sys\nbare = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - bare))"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        (
            "from sidecar.client import report, results, heartbeat, stats, configure",
            ("local_http", "reporting", "sums"),
        ),
        ("from sidecar.client.success_rate import SuccessHistory", ("success_rate",)),
    ],
    ids=["reporting", "what the sidecar uses"],
)
def test_import_brings_what_is_used_and_nothing_else(code: str, modules: tuple[str, ...]) -> None:
    loaded = _loaded(code)
    expected = {"sidecar", "sidecar.client", *(f"sidecar.client.{name}" for name in modules)}
    assert {name for name in loaded if name.partition(".")[0] == "sidecar"} == expected
    assert loaded & COSTLY == set()


@pytest.mark.parametrize(
    "name",
    [
        *("ArbiterHandler", "ArbiterMiddleware", "ArbiterWSGIMiddleware", "Cascade"),
        *("redacted", "report_exception"),
    ],
)
def test_helper_needs_the_standard_library_only(name: str) -> None:
    loaded = _loaded(f"from sidecar.client import {name}")
    allowed = {*sys.stdlib_module_names, "sidecar"}
    assert {module for module in loaded if module.partition(".")[0] not in allowed} == set()
    assert {module for module in loaded if module.startswith("sidecar.") and "client" not in module} == set()


@pytest.mark.parametrize("name", [*client.__all__, "arbiter_aiohttp_middleware"])
def test_everything_announced_is_there(name: str) -> None:
    assert callable(getattr(client, name))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reprot'"):
        client.reprot  # noqa: B018 - the access is what is tested
