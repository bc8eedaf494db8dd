"""Fixtures that start real servers and real sidecars, and stop them again by their own process ids.

A test that asks for a server is marked by it (``redis``, ``haproxy``). Without the program it is skipped, and
under ``CI=true`` it fails. Below a failure stands the end of every child's output.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from harness.binaries import require
from harness.starting import Children, StartHaproxy, StartRedis, StartSidecar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from harness.redis_server import RedisServer

_MARK_OF_FIXTURE = {"start_redis": "redis", "haproxy": "haproxy"}
_PROGRAM_OF_MARK = {"redis": "redis-server", "haproxy": "haproxy"}
_CHILDREN = pytest.StashKey[Children]()
# The same examples in every run, and nothing that a busy machine could make fail; whoever wants to look for others, and
# for longer, says so with --hypothesis-profile=default.
settings.register_profile(
    "steady", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

# Who starts the tests may ignore these, as nohup and the & of a script do, and our children would inherit that. What is
# handled, if only by nothing, they begin with as usual.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

_LONG = ("e2e", "simulation", "takeover", "runlock", "store", "deploy")
"""Directories whose files take longest come first, or one of them would be what the whole run waits for at its end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(_LONG)))
    for item in items:
        for fixture in _MARK_OF_FIXTURE.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARK_OF_FIXTURE[fixture])


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, program in _PROGRAM_OF_MARK.items():
        if item.get_closest_marker(mark):
            require(program)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _CHILDREN in item.stash:
        report.sections.extend(item.stash[_CHILDREN].outputs())
    return report


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """``tmp_path`` under a name short enough for unix sockets, which end at 107 bytes."""
    holder = Path(tempfile.mkdtemp(prefix="arbiter-", dir="/tmp"))
    link = holder / "run"
    link.symlink_to(tmp_path)
    yield link
    # The link goes, what it points to stays with pytest.
    shutil.rmtree(holder)


@pytest.fixture
def children(request: pytest.FixtureRequest) -> Iterator[Children]:
    """All children of the test, stopped when it is over."""
    children = request.node.stash.setdefault(_CHILDREN, Children())
    yield children
    children.stop()


@pytest.fixture
def start_redis(run_dir: Path, children: Children) -> StartRedis:
    return StartRedis(run_dir, children)


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    return start_redis()


@pytest.fixture
def faketime_redis(start_redis: StartRedis) -> RedisServer:
    """A Redis whose clock stands still until ``set_time`` or ``advance``."""
    return start_redis("faketime-redis", faketime=True)


@pytest.fixture
def haproxy(run_dir: Path, children: Children) -> StartHaproxy:
    return StartHaproxy(run_dir, children)


@pytest.fixture
def sidecar(run_dir: Path, children: Children) -> StartSidecar:
    return StartSidecar(run_dir, children)
