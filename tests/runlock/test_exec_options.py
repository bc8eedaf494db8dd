"""The command line of ``exec``, its contradictions, the relations of its times, and when a life is over."""

from __future__ import annotations

import heapq
import random
import shlex
from pathlib import Path

import pytest

from sidecar.cli.main import main
from sidecar.runlock import execute
from sidecar.runlock.exec_options import ExecOptions, contradictions, options_of


def _options(line: str) -> ExecOptions:
    return options_of(["--run-lock", "locks", *shlex.split(line), "--", "true"])


def test_command_line_without_options_is_that_of_the_defaults() -> None:
    assert _options("") == ExecOptions(["true"], Path("locks"))


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("--redis-file /etc/url --ttl 1m", {"redis_file": Path("/etc/url"), "ttl_s": 60.0}),
        ("--name import --max-procs 3 --no-inherit-lock", {"name": "import", "max_procs": 3, "inherit_lock": False}),
        ("--standby --standby-for 5m --every 1.5s", {"standbys": 1, "standby_for_s": 300.0, "every_s": 1.5}),
        ("--standbys 3 --standby", {"standbys": 3}),
        ("--standby --standbys 3", {"standbys": 3}),
        ("--lifetime 1h --lifetime-max 2h", {"lifetime_s": 3600, "lifetime_max_s": 7200}),
        ("--busy-command 'test -e x' --grace 3", {"busy_command": ["test", "-e", "x"], "grace_s": 3.0}),
    ],
)
def test_options_are_read(line: str, read: dict[str, object]) -> None:
    assert _options(line)._asdict().items() >= read.items()


@pytest.mark.parametrize("program", [execute.main, lambda words: main(["exec", *words])], ids=["alone", "sidecar"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run-lock", "d"], "give it behind --"),
        (["--run-lock", "d", "--"], "give it behind --"),
        (["--run-lock", "d", "sleep", "1"], "unrecognized arguments: sleep 1"),
        (["--", "true"], "--run-lock"),
        (["--run-lock", "d", "--lifetime", "soon", "--", "true"], "'soon' is not a duration"),
        (["--run-lock", "d", "--busy-command", "'", "--", "true"], "no closing quotation"),
        (["--run-lock", "d", "--lifetim", "5m", "--", "true"], "--lifetim"),
    ],
)
def test_unreadable_command_line_is_refused(program, words: list[str], said: str, capfd) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - a row's function
    assert program(words) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--lifetime 61s",
        "--lifetime 5m --standby",
        "--lifetime 5m --standby --standby-for 311s",
        "--lifetime 5m --lifetime-max 10m --busy-command b --standby --standby-for 611s",
        "--lifetime 241s --max-procs 4",
        "--lifetime 5m --standby --standby-for 311s --max-procs 4",
        "--standby --standby-for 61s",
    ],
)
def test_times_without_a_gap_are_accepted(line: str) -> None:
    assert contradictions(_options(line)) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--lifetime 60s", "S > L > C does not hold: a main ends every L = 60s, and .* every C = 60s"),
        ("--lifetime 4m --max-procs 4", r"S/k > L/k > C does not hold: .* every L/k = 4m / 4 = 60s, .* C = 60s"),
        ("--lifetime 5m --standby --standby-for 310s", "S > L > C does not hold: .* S = 310s, and .* L = 310s"),
        ("--lifetime 5m --lifetime-max 10m --busy-command b --standby --standby-for 10m", "S = 10m, and .* L = 610s"),
        ("--lifetime 5m --max-procs 2 --standbys 3 --standby-for 465s", "the last one waits up to L = 465s"),
        ("--standby --standby-for 60s", "waits S = 60s, and the next is started only every C = 60s"),
        ("--standby --standby-for 150s --max-procs 3", "C = 60s, for k = 3"),
        ("--every 0", "--every must be more than 0"),
        ("--standby-for 5m", "--standby-for needs --standby"),
        ("--lifetime-max 5m --busy-command x", "--lifetime-max needs a --lifetime"),
        ("--lifetime 5m --lifetime-max 6m", "--lifetime-max and --busy-command need one another"),
        ("--lifetime 5m --busy-command x", "need one another"),
        ("--lifetime 5m --lifetime-max 5m --busy-command x", "--lifetime-max must be more"),
        ("--max-procs 0", "--max-procs must be at least 1"),
        ("--standbys -1", "--standbys must not be negative"),
        ("--redis-file url", "give either --run-lock or --redis-file"),
        ("--redis-file url --ttl 20s", "--ttl 20s: others get a lost lock after 3/5 of it, and .* 16s"),
    ],
)
def test_contradiction_is_said_with_its_numbers(line: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError("; ".join(contradictions(_options(line))))


def test_contradiction_is_refused_before_anything_is_locked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for options in ("--lifetime 50s --standby --standby-for 40s", "--name a/b"):
        assert main(["exec", "--run-lock", str(tmp_path), *options.split(), "--", "true"]) == 2
    said = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2][:20] for line in said] == ["S > L > C does not h"] * 2 + ["the name of a lock h"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "chance", "lives_s"),
    [
        ("", 0.5, 0),
        ("--lifetime 5m", 0.0, 300),
        ("--lifetime 5m", 0.5, 285),
        ("--lifetime 5m", 1.0, 270),
        ("--lifetime 250s --max-procs 4", 1.0, 240),
        ("--lifetime 61s", 0.5, 60.5),
    ],
)
def test_jitter_shortens_a_life_and_not_below_the_time_of_the_next_starts(
    line: str, chance: float, lives_s: float
) -> None:
    assert _options(line).with_jitter(chance).lifetime_s == pytest.approx(lives_s)


