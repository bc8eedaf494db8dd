"""Programs of the clients in other languages: their runtimes, and what they send."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.binaries import find
from harness.http_server import Asked, Said, http_server
from sidecar.inputs.report_bodies import read_errors, read_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.sidecar import Sidecar

TOP: Final = Path(__file__).parents[2]
CLIENTS: Final = TOP / "deploy" / "clients"


def runtime(name: str) -> str:
    """The program; the test is skipped without it."""
    program = find(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def run(command: list[str], environ: Mapping[str, str], cwd: Path = CLIENTS) -> str:
    """The output of a program on both streams; its exit code must be 0."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ARBITER_")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def counted(sidecar: Sidecar) -> Counter[str]:
    """What a sidecar has counted: errors by kind, and requests."""
    evidence = sidecar.verdict()["evidence"]
    return Counter({**evidence["kinds"], "requests": evidence["requests"], "failed": evidence["failed"]})


Posted = tuple[int, list[tuple[str, bytes]]]
"""A loopback port, and path and body of every POST to it."""


def totals(posted: Posted) -> Counter[str]:
    """What has been posted: errors by kind, ``requests`` and ``failed``."""
    counts: Counter[str] = Counter()
    for path, body in [*posted[1]]:
        if path == "/errors":
            for error in read_errors(body):
                counts[error.kind] += error.errors
        elif path == "/results":
            results = read_results(body)
            counts.update(requests=results.ok + results.failed, failed=results.failed)
    return counts


@contextmanager
def answering(status: int) -> Iterator[Posted]:
    requests: list[tuple[str, bytes]] = []

    def take(asked: Asked) -> Said:
        requests.append((asked.path, asked.body))
        return Said(status)

    with http_server(take) as port:
        yield port, requests


_REPORTING: Final = """
package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"example.org/app/arbiter"
)

func main() {
	if text := os.Getenv("TEXT"); text != "" {
		arbiter.ReportError(errors.New("older"))
		arbiter.ReportError(errors.New(text))
		arbiter.Flush(time.Minute)
		return
	}
	times, _ := strconv.Atoi(os.Args[1])
	for i := 0; i < times; i++ {
		arbiter.Report(1, "redis")
	}
	arbiter.Report(2, "a,b|c#d")
	defer func() {
		if recover() != "oops" {
			os.Exit(3)
		}
		atMost, _ := strconv.Atoi(os.Args[2])
		arbiter.Flush(time.Duration(atMost) * time.Second)
	}()
	app := arbiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("oops")
		case "/broken":
			http.Error(w, "broken", 500)
		default:
			_, _ = w.Write([]byte("fine"))
			w.(http.Flusher).Flush()
		}
	}))
	for _, path := range []string{"/", "/broken", "/panic"} {
		app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
}
"""

_ENVIRON: Final = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def build_go(directory: Path) -> Path:
    """Build ``reporting`` in a module in ``directory``; the directory of the program."""
    go = runtime("go")
    sources = {
        "arbiter/client.go": (CLIENTS / "client.go").read_text(),
        "reporting/main.go": _REPORTING,
        "go.mod": "module example.org/app\n\ngo 1.21\n",
    }
    for name, text in sources.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    assert run([go, "vet", "./..."], _ENVIRON, directory) == ""
    programs = directory / "bin"
    programs.mkdir()
    assert run([go, "build", "-o", str(programs), "./reporting"], _ENVIRON, directory) == ""
    return programs
