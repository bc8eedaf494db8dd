"""Commands on a laptop: ``--url`` and a token against the page listener of a real sidecar."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest

from harness.children import short_path
from harness.ports import free_port
from harness.sidecar_thread import SidecarThread
from sidecar.cli import application

if TYPE_CHECKING:
    from harness.sidecar import Setting

TOKEN: Final = "sesame-7d1f0c52-secret"
HINT: Final = "wants its token, or another one: name its file in ARBITER_TOKEN_FILE"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarThread]:
    """One sidecar with a token and a page listener for all tests."""
    with short_path(tmp_path_factory.mktemp("remote")) as directory:
        (directory / "token").write_text(f"{TOKEN}\n")
        place: dict[str, Setting] = {"token_file": directory / "token", "page_listen": f"127.0.0.1:{free_port()}"}
        one = SidecarThread(directory, "web-1", **place).start()
        yield one
        one.stop()


def _run(capsys: pytest.CaptureFixture[str], environ: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    code = application.run(words, environ)
    return code, *capsys.readouterr()


def _url(one: SidecarThread, listener: str = "page") -> str:
    host, port = one.address(listener)
    return f"http://{host}:{port}"


def test_commands_ask_a_sidecar_elsewhere_with_the_token(
    guarded: SidecarThread, capsys: pytest.CaptureFixture[str]
) -> None:
    by_file = {"ARBITER_URL": _url(guarded), "ARBITER_TOKEN_FILE": str(guarded.settings["token_file"])}
    assert json.loads(_run(capsys, by_file, "why", "--json")[1])["instance"] == "web-1"
    by_value = {"ARBITER_TOKEN": TOKEN}
    url = ("--url", f"{_url(guarded)}/page")  # as a browser shows it
    done = [
        _run(capsys, by_value, "hold", "--for", "1m", "--reason", "look", "--author", "ann", *url),
        _run(capsys, by_value, "fleet", "--json", *url),
        _run(capsys, by_value, "release", "--author", "ann", *url),
        _run(capsys, by_value, "events", "--json", *url),
        _run(capsys, by_value, "report", *url),
    ]
    assert [(code, err) for code, _, err in done] == [(0, "")] * 5
    assert json.loads(done[1][1])["local_hold"]["author"] == "ann"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "output", "is_coloured"),
    [({}, _Terminal, True), ({"NO_COLOR": "1"}, _Terminal, False), ({}, io.StringIO, False)],
    ids=["terminal", "NO_COLOR", "pipe"],
)
def test_words_that_matter_have_a_colour_on_terminals_only(
    guarded: SidecarThread, environ: Mapping[str, str], output: type[io.StringIO], *, is_coloured: bool
) -> None:
    with contextlib.redirect_stdout(output()) as printed:
        assert application.run(["why"], {"ARBITER_LOCAL_LISTEN": _url(guarded, "local")[7:], **environ}) == 0
    state = guarded.verdict()["state"]
    assert printed.getvalue().startswith(f"\x1b[32m{state}\x1b[0m: " if is_coloured else f"{state}: ")


def test_what_a_sidecar_elsewhere_does_not_allow_is_one_line(
    guarded: SidecarThread, capsys: pytest.CaptureFixture[str]
) -> None:
    page, public = _url(guarded), _url(guarded, "public")
    rows: list[tuple[Mapping[str, str], tuple[str, ...], int, str]] = [
        ({}, ("fleet",), 2, HINT),
        ({}, ("watch",), 2, HINT),
        ({}, ("hold", "--for", "1m", "--reason", "x", "--author", "ann"), 2, HINT),
        ({"ARBITER_TOKEN": "wrong-7d1f0c52-secret"}, ("why",), 2, HINT),
        ({"ARBITER_TOKEN": "two lines\nof-a-secret-text"}, ("why",), 2, "ARBITER_TOKEN: a token has 16 to 4096"),
        ({"ARBITER_TOKEN": TOKEN}, ("cull", "--yes", "--author", "ann"), 2, "cull is an order for one container"),
        ({}, ("doctor", "--url", page), 2, "--url: unknown flag"),
        ({"ARBITER_URL": public}, ("fleet",), 69, "--url has to name the page listener"),
        ({"ARBITER_URL": f"http://127.0.0.1:{free_port()}"}, ("fleet",), 69, "connection refused"),
        ({"ARBITER_URL": page.replace("http", "https")}, ("fleet",), 69, "no sidecar answers at https://"),
        ({"ARBITER_URL": "http://ann:hunter2@web-1"}, ("fleet",), 2, "ARBITER_URL: takes no user, password"),
        ({"ARBITER_TOKEN_FILE": "/nowhere"}, ("fleet",), 2, "ARBITER_TOKEN_FILE: /nowhere cannot be read"),
        ({"ARBITER_URL": "web-1:9183"}, ("fleet",), 2, "ARBITER_URL: takes an address such as https://"),
        ({}, ("fleet", "--url", "http://[hunter2"), 2, "--url: takes an address such as https://"),
    ]
    for environ, words, code, complaint in rows:
        done = _run(capsys, {"ARBITER_URL": page, **environ}, *words)
        assert (done[0], done[1], complaint in done[2], done[2].count("\n")) == (code, "", True, 1), (words, done)
        assert "hunter2" not in done[2]
        assert "secret" not in done[2]


@pytest.fixture
def reporting(guarded: SidecarThread) -> Iterator[SidecarThread]:
    """An app that reports the same error again and again."""
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(0.05):
            guarded.post_error(kind="redis", message="lost: password=hunter2", level="investigation")

    thread = threading.Thread(target=report)
    thread.start()
    yield guarded
    ended.set()
    thread.join()


@pytest.mark.parametrize("listener", ["local", "page"])
def test_watch_shows_the_first_report_as_it_comes(
    reporting: SidecarThread, capsys: pytest.CaptureFixture[str], listener: str
) -> None:
    url = {"ARBITER_URL": _url(reporting, listener), "ARBITER_TOKEN": TOKEN}
    code, out, err = _run(capsys, url, "watch", "--for", "1.5s")
    assert (code, err) == (0, "")
    assert "Z  state     " in out
    assert " x redis (investigation: does not count): lost: password=***\n" in out
    row = json.loads(_run(capsys, url, "watch", "--for", "1.5s", "--json")[1].splitlines()[1])
    assert (row["what"], row["kind"], row["level"]) == ("error", "redis", "investigation")


def test_watch_ends_after_its_time_without_a_report(guarded: SidecarThread, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, {"ARBITER_LOCAL_LISTEN": _url(guarded, "local")[7:]}, "watch", "--for", "0.2s")
    assert (code, out.count("\n"), err) == (1, 1, "health-arbiter: no error and no request came within 0.2 s\n")
