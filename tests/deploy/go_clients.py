"""Two programs with the client in Go: one reports errors and requests, the other prints the kinds of errors."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deploy.client_programs import CLIENTS, run, runtime

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
	if text := os.Getenv("TEXT"); text == "odd" {
		arbiter.Report(-1, "odd")
		arbiter.Report(1, "")
		arbiter.Flush(time.Minute)
		return
	} else if text != "" {
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

_KINDS: Final = """
package main

import (
	"errors"
	"fmt"
	"net"

	"example.org/app/arbiter"
	"example.org/app/go-redis"
)

func main() {
	_, refused := net.Dial("tcp", "127.0.0.1:1")
	mysql := &net.OpError{Op: "dial", Addr: &net.TCPAddr{Port: 3306}, Err: errors.New("refused")}
	for _, err := range []error{redis.Error("gone"), fmt.Errorf("no cart: %w", &redis.Lost{}), mysql, refused, nil} {
		fmt.Println(arbiter.KindOf(err))
	}
}
"""
_REDIS: Final = """
package redis

type Error string

func (e Error) Error() string { return string(e) }

type Lost struct{}

func (*Lost) Error() string { return "lost" }
"""

_ENVIRON: Final = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def build(directory: Path) -> Path:
    """Build ``reporting`` and ``kinds`` in one module in ``directory``, which is returned."""
    go = runtime("go")
    sources = {
        "arbiter/client.go": (CLIENTS / "client.go").read_text(),
        "go-redis/redis.go": _REDIS,
        "reporting/main.go": _REPORTING,
        "kinds/main.go": _KINDS,
        "go.mod": "module example.org/app\n\ngo 1.21\n",
    }
    for name, text in sources.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    assert run([go, "vet", "./..."], _ENVIRON, directory) == ""
    programs = directory / "bin"
    programs.mkdir()
    assert run([go, "build", "-o", str(programs), "./reporting", "./kinds"], _ENVIRON, directory) == ""
    return programs
