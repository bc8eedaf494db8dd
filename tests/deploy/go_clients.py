"""A program with the client in Go that reports errors and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deploy.client_programs import CLIENTS, run, runtime

if TYPE_CHECKING:
    from pathlib import Path

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


def build(directory: Path) -> Path:
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
