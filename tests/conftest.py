"""Fixtures that start real servers and real sidecars, and stop them by their own process ids; and what listeners need.

A test that uses a server has its mark (``redis``, ``haproxy``). Without the program the test is skipped, and under
``CI=true`` it fails. A failure shows the end of the output of every child.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

from harness.binaries import require
from harness.certificates import Authority
from harness.children import CHILDREN, Children, SharedServers, StartHaproxy, StartRedis, StartSidecar, short_path
from harness.fork_server import FORK_SERVER
from harness.raw_http import Observed
from sidecar.net.credential_files import KeyPair

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from harness.redis_server import RedisServer

_MARK_OF_FIXTURE = {"start_redis": "redis", "shared_servers": "redis", "haproxy": "haproxy"}
_PROGRAM_OF_MARK = {"redis": "redis-server", "haproxy": "haproxy"}
# The same examples in every run, and fresh ones in the site tier (--hypothesis-profile=fresh). No deadlines: machines
# are busy.
_UNHURRIED: Final[dict[str, Any]] = {
    "database": None,
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("steady", derandomize=True, **_UNHURRIED)
settings.register_profile("fresh", max_examples=500, print_blob=True, **_UNHURRIED)
settings.load_profile("steady")

# nohup and the & of a script ignore these signals, and children inherit that. A handler, even an empty one, is not
# inherited.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


MOST_PROCESS_CASES: Final = 80
"""They run one after another, with every change."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases = 0
    for item in items:
        for fixture in _MARK_OF_FIXTURE.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARK_OF_FIXTURE[fixture])
        cases += item.get_closest_marker("process") is not None and item.get_closest_marker("site") is None
    if cases > MOST_PROCESS_CASES:
        raise pytest.UsageError(f"{cases} cases have the mark process, at most {MOST_PROCESS_CASES} may")


def pytest_runtest_setup(item: pytest.Item) -> None:
    FORK_SERVER.is_used = item.get_closest_marker("fresh") is None
    for mark, program in _PROGRAM_OF_MARK.items():
        if item.get_closest_marker(mark):
            require(program)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for node in item.listchain():
            if CHILDREN in node.stash:
                report.sections.extend(node.stash[CHILDREN].outputs())
    return report


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    with short_path(tmp_path) as path:
        yield path


@pytest.fixture
def observed() -> Observed:
    """What the listeners of the test report."""
    return Observed()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signs the certificates of a module."""
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> KeyPair:
    """A certificate of this authority for a listener, and its key."""
    return KeyPair(*map(str, authority.sign("first")))


@pytest.fixture
def children(request: pytest.FixtureRequest) -> Iterator[Children]:
    """The child processes of the test."""
    with Children() as request.node.stash[CHILDREN]:
        yield request.node.stash[CHILDREN]


@pytest.fixture
def start_redis(run_dir: Path, children: Children) -> StartRedis:
    return StartRedis(run_dir, children)


@pytest.fixture(scope="session")
def shared_servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SharedServers]:
    with short_path(tmp_path_factory.mktemp("servers")) as path, Children() as request.node.stash[CHILDREN]:
        yield SharedServers(path, request.node.stash[CHILDREN])


@pytest.fixture
def redis_server(shared_servers: SharedServers) -> RedisServer:
    """The Redis of this worker, as if it were new: a test may also kill it, or change its settings."""
    return shared_servers.redis("redis")


@pytest.fixture
def faketime_redis(shared_servers: SharedServers) -> RedisServer:
    """Another one, whose clock moves only with ``set_time`` and ``advance``."""
    return shared_servers.redis("faketime-redis", faketime=True)


@pytest.fixture
def haproxy(run_dir: Path, children: Children) -> StartHaproxy:
    return StartHaproxy(run_dir, children)


@pytest.fixture
def sidecar(run_dir: Path, children: Children) -> StartSidecar:
    return StartSidecar(run_dir, children)
