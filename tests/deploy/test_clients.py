"""The clients, each with its own runtime if that is installed: StatsD to a listener of the test, HTTP to a sidecar."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from deploy.client_programs import CLIENTS, Posted, counted, run, runtime
from harness.ports import free_port
from harness.sidecar import Sidecar
from harness.waiting import wait_for
from sidecar.inputs.report_bodies import read_errors

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.site

# -- Node -------------------------------------------------------------------------------------------------------------

EXPRESS: Final = """
const { report, errorHandler, results } = require("./express.cjs");
const passed = [];
const handle = (error) => errorHandler(error, {}, {}, (next) => passed.push(next === error));
handle(Object.assign(new Error("refused"), { code: "ECONNREFUSED" }));
handle(new TypeError("x"));
handle(Object.assign(new Error("bad name"), { name: "a,b|c#d\\n" }));
handle(Object.assign(new Error("no such page"), { status: 404 }));
handle(undefined);
handle(null);
handle("a text");
report(3, { kind: "redis", fatal: true });
for (const statusCode of [200, 404, 503]) {
  const response = new (require("node:events"))();
  response.statusCode = statusCode;
  results({}, response, () => passed.push(true));
  response.emit("finish");
}
const unavailable = new (require("node:events"))();
unavailable.statusCode = 503;
const away = Object.assign(new Error("away"), { code: "mysql" });
results({}, unavailable, () => errorHandler(away, {}, unavailable, () => {}));
unavailable.emit("finish");
console.log(JSON.stringify(passed));
"""


# -- Go ---------------------------------------------------------------------------------------------------------------


def test_go_client_is_formatted() -> None:
    assert run([runtime("gofmt"), "-l", "."], {}) == ""


# -- Ruby -------------------------------------------------------------------------------------------------------------

RUBY: Final = """
require "./client"
Integer(ARGV[0]).times { Arbiter.report(kind: "redis") }
Arbiter.report(2, kind: "a,b|c#d")
ok = Arbiter::Middleware.new(->(_) { [200, {}, ["fine"]] }).call({})
bad = Arbiter::Middleware.new(->(_) { [503, {}, []] }).call({})
begin
  Arbiter::Middleware.new(->(_) { raise KeyError, "a" }).call({})
rescue KeyError
  puts [ok[0], bad[0]].inspect
end
Process.wait(fork { Arbiter.report(kind: "child") })
"""


# -- the shipped job: no StatsD, the local listener answers -----------------------------------------------------------

PYTHON: Final = """
from sidecar.client import report, results
for _ in range(3):
    report(kind="redis")
