"""Command lines: which command they are for, what they give it, and how each error is printed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click
import pytest

from harness.ports import free_port
from sidecar import __version__
from sidecar.cli import application, options
from sidecar.cli.main import main
from sidecar.config.shown import ADVANCED, FIRST, table

SECRET = "hunter2"  # not one: the string to look for
FLAGS = [f"--{name.removeprefix('ARBITER_').lower().replace('_', '-')}" for name, _, _ in table()]
COMMANDS = [name for commands in application.COMMANDS.values() for name in commands]


class Done:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str, **environ: str) -> None:
        self.served: list[dict[str, Any]] = []
        self.code = application.run(arguments, environ, self._serve)
        self.out, self.err = capsys.readouterr()

    def _serve(self, settings: dict[str, Any]) -> int:
        self.served.append(settings)
        return 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--eror-limit", "5"], "--eror-limit: unknown flag; did you mean --error-limit?\n"),
        (["--eror-limit=5"], "--eror-limit: unknown flag; did you mean --error-limit?\n"),
        (["--error_limit", "5"], "--error_limit: unknown flag; did you mean --error-limit?\n"),
        (["--error", "5"], "--error: unknown flag; did you mean"),
        (["--never-last", "on"], "--never-last: there is no such setting since 0.3: the last container is kept unless"),
        (["--xyzzy"], "--xyzzy: unknown flag, see health-arbiter {} --help\n"),
        (["-x"], "-x: unknown flag, see health-arbiter {} --help\n"),
        (["--redis-ulr", f"redis://:{SECRET}@h"], "--redis-ulr: unknown flag; did you mean --redis-url?\n"),
        ([f"--redis-url:redis://:{SECRET}@h"], "--redis-url: unknown flag"),
        ([f"redis://:{SECRET}@h"], "a word that is no flag, see health-arbiter {} --help\n"),
        (["--drain", "1s", "check-config"], "a word that is no flag, see health-arbiter {} --help\n"),
        (["--drain"], "Option '--drain' requires an argument.\n"),
        (["--grace", "-5"], "ARBITER_GRACE: '-5' from flag must not be negative\n"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check-config", "doctor"])
def test_a_command_line_that_cannot_be_read_exits_2_without_a_secret(
    capsys: pytest.CaptureFixture[str], command: str, arguments: list[str], complaint: str
) -> None:
    done = Done(capsys, command, *arguments)
    assert (done.code, done.served, done.out) == (2, [], "")
    assert done.err.startswith(f"health-arbiter: {complaint.format(command)}")
    assert done.err.count("\n") == 1
    assert SECRET not in done.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["hold", "--reason", "x"], "Missing option '--for'."),
        (["hold", "--for", "1h"], "Missing option '--reason'."),
        (["hold", "--reason", "x", "--for"], "Option '--for' requires an argument."),
        (["release", "--xyzzy"], "--xyzzy: unknown flag, see health-arbiter release --help"),
        (["release", "web"], "a word that is no flag, see health-arbiter release --help"),
        (["fleet", f"--redis-url=redis://:{SECRET}@h"], "--redis-url: unknown flag"),
        (["fleet", "--local-listen", "0.0.0.0:1"], "ARBITER_LOCAL_LISTEN: '0.0.0.0:1' from flag must be localhost"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value)[:40],
)
def test_command_that_cannot_be_understood_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    done = Done(capsys, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"health-arbiter: {complaint}")
    assert done.err.count("\n") == 1
    assert SECRET not in done.err


def test_without_a_command_it_prints_the_help_and_does_not_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    explained = capsys.readouterr()
    assert (main([]), capsys.readouterr()) == (2, explained)


def test_option_in_front_of_a_command_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, f"--redis-url:redis://:{SECRET}@h")
    said = "options come behind a command, as in health-arbiter run --error-limit 5"
    assert (done.code, done.err) == (2, f"health-arbiter: {said}\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("chek-config", "did you mean check-config?"),
        ("Hold", "did you mean hold?"),
        (f"redis://:{SECRET}@h", "health-arbiter --help lists them"),
    ],
)
def test_a_first_word_that_is_no_command_is_not_repeated(
    capsys: pytest.CaptureFixture[str], word: str, hint: str
) -> None:
    done = Done(capsys, word)
    assert (done.code, done.err) == (2, f"health-arbiter: the first word is no command; {hint}\n")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--run-lock=/l", "--standby"], {"standby": True, "run_lock": "/l"}),
        (["--standby", "--run-lock", "/l"], {"standby": True, "run_lock": "/l"}),
        (["--standby", "false", "--alone=true"], {"standby": False, "alone": True}),
        (["--run-lock", "/l", "--lifetime", "5h", "--redis-url", "redis://h"], {"lifetime": 18_000, "run_lock": "/l"}),
    ],
    ids=["with equals", "switch first", "switch with a value", "lifetime of the app"],
)
def test_switch_needs_no_value_and_a_run_lock_changes_no_other_option(
    capsys: pytest.CaptureFixture[str], flags: list[str], expected: dict[str, object]
) -> None:
    done = Done(capsys, "run", *flags)
    (settings,) = done.served
    assert {name: settings[name] for name in expected} == expected


def test_check_config_prints_the_effective_settings_without_secrets_also_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    environ = {"ARBITER_REDIS_URL": f"redis://user:{SECRET}@host/0?password={SECRET}", "NOMAD_ALLOC_ID": "0a1b"}
    done = Done(capsys, "check-config", "--preset", "classdojo", **environ)
    assert (done.code, done.err) == (0, "")
    assert SECRET not in done.out
    lines = done.out.splitlines()
    assert len(lines) == len(table())
    assert "ARBITER_REDIS_URL=redis://user:***@host/0?password=***  # from env" in lines
    assert "ARBITER_PRESET=classdojo  # from flag" in lines
    assert "ARBITER_BUDGET_STRATEGY=fixed  # from preset" in lines
    assert "ARBITER_INSTANCE=0a1b  # from nomad" in lines
    as_json = json.loads(Done(capsys, "check-config", "--json", "--preset", "classdojo", **environ).out)
    assert [f"{name}={of['value']}  # from {of['from']}" for name, of in as_json.items()] == [
        line.partition(": at most")[0] for line in lines
    ]


def test_check_config_shows_only_what_differs_from_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"ARBITER_ERROR_LIMIT": "5", "ARBITER_BUDGET": "3", "ARBITER_REDIS_URL": "redis://h"}
    done = Done(capsys, "check-config", "--changed", "--drain", "30s", **environ)
    expected = [
        "ARBITER_REDIS_URL=redis://h  # from env",
        "ARBITER_BUDGET=3  # from env: at most 3 culls in any window, or 9 with refunds",
        "ARBITER_DRAIN=30s  # from flag",
    ]
    assert (done.code, sorted(done.out.splitlines())) == (0, sorted(expected))
    none = Done(capsys, "check-config", "--changed")
    assert (none.code, none.out, none.err) == (0, "", "health-arbiter: every setting has its default\n")
    assert json.loads(Done(capsys, "check-config", "--changed", "--json", **environ).out).keys() == {
        "ARBITER_REDIS_URL",
        "ARBITER_BUDGET",
    }


def test_check_config_exits_2_on_every_problem_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "check-config", "--settle", "60s", ARBITER_LOCAL_LISTEN="off", ARBITER_BUGDET="1")
    assert (done.code, done.out) == (2, "")
    assert [line.split(": ")[:2] for line in done.err.splitlines()] == [
        ["health-arbiter", "ARBITER_BUGDET"],
        ["health-arbiter", "ARBITER_SETTLE"],
        ["health-arbiter", "ARBITER_LOCAL_LISTEN"],
    ]


ANN = ("--author", "ann")
HOLD = ("hold", "--for", "1h", "--reason", "migration", *ANN)


@pytest.mark.parametrize(
    "words",
    [
        HOLD,
        *(
            ("release", *ANN),
            ("fleet",),
            ("fleet", "--json"),
            ("why",),
            ("why", "b"),
            ("cull", "--yes", *ANN),
            ("cull",),
        ),
        *(("revive", *ANN), ("events",), ("events", "--follow"), ("report",), ("watch",)),
    ],
    ids=" ".join,
)
def test_without_a_sidecar_one_line_names_the_setting(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = Done(capsys, *words, ARBITER_LOCAL_LISTEN=address)
    assert (done.code, done.out) == (69, "")
    assert done.err == f"health-arbiter: no sidecar answers at {address} (ARBITER_LOCAL_LISTEN): connection refused\n"


@pytest.mark.parametrize("order", ["hold --for 1h --reason migration", "release", "cull --yes", "revive"])
def test_order_needs_an_author_whom_others_can_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    for login, sudo, author in (
        ("bob", "anna", "bob"),
        ("root", "anna", "anna"),
        ("app", "", ""),
        ("root", "root", ""),
    ):
        monkeypatch.setenv("LOGNAME", login)
        monkeypatch.setenv("SUDO_USER", sudo)
        assert not author or options.person() == author
        done = Done(capsys, *order.split(), ARBITER_LOCAL_LISTEN="127.0.0.1:1")
        assert (done.code, "--author: is missing" in done.err) == (69 if author else 2, not author)


def test_what_cannot_be_printed_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full, contextlib.redirect_stdout(full):
        assert application.run(["check-config"], {}) == 1
    assert capsys.readouterr().err == "health-arbiter: failed: no space left on device\n"


@pytest.mark.parametrize(
    ("typed", "completions"),
    [("health-arbiter ex", ["exec"]), ("health-arbiter hold --rea", ["--reason"]), ("health-arbiter no x", [])],
)
def test_shell_is_told_how_a_word_may_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, completions: list[str]
) -> None:
    monkeypatch.setenv("_HEALTH_ARBITER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    with pytest.raises(SystemExit):
        main(typed.split()[1:])
    out, err = capsys.readouterr()
    assert (out.split(), err) == ([f"plain,{word}" for word in completions], "")


# -- help -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--version"], ["run", "--budget", "9", "--version"]])
def test_version_is_printed(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr() == (f"health-arbiter {__version__}\n", "")


def test_help_begins_with_the_commands_each_with_the_first_sentence_of_its_own_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in out.partition("\nOptions:")[0].splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines[1:]] == COMMANDS
    for name, sentence in lines[1:]:
        assert main([name, "--help"]) == 0
        assert sentence in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("arguments", [["run", "-h"], ["run", "--budget", "9", "--help"]])
def test_help_has_every_setting_once_and_those_that_matter_first(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 0
    options = capsys.readouterr().out.partition("Exit codes:")[0]
    words = [line.split()[0] for line in options.splitlines() if line.startswith("  --")]
    shown = [word for word in words if word in FLAGS]
    assert sorted(shown) == sorted(FLAGS)
    assert shown[: len(FIRST)] == [f"--{name.replace('_', '-')}" for name in FIRST]
    assert shown[-len(ADVANCED) :] == [f"--{name.replace('_', '-')}" for name in ADVANCED]
    assert main(["doctor", "--help"]) == 0
    of_another = capsys.readouterr().out.partition("Exit codes:")[0].split()
    assert ({*FLAGS} & {*of_another}, "explains" in of_another) == (set(), True)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_and_its_exit_codes(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.lower().startswith(f"usage: health-arbiter {name} ")
    assert "Exit codes:" in out
    assert " 2 " in out
    assert ("--url " in out) == ("--url URL" in out)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_has_a_help_text(name: str) -> None:
    command = application.root.get_command(click.Context(application.root), name)
    assert command is not None
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []
