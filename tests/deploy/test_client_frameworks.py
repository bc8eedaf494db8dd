"""The clients in other languages under their frameworks: what counts as an error, and of which kind it is.

A runtime or framework that is not installed skips its test. Servlets are interfaces, which a few lines stand in for.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from deploy.client_programs import CLIENTS, TOP, Posted, run, runtime, totals
from harness.waiting import wait_for
from sidecar.inputs.report_bodies import read_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.site

MODULES: Final = TOP / "tests" / "apps" / "node_modules"


# -- Express ----------------------------------------------------------------------------------------------------------

EXPRESS: Final = """
const express = require("express");
const net = require("node:net");
const { results, errorHandler } = require(process.argv[1]);
const app = express();
app.use(results);
app.get("/ok", (request, response) => response.send("fine"));
app.get("/503", (request, response) => response.status(503).send("later"));
app.get("/bug", () => null.x);
app.get("/late", async () => { throw new RangeError("late"); });
app.get("/refused", (request, response, next) => net.connect(MYSQL, "127.0.0.1").on("error", next));
app.get("/library", () => {
  const error = new Error("reply");
  error.stack = "Error: reply\\n    at node:internal/x\\n"
    + "    at parse (/app/node_modules/@redis/client/dist/x.js:1:1)\\n    at view (/app/node_modules/express/x.js:1:1)";
  throw new Error("no cart", { cause: error });
});
app.get("/own", () => { throw Object.assign(new Error("no such cart"), { status: 404 }); });
app.use(errorHandler);
app.use((error, request, response, next) => response.status(error.status ?? 500).end());
const MYSQL = 3306;
const server = app.listen(0, "127.0.0.1", async () => {
  for (const path of ["/ok", "/503", "/bug", "/late", "/refused", "/library", "/own", "/nowhere"])
    await fetch(`http://127.0.0.1:${server.address().port}${path}`, { headers: { connection: "close" } });
  server.close();
});
"""


def test_express_answers_of_500_and_above_are_errors_once_with_the_kind_of_their_driver(posted: Posted) -> None:
    node = runtime("node")
    if not (MODULES / "express").is_dir():
        pytest.skip("express is not installed: tests/run does it")
    command = [node, "-e", EXPRESS.replace("net.connect(MYSQL", "net.connect(1"), str(CLIENTS / "express.cjs")]
    run(command, {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{posted[0]}"}, MODULES.parent)
    expected = {
        "http_503": 1,
        "TypeError": 1,
        "RangeError": 1,
        "ECONNREFUSED": 1,
        "redis": 1,
        "requests": 8,
        "failed": 5,
    }
    wait_for(lambda: totals(posted) == expected, timeout_s=60, what="all has come")


def test_node_names_the_driver_of_an_error_by_library_port_or_cause() -> None:
    kinds = """
    const { kindOf } = require(process.argv[1]);
    const of = (fields, message = "x") => kindOf(Object.assign(new Error(message), fields));
    const stack = (path) => ({ stack: `Error: x\\n    at f (/app/node_modules/${path}/lib/a.js:1:1)` });
    console.log([
      of({ port: 3306, code: "ECONNREFUSED" }), of({ errors: [{ port: 5432 }] }), of({ cause: { port: 6379 } }),
      of({ original: stack("mysql2") }), of(stack("amqplib")), of(stack("pg-pool")), of(stack("left-pad")),
      of({ sqlMessage: "no such table" }), of({ code: "E1" }), of({ cause: { cause: null } }), kindOf(undefined),
    ].join(" "));
    """
    printed = run([runtime("node"), "-e", kinds, str(CLIENTS / "express.cjs")], {})
    assert printed.split() == [
        *("mysql", "postgres", "redis", "mysql", "rabbitmq", "postgres", "Error", "mysql", "E1", "Error", "Error"),
    ]


# -- the JVM ----------------------------------------------------------------------------------------------------------

SERVLET: Final = {
    "AsyncContext": "interface AsyncContext { void addListener(AsyncListener listener); }",
    "AsyncEvent": "interface AsyncEvent { Throwable getThrowable(); AsyncContext getAsyncContext(); }",
    "AsyncListener": """interface AsyncListener {
        void onComplete(AsyncEvent event); void onTimeout(AsyncEvent event);
        void onError(AsyncEvent event); void onStartAsync(AsyncEvent event); }""",
    "Filter": """interface Filter {
        void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws java.io.IOException, ServletException; }""",
    "FilterChain": """interface FilterChain {
        void doFilter(ServletRequest request, ServletResponse response)
            throws java.io.IOException, ServletException; }""",
    "ServletException": """class ServletException extends Exception {
        public ServletException(String message, Throwable cause) { super(message, cause); } }""",
    "ServletRequest": """interface ServletRequest {
        boolean isAsyncStarted(); AsyncContext getAsyncContext(); Object getAttribute(String name); }""",
    "ServletResponse": "interface ServletResponse {}",
    "http.HttpServletResponse": """interface HttpServletResponse extends jakarta.servlet.ServletResponse {
        int getStatus(); }""",
}
JAVA: Final = """
import jakarta.servlet.*;

