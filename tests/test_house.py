"""The plan of the house: who may import whom. The tree is read, not run, so a late import counts like any other."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

SIDECAR: Final = Path(__file__).parents[1] / "sidecar"

Imports = Mapping[str, frozenset[str]]
"""Module -> the dotted names it imports; ``from a import b`` counts as ``a.b``."""

Rule = Callable[[Imports], list[str]]
"""Imports -> one sentence for each violation."""

CORE_USES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "arbiter": frozenset({"culling", "delays", "events", "retiring", "standing"}),
        "culling": frozenset({"delays", "events", "sentences", "standing"}),
        "retiring": frozenset({"culling", "events", "retirement", "sentences", "standing"}),
        "detectors": frozenset({"outlier"}),
        "retirement": frozenset({"fleet", "sentences"}),
        "outcomes": frozenset({"window"}),
        "occasions": frozenset({"topics"}),
        "topics": frozenset({"sentences"}),
        "witness": frozenset({"outcomes", "outlier", "success", "window"}),
        "records": frozenset({"events", "outlier", "standing"}),
        "clearing": frozenset({"records", "sentences"}),
        "history": frozenset({"records", "sentences", "standing"}),
        "ledger": frozenset({"delays", "detectors", "events", "records", "sentences", "standing"}),
        "cascade": frozenset({"limits", "shuffle", "success"}),
        "fleet": frozenset({"members"}),
    }
)
"""Core rooms share words, not calls: what a room may use besides ``words``."""

DOORS: Final = ("sidecar.intake", "sidecar.answer")
CLOSED_TO_DOORS: Final = ("sidecar.loop", "sidecar.settings")

CLOCKS: Final = frozenset({"datetime", "sched", "time", "zoneinfo"})
CHANCE: Final = frozenset({"random", "secrets", "uuid"})
WIRES: Final = frozenset({"http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"})
TASKS: Final = frozenset({"asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "sched", "threading"})
MACHINE: Final = frozenset(
    {"ctypes", "io", "mmap", "os", "pathlib", "shutil", "signal", "subprocess", "sys", "tempfile"}
)
REST: Final = frozenset({"importlib", "locale", "logging", "sqlite3", "warnings"})
OUTSIDE_WORLD: Final = CLOCKS | CHANCE | WIRES | TASKS | MACHINE | REST
"""What a quiet room must not know of the standard library."""

ONLY_HERE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pydantic": ("sidecar.settings",),
        "pydantic_settings": ("sidecar.settings",),
        "click": ("sidecar.commands",),
        "rich": ("sidecar.commands",),
        "redis": ("sidecar.store", "sidecar.standby.leases"),
        "aiohttp.web": ("sidecar.client",),
    }
)
NAMELESS: Final = frozenset({"utils", "util", "helpers", "helper", "base", "manager", "common", "misc"})


# -- reading ------------------------------------------------------------------------------------------------


def _imported(source: str, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            yield from (origin if alias.name == "*" else f"{origin}.{alias.name}" for alias in node.names)


def _origin(node: ast.ImportFrom, package: str) -> str:
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _module(path: Path) -> str:
    parts = ("sidecar", *path.relative_to(SIDECAR).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read_house() -> Imports:
    house = {}
    for path in sorted(SIDECAR.rglob("*.py")):
        module = _module(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        house[module] = frozenset(_imported(path.read_text(), package))
    return house


def _within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _pairs(imports: Imports, *packages: str) -> Iterator[tuple[str, str]]:
    for module, names in imports.items():
        if _within(module, *packages):
            yield from ((module, name) for name in sorted(names))


# -- rules --------------------------------------------------------------------------------------------------


def core_knows_only_quiet_standard_library(imports: Imports) -> list[str]:
    quiet = sys.stdlib_module_names - OUTSIDE_WORLD
    return [
        f"{module} imports {name}: a quiet room knows neither clock, I/O nor libraries"
        for module, name in _pairs(imports, "sidecar.core")
        if not _within(name, "sidecar.core") and name.partition(".")[0] not in quiet
    ]


def core_rooms_share_words_not_calls(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: core rooms share words"
        for module, name in _pairs(imports, "sidecar.core")
        if _core_room(name) not in {"", "words", _core_room(module), *CORE_USES.get(_core_room(module), ())}
    ]


def _core_room(name: str) -> str:
    return name.split(".")[2] if name.startswith("sidecar.core.") else ""


def doors_do_not_know_one_another(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: doors never import one another"
        for door in DOORS
        for module, name in _pairs(imports, door)
        if _within(name, *(other for other in DOORS if other != door))
    ]


def doors_know_neither_hall_nor_settings(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: a door is handed plain values"
        for module, name in _pairs(imports, *DOORS)
        if _within(name, *CLOSED_TO_DOORS)
    ]


def core_and_store_are_not_instrumented(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: observers see a frozen record, the engine does not know them"
        for module, name in _pairs(imports, "sidecar.core", "sidecar.store")
        if _within(name, "prometheus_client", "logging")
    ]


def libraries_stay_in_their_rooms(imports: Imports) -> list[str]:
    return [
        f"{module} imports {name}: {library} is for {', '.join(rooms)}"
        for library, rooms in ONLY_HERE.items()
        for module, name in _pairs(imports, "sidecar")
        if _within(name, library) and not _within(module, *rooms)
    ]


def modules_are_named_for_what_they_hold(imports: Imports) -> list[str]:
    return [f"{module}: say what it holds" for module in imports if NAMELESS.intersection(module.split("."))]


RULES: Final[tuple[Rule, ...]] = (
    core_knows_only_quiet_standard_library,
    core_rooms_share_words_not_calls,
    doors_do_not_know_one_another,
    doors_know_neither_hall_nor_settings,
    core_and_store_are_not_instrumented,
    libraries_stay_in_their_rooms,
    modules_are_named_for_what_they_hold,
)


# -- the house ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house() -> Imports:
    return _read_house()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_keeps_the_rule(rule: Rule, house: Imports) -> None:
    assert rule(house) == []


def test_whole_house_is_read(house: Imports) -> None:
    assert {"sidecar", "sidecar.core", "sidecar.core.words", "sidecar.core.arbiter"} <= set(house)
    assert "sidecar.core.words.Policy" in house["sidecar.core.arbiter"]


# -- the rules bite -----------------------------------------------------------------------------------------

VIOLATIONS = [
    (core_knows_only_quiet_standard_library, "sidecar.core.window", "time"),
    (core_knows_only_quiet_standard_library, "sidecar.core.arbiter", "random.Random"),
    (core_knows_only_quiet_standard_library, "sidecar.core.fleet.tokens", "asyncio.Lock"),
    (core_knows_only_quiet_standard_library, "sidecar.core.fleet.tokens", "datetime.datetime"),
    (core_knows_only_quiet_standard_library, "sidecar.core.fleet.decide", "sidecar.store.Store"),
    (core_knows_only_quiet_standard_library, "sidecar.core.words", "pydantic.BaseModel"),
    (core_knows_only_quiet_standard_library, "sidecar.core.words", "sidecar.loop"),
    (core_knows_only_quiet_standard_library, "sidecar.core", "sidecar.__version__"),
    (core_rooms_share_words_not_calls, "sidecar.core.detectors", "sidecar.core.window.RollingCounts"),
    (core_rooms_share_words_not_calls, "sidecar.core.arbiter", "sidecar.core.fleet.tokens"),
    (core_rooms_share_words_not_calls, "sidecar.core.sentences", "sidecar.core.arbiter.Standing"),
    (core_rooms_share_words_not_calls, "sidecar.core.words", "sidecar.core.sentences"),
    (doors_do_not_know_one_another, "sidecar.intake.http", "sidecar.answer.health.routes"),
    (doors_do_not_know_one_another, "sidecar.answer.agent", "sidecar.intake"),
    (doors_know_neither_hall_nor_settings, "sidecar.intake.http", "sidecar.loop.Inbox"),
    (doors_know_neither_hall_nor_settings, "sidecar.answer.metrics", "sidecar.settings"),
    (core_and_store_are_not_instrumented, "sidecar.store.redis", "logging"),
    (core_and_store_are_not_instrumented, "sidecar.core.fleet.decide", "prometheus_client.Counter"),
    (libraries_stay_in_their_rooms, "sidecar.loop", "pydantic.Field"),
    (libraries_stay_in_their_rooms, "sidecar.intake.http", "pydantic_settings"),
    (libraries_stay_in_their_rooms, "sidecar.app", "redis.asyncio"),
    (libraries_stay_in_their_rooms, "sidecar.answer.health", "aiohttp.web"),
    (modules_are_named_for_what_they_hold, "sidecar.utils", "json"),
    (modules_are_named_for_what_they_hold, "sidecar.store.common.keys", "json"),
]


@pytest.mark.parametrize(
    ("rule", "module", "name"), VIOLATIONS, ids=[f"{module}->{name}" for _, module, name in VIOLATIONS]
)
def test_rule_bites(rule: Rule, module: str, name: str) -> None:
    violations = rule({module: frozenset({name})})
    assert len(violations) == 1
    assert module in violations[0]


def test_every_rule_has_a_row_that_shows_its_teeth() -> None:
    assert {rule for rule, _, _ in VIOLATIONS} == set(RULES)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sidecar.core.window", "sidecar.core.words.Evidence"),
        ("sidecar.core.window", "dataclasses.replace"),
        ("sidecar.core.culling", "sidecar.core.sentences"),
        ("sidecar.core.records", "sidecar.core.standing.Standing"),
        ("sidecar.intake.http", "sidecar.intake.pings"),
        ("sidecar.intake.http", "sidecar.core.words.Ping"),
        ("sidecar.answer.health", "sidecar.answer.reasons"),
        ("sidecar.answer.health", "sidecar.listening.web.Response"),
        ("sidecar.listening.web", "aiohttp.web_response.Response"),
        ("sidecar.answer.metrics", "prometheus_client.Counter"),
        ("sidecar.store.redis", "redis.asyncio.Redis"),
        ("sidecar.store.budget", "sidecar.core.fleet.decide.decide"),
        ("sidecar.settings", "pydantic_settings.BaseSettings"),
        ("sidecar.app", "sidecar.settings"),
        ("sidecar.redistribution", "redistribution"),
    ],
)
def test_rules_leave_the_innocent_alone(module: str, name: str) -> None:
    imports = {module: frozenset({name})}
    assert [sentence for rule in RULES for sentence in rule(imports)] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b, c as d", {"a.b", "c"}),
        ("from a.b import c as d, e", {"a.b.c", "a.b.e"}),
        ("from a import *", {"a"}),
        ("from . import window", {"sidecar.core.window"}),
        ("from .window import RollingCounts", {"sidecar.core.window.RollingCounts"}),
        ("from ..loop import Inbox", {"sidecar.loop.Inbox"}),
        ("def late():\n    import redis", {"redis"}),
        ("if TYPE_CHECKING:\n    from redis import Redis", {"redis.Redis"}),
        ("x = 1", set()),
    ],
    ids=["import", "from", "star", "here", "beside", "above", "late", "types only", "none"],
)
def test_imports_are_read_wherever_they_stand(source: str, names: set[str]) -> None:
    assert set(_imported(source, "sidecar.core")) == names