report(2, kind="a,b|c#d")
results(ok=1, failed=2)
"""


PHP: Final = """
require "client.php";
Arbiter::report("redis");
Arbiter::report("redis");
"""


REPORTED: Final[dict[str, dict[str, int]]] = {
    "python": {"redis": 3, "a_b_c_d": 2, "requests": 3, "failed": 2},
    "express.cjs": dict.fromkeys(("ECONNREFUSED", "TypeError", "a_b_c_d_", "http_503", "mysql"), 1)
    | {"Error": 3, "redis": 3, "requests": 4, "failed": 2},
    "client.go": {"redis": 3, "a_b_c_d": 2, "panic": 1, "http_500": 1, "requests": 3, "failed": 2},
    "client.rb": {"redis": 3, "a_b_c_d": 2, "http_503": 1, "KeyError": 1, "child": 1, "requests": 3, "failed": 2},
    "client.php": {"redis": 2},
    "report.sh": {"cron": 1},
}
"""What the program of each client reports: errors by kind, and requests. The JVM's needs servlets: see
``test_client_frameworks``."""


@pytest.mark.parametrize("by", ["tcp", "socket"])
@pytest.mark.parametrize("client", REPORTED)
def test_client_reports_to_the_shipped_job_as_it_is(
    client: str, by: str, arbiter: Sidecar, request: pytest.FixtureRequest
) -> None:
    listen, path = str(arbiter.settings["local_listen"]), str(arbiter.settings["socket"])
    # The socket's clients find no sidecar at the address, and those of the address none at the socket.
    environ = {
        "tcp": {"ARBITER_SOCKET": f"{path}.none", "ARBITER_LOCAL_LISTEN": listen},
        "socket": {"ARBITER_SOCKET": path, "ARBITER_LOCAL_LISTEN": f"127.0.0.1:{free_port()}"},
    }[by]
    before = counted(arbiter)
    printed = run(_commands(request)[client](), {**environ, "ARBITER_STATSD_LISTEN": "off"})
    wait_for(lambda: counted(arbiter) - before == Counter(REPORTED[client]), timeout_s=60, what="all has come")
    assert "no sidecar" not in printed


def _commands(request: pytest.FixtureRequest, end_s: int = 60) -> dict[str, Callable[[], list[str]]]:
    """How to run each client; ``end_s``: how long the program in Go may wait for its reports to leave."""
    return {
        "python": lambda: [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(CLIENTS.parents[1])!r}){PYTHON}",
        ],
        "express.cjs": lambda: [runtime("node"), "-e", EXPRESS],
        "client.go": lambda: [str(request.getfixturevalue("go_programs") / "reporting"), "3", str(end_s)],
        "client.rb": lambda: [runtime("ruby"), "-w", "-e", RUBY, "3"],
        "client.php": lambda: [runtime("php"), "-r", PHP],
        "report.sh": lambda: [runtime("bash"), "report.sh"],
    }


# -- messages ---------------------------------------------------------------------------------------------------------

TEXT: Final = 'a "bug" \\ at <caf\u00e9>\x01\n' + "\U0001f600" * 200
FAILING: Final = {
    "express.cjs": """
        const { reportError } = require("./express.cjs");
        for (const text of ["older", process.env.TEXT]) reportError(new RangeError(text));
        reportError(Object.create(null));
    """,
    "client.rb": """
        require "./client"
        ["older", ENV["TEXT"]].each { |text| Arbiter.report_error(RangeError.new(text)) }
        Arbiter.report_error(KeyError.new("\\xff".b))
    """,
    "client.php": """
        require "client.php";
        foreach (["older", getenv("TEXT")] as $text) { Arbiter::report(new RangeException($text)); }
    """,
}


@pytest.mark.parametrize("client", ["express.cjs", "client.go", "client.rb", "client.php"])
def test_newest_message_of_a_kind_goes_along_cut(client: str, posted: Posted, request: pytest.FixtureRequest) -> None:
    port, bodies = posted
    command = _commands(request)[client]()[:1]  # the program in Go is compiled, and takes the text only
    if client in FAILING:
        command += ["-r" if client == "client.php" else "-e", FAILING[client]]
    run(command, {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}", "TEXT": TEXT})
    kind = {"client.go": "errors.errorString", "client.php": "RangeException"}.get(client, "RangeError")
    reports = [each for _, body in bodies for each in read_errors(body) if each.kind == kind]
    assert sum(each.errors for each in reports) == 2
    message = reports[-1].message or ""
    assert message.startswith(f"{kind}: {TEXT[:25]}")
    assert 0 < message.count("\U0001f600") < len(message) <= 200


# -- without a sidecar -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", REPORTED)
@pytest.mark.parametrize("names", ["local", "nonsense", "off"])
def test_client_survives_a_missing_sidecar_and_says_so_once(
    client: str, names: str, request: pytest.FixtureRequest
) -> None:
    environ = {
        "local": {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{free_port()}"},
        "nonsense": {"ARBITER_LOCAL_LISTEN": "127.0.0.1:99999"},
        "off": {"ARBITER_LOCAL_LISTEN": "off"},
    }[names]
    printed = run(_commands(request, end_s=1)[client](), environ)
    is_said = names != "off" or client == "report.sh"
    assert printed.count("no sidecar answers") == is_said * _processes(client)


def _processes(client: str) -> int:
    """The program in Ruby forks, and each process logs for itself."""
    return 2 if client == "client.rb" else 1