@pytest.mark.parametrize(
    ("life", "age_s", "busy", "over"),
    [
        ((0, 0), 1e9, False, False),
        ((300, 0), 299.9, False, False),
        ((300, 0), 300, False, True),
        ((300, 0), 300, True, True),
        ((300, 600), 300, False, True),
        ((300, 600), 300, True, False),
        ((300, 600), 599.9, True, False),
        ((300, 600), 600, True, True),
    ],
    ids=str,
)
def test_a_life_is_over_at_its_age_and_later_only_while_it_is_busy(
    life: tuple[float, float], age_s: float, *, busy: bool, over: bool
) -> None:
    options = ExecOptions(["true"], lifetime_s=life[0], lifetime_max_s=life[1])
    asked: list[float] = []

    def is_busy(left_s: float) -> bool:
        asked.append(left_s)
        return busy

    assert options.is_over(age_s, is_busy) is over
    assert asked == [life[1] - age_s] * (0 < life[0] <= age_s < life[1])


def _fewest(options: ExecOptions, chance: random.Random) -> int:
    """The fewest mains at a time in six hours, after all of them have started together at 0."""
    k = options.max_procs
    starts = [number * options.every_s + 1 for number in range(int(6 * 3600 / options.every_s))]
    events = [(at, "start") for at in starts] + [
        (options.with_jitter(chance.random()).lifetime_s, "end") for _ in range(k)
    ]
    heapq.heapify(events)
    running, standbys, fewest = k, 0, k
    while events[0][0] < starts[-1]:
        at, what = heapq.heappop(events)
        if what == "start" and running == k:
            standbys = min(standbys + 1, options.standbys)
            continue
        if what == "end":
            running -= 1
            if not standbys:
                fewest = min(fewest, running)
                continue
            standbys -= 1
        running += 1
        heapq.heappush(events, (at + options.with_jitter(chance.random()).lifetime_s, "end"))
    return fewest


@pytest.mark.parametrize("lifetime", ["5m", "1h"])
@pytest.mark.parametrize("standbys", [0, 1, 2, 4])
def test_as_many_mains_as_standbys_work_at_any_time_whatever_the_jitter(lifetime: str, standbys: int) -> None:
    options = _options(f"--max-procs 4 --standbys {standbys} --lifetime {lifetime}")
    fewest = min(_fewest(options, random.Random(seed)) for seed in range(40))
    assert fewest == standbys, "and no more than that is certain"