public class Main {
    static int status = 200;
    static Throwable answered;

    public static void main(String[] arguments) throws Exception {
        ServletRequest request = new ServletRequest() {
            public boolean isAsyncStarted() { return false; }
            public AsyncContext getAsyncContext() { return null; }
            public Object getAttribute(String name) { return name.startsWith("jakarta") ? answered : null; }
        };
        jakarta.servlet.http.HttpServletResponse response = () -> status;
        FilterChain[] chains = {
            (asked, answer) -> {},
            (asked, answer) -> { status = 503; },
            (asked, answer) -> { status = 500; answered = new redis.clients.jedis.Lost(); },
            (asked, answer) -> { throw new ServletException("no cart", new redis.clients.jedis.Lost()); },
            (asked, answer) -> { throw new IllegalStateException("a \\"bug\\" \\\\ at\\n\u00e9" + "x".repeat(300)); },
        };
        for (FilterChain chain : chains) {
            try {
                new ArbiterFilter().doFilter(request, response, chain);
            } catch (ServletException | IllegalStateException error) {
                status = 200;
            }
        }
        Thread.sleep(Long.MAX_VALUE);
    }
}
"""


@pytest.fixture(scope="session")
def servlet_app(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The command of an app with the filter, and its directory."""
    javac, java = runtime("javac"), runtime("java")
    top = tmp_path_factory.mktemp("servlet")
    for name, text in SERVLET.items():
        package, _, _ = f"jakarta.servlet.{name}".rpartition(".")
        path = top / f"jakarta/servlet/{name.replace('.', '/')}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"package {package};\npublic {text}\n")
    (top / "redis/clients/jedis").mkdir(parents=True)
    lost = "package redis.clients.jedis;\npublic class Lost extends RuntimeException {}\n"
    (top / "redis/clients/jedis/Lost.java").write_text(lost)
    (top / "Main.java").write_text(JAVA)
    flags = ["-Xlint:all,-serial", "-Werror", "-proc:none", "-XDrawDiagnostics", "-encoding", "UTF-8", "-d", "classes"]
    run([javac, *flags, "-sourcepath", str(top), "Main.java", str(CLIENTS / "ArbiterFilter.java")], {}, top)
    return [java, "-Xshare:auto", "-cp", "classes", "Main"], top


@contextmanager
def _running(app: tuple[list[str], Path], port: int) -> Iterator[None]:
    """The app, which reports to this port."""
    command, top = app
    environ = {"ARBITER_LOCAL_LISTEN": f"127.0.0.1:{port}", "ARBITER_SOCKET": str(top / "none")}
    with (top / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=top, env={**os.environ, **environ}, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def test_servlet_filter_reports_answers_and_exceptions_to_a_sidecar(
    servlet_app: tuple[list[str], Path], posted: Posted
) -> None:
    port, bodies = posted
    expected = {"http_503": 1, "redis": 2, "IllegalStateException": 1, "requests": 5, "failed": 4}
    with _running(servlet_app, port):
        wait_for(lambda: totals(posted) == expected, timeout_s=60, what="errors and results have come")
    errors = [error for path, body in bodies if path == "/errors" for error in read_errors(body)]
    (bug,) = [report.message or "" for report in errors if report.kind == "IllegalStateException"]
    assert bug.startswith('java.lang.IllegalStateException: a "bug" \\ at \u00e9xxx')
    assert len(bug) == 200
